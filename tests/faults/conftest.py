"""Modules beside the tests are found by name, though pytest imports the tests by path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
