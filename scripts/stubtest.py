"""Compares the stub with the built extension: mypy's stubtest for a stub of several files.

Stubtest compares each file of a stub with the module of its name. The extension is one module, so
each file gets a module here that has all names of the extension.
"""

import sys
from pathlib import Path
from types import ModuleType

from mypy import stubtest

from mqstore import _native

NAMES = {name: value for name, value in vars(_native).items() if not name.startswith("__")}

for part in Path(_native.__file__).with_name("_native").glob("_[!_]*.pyi"):
    module = ModuleType(f"{_native.__name__}.{part.stem}")
    vars(module).update(NAMES)
    sys.modules[module.__name__] = module

sys.argv[1:] = [_native.__name__, "--mypy-config-file", "pyproject.toml", *sys.argv[1:]]
sys.exit(stubtest.main())
