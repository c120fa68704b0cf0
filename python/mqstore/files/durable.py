"""Durable names of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sync_up(folder: Path, root: Path) -> None:
    """Makes the names in a folder, and in those above it up to `root`, durable."""
    while True:
        sync(folder)
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
