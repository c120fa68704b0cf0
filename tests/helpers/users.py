"""Runs code as another user, that may not be able to read this package: it is imported before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

UID, GID = 3000, 3001

_PRELUDE = """
import importlib, os, pkgutil, sys
import encodings.idna, pickle, mqstore, mqstore.config, mqstore.cli, mqstore.rocksdb
from mqstore.cli import commands
for found in pkgutil.iter_modules(commands.__path__, commands.__name__ + "."):
    importlib.import_module(found.name)

def command(*words):
    sys.argv = ["mqstore", *words]
    sys.exit(mqstore.cli.main())
"""
# A process keeps what it has when it drops this from its bounding set, and loses it with `exec`.
_WITHOUT_CHOWN = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 0, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""


def need_root() -> None:
    """Skips the test where no user can be changed."""
    if os.geteuid() != 0:
        pytest.skip("[no-root] changing owners needs root: run the tests as root")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    need_root()
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def give(root: Path, uid: int, gid: int, mode: int) -> None:
    """Changes owner, group and mode of a folder and all below it."""
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, gid)
        path.chmod(mode if path.is_dir() else mode & 0o666)


def run_as(uid: int, gid: int, code: str, folder: Path) -> tuple[int, str]:
    """Runs code as a user; returns its exit code, and what it printed."""
    become = f"os.setgroups([]); os.setgid({gid}); os.setuid({uid}); os.umask(0o22)\n"
    return _run([sys.executable, "-c", _PRELUDE + become + code], folder)


def run_without_chown(code: str, folder: Path) -> tuple[int, str]:
    """Runs code as root that may not give files away, as in a container."""
    return _run([sys.executable, "-c", _WITHOUT_CHOWN, _PRELUDE + code], folder)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment(), check=False
    )
    return done.returncode, done.stdout + done.stderr
