"""Files of a live store, read beside its writer without a lock.

Read-ahead is off, and pages that were read leave the page cache.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from typing import TYPE_CHECKING, Self

from mqstore.errors import StoreError, io_errors
from mqstore.files.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


PIECE = 8 << 20
"""Most bytes of an object."""
CRC_BYTES = 4096
_CHUNK = 256 << 10
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_ENTRIES = 200
HEADER_BYTES, ENTRY_BYTES = _HEADER.size, _ENTRY.size


class SourceFile:
    """A file of a store; its path may be removed meanwhile."""

    def __init__(self, path: Path, pace: Pace | None = None) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags | getattr(os, "O_NOATIME", 0))
        except FileNotFoundError:
            raise
        except OSError:  # another user's file has an access time
            with io_errors("open", path):
                self._file = os.open(path, flags)
        self.path, self._pace = path, pace or Pace(None, None)
        self.length = os.fstat(self._file).st_size
        self._advise(0, 0, "POSIX_FADV_RANDOM")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._advise(0, 0, "POSIX_FADV_DONTNEED")
        os.close(self._file)

    def _advise(self, begin: int, count: int, advice: str) -> None:
        if hasattr(os, advice):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._file, begin, count, getattr(os, advice))

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from `begin` to before `end`, fewer where the file ends."""
        self._pace.wait(max(0, end - begin))
        content = b""
        while begin + len(content) < end:
            with io_errors("read", self.path):
                more = os.pread(self._file, end - begin - len(content), begin + len(content))
            if not more:
                break
            content = content + more if content else more
        if len(content) >= _CHUNK:
            self._advise(begin, len(content), "POSIX_FADV_DONTNEED")
        return content

    def crc(self, end: int) -> int:
        """CRC-32 of the bytes before `end`."""
        return zlib.crc32(self.read(max(0, end - CRC_BYTES), end))

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Parts of a range with their positions, without zeros at their ends."""
        while (begin := self._data(begin)) < end:
            to = min(end, (begin // PIECE + 1) * PIECE)
            content = self.read(begin, to)
            if len(content) < to - begin:
                wrong = f"expected {to - begin} bytes, found {len(content)}"
                text = f"{self.path}, byte {begin}: {wrong}"
                raise StoreError(f"{text}: the file was cut; no snapshot was written: sync again")
            if content := content.rstrip(b"\0"):
                yield begin, content
            begin = to

    def written(self, begin: int, *, has_data: bool) -> bytes:
        """The bytes written from `begin` on, up to zeros; `has_data`: whether some lie before."""
        parts = []
        at = begin
        while (there := self._data(at)) < self.length:
            parts.append(bytes(there - at))
            chunk = self.read(there, min(there + _CHUNK, self.length))
            if not chunk or (has_data and not chunk.rstrip(b"\0")):
                break
            has_data = has_data or bool(chunk.rstrip(b"\0"))
            parts.append(chunk)
            at = there + len(chunk)
        return b"".join(parts).rstrip(b"\0")

    def _data(self, begin: int) -> int:
        """Where data begins, from a position on; the file's length where none is."""
        try:
            return os.lseek(self._file, begin, os.SEEK_DATA)
        except OSError as error:
            return self.length if error.errno == errno.ENXIO else begin
        except AttributeError:
            return begin


def overlay(content: bytearray, begin: int, at: int, part: bytes | memoryview) -> None:
    """Puts a part of a file into content of it that begins elsewhere, where both meet."""
    first, last = max(at, begin), min(at + len(part), begin + len(content))
    if first < last:
        content[first - begin : last - begin] = part[first - at : last - at]


def cut_entries(content: bytes, size: int, end: int) -> bytes:
    """Entries of a queue without those at the end that lead beyond the log's end."""
    content = content.ljust(-(-len(content) // size) * size, b"\0")
    for at in range(len(content) - size, -1, -size):
        offset, length = struct.unpack_from(">qi", content, at)
        if offset >= 0 < length and offset + length <= end:
            return content[: at + size]
    return b""


def cut_header(header: bytes, entries: Callable[[int, int], bytes], end: int) -> bytes:
    """The header of an index file as if it ended before a physical offset.

    `entries` gives the bytes of entries from one number to before another; they begin with 1.
    """
    begin_ms, end_ms, first, last, slots, count = _HEADER.unpack(header)
    is_cut = False
    while count > 1:
        at = max(1, count - _ENTRIES)
        block = entries(at, count).ljust(ENTRY_BYTES * (count - at), b"\0")
        for _, last, seconds, previous in reversed(list(_ENTRY.iter_unpack(block))):
            if last < end:
                at_ms = begin_ms + seconds * 1000
                end_ms = at_ms + 999 if is_cut else max(end_ms, at_ms)
                return _HEADER.pack(begin_ms, end_ms, first, last, slots, count)
            is_cut = True
            count -= 1
            slots -= previous == 0
    return bytes(HEADER_BYTES)


def name_of(path: str | Path) -> str:
    """The name that a backup has for a path: it is UTF-8, as the store's are, in any locale."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def path_of(root: Path, name: str) -> Path:
    """The path below a folder of which a backup has the name."""
    return root / os.fsdecode(name.encode("utf-8", "surrogateescape"))


def names_in(folder: Path) -> list[str]:
    """Names in a folder, which may be missing."""
    return [name_of(path.name) for path in folder.iterdir()] if folder.is_dir() else []


def folders_below(root: Path, depth: int) -> Iterable[Path]:
    """Folders so deep below a folder, sorted."""
    found = [root] if root.is_dir() else []
    for _ in range(depth):
        found = [path for folder in found for path in sorted(folder.iterdir()) if path.is_dir()]
    return found
