"""Code that several folders of tests share.

pytest finds this package through ``pythonpath`` in ``pyproject.toml``. A script needs
``PYTHONPATH=tests``, a process that a test starts gets ``environment()``.
"""

from __future__ import annotations

import os
import sys


def environment(**more: str) -> dict[str, str]:
    """Returns this process's environment for a child that imports this package too."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more
