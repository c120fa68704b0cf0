"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def new_file(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Gives a temporary file to be written, which gets its name when the block ends.

    Raises:
        FileExistsError: There is something of that name, and `overwrite` is false.
        FileNotFoundError: Its folder is not there.
    """
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
