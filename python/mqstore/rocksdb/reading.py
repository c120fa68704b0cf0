"""Reads the rows of a RocksDB database and changes nothing in its folder."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from mqstore.errors import CorruptionError, StoreIOError, UnsupportedError, damaged, install

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

INSTALL = install("rocksdb")
Row = tuple[str, bytes, bytes]

# Seconds without a byte from the process that reads.
PATIENCE_S = 60.0
# A broker may replace files between listing and opening.
_ATTEMPTS = 3
# A longer file, as one with holes, is linked instead: reading does not change it either.
_COPIED = 1 << 30
_FRAME = struct.Struct(">cII")
# RocketMQ's rows are shorter.
_LONGEST = 64 << 20
_CURRENT = re.compile(rb"MANIFEST-[0-9]{1,20}\n")
_FILE = re.compile(r"[0-9]{6,20}\.(?:sst|log|blob)|MANIFEST-[0-9]+|CURRENT")


class Databases(contextlib.ExitStack):
    """Reads databases for the extension, which has no RocksDB; its block has their folders.

    Args:
        wanted: Whether the broker's settings ask for queues in RocksDB.
    """

    def __init__(self, *, wanted: bool = False) -> None:
        super().__init__()
        self._wanted = wanted

    def is_installed(self) -> bool:
        """Whether databases can be read."""
        return is_installed()

    def is_wanted(self) -> bool:
        """Whether the broker's settings ask for queues in RocksDB."""
        return self._wanted

    def scratch(self) -> str:
        """A new folder, which goes at the end of the block."""
        made = self.enter_context(tempfile.TemporaryDirectory(prefix="mqstore-"))
        return str(Path(made, "queues"))

    def rows(self, folder: str, families: Sequence[str]) -> Iterator[Row]:
        """As ``read_rows``."""
        return read_rows(Path(folder), families)


def is_installed() -> bool:
    """Whether the package that reads RocksDB is there."""
    return find_spec("rocksdict") is not None


def is_database(folder: Path) -> bool:
    """Whether a folder holds a RocksDB database, perhaps with other files."""
    # False where it may not be read: that is a finding of its own.
    return os.path.isfile(folder / "CURRENT")  # noqa: PTH113


def was_database(folder: Path) -> bool:
    """Whether a folder holds a database, or what is left of one."""
    files = _files(folder) if os.path.isdir(folder) else ()  # noqa: PTH112
    return any(name == "CURRENT" or name.startswith("MANIFEST-") for name in files)


def has_rows(folder: Path) -> bool:
    """Whether a database may have rows on disk."""
    files = _files(folder).items()
    return any(name.endswith(".sst") or (name.endswith(".log") and size) for name, size in files)


def read_rows(
    folder: Path,
    families: Sequence[str],
    *,
    prefix: bytes = b"",
    hourly: tuple[Sequence[bytes], tuple[int, int]] = ((), (0, 0)),
) -> Iterator[Row]:
    """Reads the rows of some column families, in their order on disk.

    Checksums are verified. Nothing in the folder is locked, written or created: a broker may run.

    Args:
        folder: The database.
        families: The column families, read in this order; one that is not there has no rows.
        prefix: The first bytes of the keys to read.
        hourly: Of the first family also the rows whose keys begin with 8 bytes, a time, and one of
            these texts; and the first and last of the times.

    Yields:
        Column family, key and value.

    Raises:
        CorruptionError: Damage, naming the file.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    spec = find_spec("rocksdict")
    if spec is None or spec.origin is None or not sys.executable:
        what = "reading RocksDB needs the package rocksdict"
        raise UnsupportedError(f"{folder}: {what}: {INSTALL}", what, str(folder))
    site = str(Path(spec.origin).parents[1])
    command = [sys.executable, "-IS", str(Path(__file__).with_name("_child.py")), site]
    texts, (first, last) = hourly
    wanted = [f"{name}={prefix.hex()}" for name in families]
    wanted += [f"{families[0]}={text.hex()}={first}={last}" for text in texts]
    for attempt in range(_ATTEMPTS):
        listed = _files(folder)
        with tempfile.TemporaryDirectory(prefix="mqstore-") as view:
            try:
                _copy(folder, Path(view), listed)
                frames = _frames([*command, view, *wanted], folder)
                next(frames)
            except (CorruptionError, StoreIOError):
                # It counts only if the files stayed the same meanwhile.
                if attempt + 1 == _ATTEMPTS or _files(folder).keys() == listed.keys():
                    raise
                continue
            with contextlib.closing(frames):
                yield from frames
            return


def _files(folder: Path) -> dict[str, int]:
    """The files of a database and their lengths; links, pipes and folders are none."""
    found = {}
    try:
        for name in sorted(path.name for path in folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(folder / name)
                if S_ISREG(state.st_mode):
                    found[name] = state.st_size
    except OSError as error:
        raise _refused(error, folder, "list") from error
    return found


def _copy(folder: Path, view: Path, files: dict[str, int]) -> None:
    """Makes a folder that RocksDB may open: tables are linked, as they never change."""
    current = b""
    with contextlib.suppress(FileNotFoundError), (folder / "CURRENT").open("rb") as file:
        current = file.read(64)
    if not _CURRENT.fullmatch(current):
        raise _damaged(folder / "CURRENT", "the name of a MANIFEST file", repr(current))
    manifest = current.decode().strip()
    if manifest not in files:
        raise _damaged(folder / manifest, "a file", "none")
    try:
        for name, size in files.items():
            if name.endswith((".sst", ".blob")) or size > _COPIED:
                (view / name).symlink_to((folder / name).absolute())
            elif name.endswith(".log") or name in ("CURRENT", "IDENTITY", manifest):
                shutil.copyfile(folder / name, view / name)
    except OSError as error:
        raise _refused(error, folder, "copy") from error


def _frames(command: list[str], folder: Path) -> Generator[Row]:
    """Runs the process that reads; gives one row for opening, then the rows it reads."""
    process = subprocess.Popen(  # noqa: S603 - this Python and a file of this package
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    pipe = process.stdout.fileno()
    family, pending = "", b""
    head, unpack = _FRAME.size, _FRAME.unpack_from
    try:
        while chunk := _next_bytes(pipe, folder):
            pending += chunk
            at, most = 0, len(pending)
            while most - at >= head:
                kind, key_len, value_len = unpack(pending, at)
                middle = at + head + key_len
                end = middle + value_len
                if end - middle > _LONGEST or key_len > _LONGEST:
                    raise _damaged(folder, "a row", f"one of {end - at} bytes")
                if end > most:
                    break
                key, value = pending[at + head : middle], pending[middle:end]
                at = end
                if kind == b"R" or kind == b"O":
                    yield family, key, value
                elif kind == b"F":
                    family = key.decode()
                elif kind == b"E":
                    raise _rocksdb_error(folder, key.decode(errors="replace"))
                else:
                    return
            pending = pending[at:]
        raise _damaged(folder, "rows", "RocksDB stopped while it read them")
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _next_bytes(pipe: int, folder: Path) -> bytes:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    end = time.monotonic() + PATIENCE_S
    if not poll.poll(max(0, end - time.monotonic()) * 1000):
        raise _damaged(folder, "rows", f"no answer of RocksDB in {PATIENCE_S:.0f} s")
    return os.read(pipe, 1 << 20)


def _rocksdb_error(folder: Path, text: str) -> Exception:
    """The error for RocksDB's own words, with the file that they name."""
    if "No space left" in text or "Too many open files" in text:
        return StoreIOError(f"{folder}: RocksDB: {text}", None, str(folder), "read")
    # A MANIFEST is named beside a table that it lists.
    names = sorted(_FILE.findall(text), key=lambda name: name.startswith("MANIFEST"))
    path = folder / names[0] if names else folder
    first = text.splitlines()[0] if text else "no reason"
    return _damaged(path, "what RocksDB wrote", re.sub(r"/\S*/mqstore-[^/\s]*", str(folder), first))


def _damaged(path: Path, expected: str, found: str) -> CorruptionError:
    advice = (
        "nothing was changed, and messages are still read from the log; make the rows again: "
        "mqstore convert STORE --queues rocksdb --apply"
    )
    return damaged(path, "rocksdb", expected, found, advice)


def _refused(error: OSError, folder: Path, op: str) -> StoreIOError:
    path = error.filename or str(folder)
    return StoreIOError(f"{op} {path}: {error.strerror}", error.errno, os.fsdecode(path), op)
