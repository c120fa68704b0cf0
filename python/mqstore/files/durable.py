"""Durable names of files, and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def sync_up(folder: Path, root: Path) -> None:
    """Makes the names in a folder, and in those above it up to `root`, durable."""
    while True:
        sync(folder)
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def replace(path: Path, text: str) -> None:
    """Writes a file in the place of one that may be there, whole and durable."""
    new = path.with_name(path.name + ".tmp")
    new.write_text(text, encoding="utf-8")
    sync(new)
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Gives a temporary file to be written, which gets its name when the block ends.

    With `overwrite` a link stays, and the file that it leads to is replaced.

    Raises:
        FileExistsError: There is something of that name, and `overwrite` is false.
        FileNotFoundError: Its folder is not there.
        OSError: With `overwrite`: what is there is no file, such as a device.
    """
    if overwrite:
        out = Path(os.path.realpath(out))
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(out.stat().st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", str(out))
    if not out.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder is not there", str(out.parent))
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    temporary = Path(name)
    try:
        os.fchmod(handle, 0o644)
        yield temporary
        os.fsync(handle)
        if overwrite:
            temporary.replace(out)
        else:
            # A link, other than a rename, does not take another file's place.
            out.hardlink_to(temporary)
    finally:
        os.close(handle)
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
