"""``python -m mqstore`` is the command ``mqstore``."""

import sys

from mqstore.cli import main

sys.exit(main())
