"""A folder that appears under its name only when it is whole."""

from __future__ import annotations

import errno
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.errors import StoreIOError
from mqstore.files.durable import sync

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which is renamed to `target` in the end and gone after an error.

    Raises:
        StoreIOError: Something is at `target` already, or the system refuses something.
    """
    if target.is_symlink() or (
        target.exists() and (not target.is_dir() or next(target.iterdir(), None) is not None)
    ):
        text = f"create {target}: something is there already; give the name of a new folder"
        raise StoreIOError(text, errno.EEXIST, str(target), "create")
    above = target.absolute().parent
    staging: Path | None = None
    try:
        above.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=above))
        yield staging
        for path in [*staging.rglob("*"), staging]:
            sync(path)
        staging.chmod(0o750)
        staging.rename(target)
        sync(above)
    except StoreIOError:
        raise
    except OSError as error:
        shown = error.filename or target
        text = f"write {shown}: {error.strerror or error}"
        raise StoreIOError(text, error.errno, str(target), "write") from error
    finally:
        if staging is not None and staging.exists():
            shutil.rmtree(staging, ignore_errors=True)
