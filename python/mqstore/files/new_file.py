"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
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
    """
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
