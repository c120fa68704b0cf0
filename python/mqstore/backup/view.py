"""A snapshot as the files of a store, for the extension to read."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from mqstore import _native
from mqstore.backup.offsets import OFFSET_FILES, within
from mqstore.backup.snapshot import BATCH, File, Loaded, ranges_of
from mqstore.backup.source import ENTRY_BYTES, HEADER_BYTES, cut_header
from mqstore.backup.target import damaged, get_objects, json_bytes, object_name
from mqstore.errors import StoreError
from mqstore.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqstore.backup.snapshot import Range
    from mqstore.backup.target import Target
    from mqstore.files.object_cache import State
    from mqstore.files.remote import IoCounts


# Names for annotations in a class that has a method ``list``.
_Listed: TypeAlias = "list[tuple[str, int, str | None, int]]"
_Contents: TypeAlias = "list[bytes]"
SETTINGS = "config/mqstore.json"
_MOST_BYTES = 64 << 20
_AT_ONCE = 4


def _is_small(name: str) -> bool:
    """Whether a file is kept as a whole."""
    return "/" not in name or name.startswith(("config/", "mqstore."))


class BackupFiles:
    """Files composed of ranges of objects.

    The extension calls ``list`` and ``ranges``, as those of ``mqstore.files.remote``.

    Args:
        target: The backup.
        loaded: The snapshot.
        cut: Physical offset at which the log ends; ``None`` for the snapshot's own.
        small: The snapshot whose configuration and offsets count; ``None`` for the same one.
    """

    def __init__(
        self, target: Target, loaded: Loaded, cut: int | None = None, small: Loaded | None = None
    ) -> None:
        self.url = target.url
        self.cache = None
        self.failed: tuple[int, StoreError | None] = (0, None)
        self.cut = cut
        self.loaded = loaded
        self._target = target
        self._slots = int(loaded.settings.get("max_hash_slot_num", 0))
        self._lock = threading.Lock()
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._ranges: dict[str, tuple[Sequence[Range], Sequence[int]]] = {}
        self._tables: dict[str, bytes] = {}
        self._made: dict[str, bytes] = {}
        self.configuration = (loaded if small is None else small).snapshot.id
        self.files = dict(loaded.files)
        if cut is not None:
            self._cut(cut, loaded if small is None else small, has_own=small is not None)

    @property
    def counts(self) -> IoCounts:
        """Requests and bytes so far."""
        return self._target.counts

    def path(self) -> RemotePath:
        """The root, for readers of a store."""
        settings = json_bytes({"format_version": 1, "settings": self.loaded.settings})
        if SETTINGS not in self.files and self.loaded.settings:
            self.make(SETTINGS, settings)
        return RemotePath(self.url, _native._RemoteStorage(self.url, self), self)  # type: ignore[arg-type]  # noqa: SLF001

    def make(self, name: str, content: bytes) -> None:
        """Gives a file other content."""
        self._made[name] = content
        self.files[name] = File(len(content), len(content))

    def has_made(self, name: str) -> bool:
        """Whether a file has content that was made for its readers."""
        return name in self._made

    def list(self) -> _Listed:
        """Each file: its path, length, what changes with its content, and time in ms."""
        time_ms = self.loaded.snapshot.time_ms
        return [
            (name, file.length, f"{file.end} {file.crc} {file.header}", time_ms)
            for name, file in self.files.items()
        ]

    def ranges(
        self, state: State, parts: Sequence[tuple[int, int]], _ahead: object = ()
    ) -> Sequence[bytes]:
        """The bytes of parts of a file."""
        key = state[0]
        try:
            self._fetch(key, parts)
            return [self.read(key, begin, end) for begin, end in parts]
        except StoreError as error:
            self.failed = (self.failed[0] + 1, error)
            raise

    def read(self, name: str, begin: int, end: int) -> bytes:
        """The bytes of a file from `begin` to before `end`."""
        if name in self._made:
            return self._made[name][begin:end]
        if name.startswith("index/"):
            return self._index(name, begin, end)
        if self.cut is not None and name.startswith("commitlog/"):
            last = max(begin, min(end, self.cut - int(name[10:])))
            return self._composed(name, begin, last) + bytes(end - last)
        if self.cut is not None and name.startswith(("consumequeue/", "batchconsumequeue/")):
            return self._queue(name, begin, end)
        return self._composed(name, begin, end)

    def _cut(self, cut: int, small: Loaded, *, has_own: bool) -> None:
        """Leaves out files behind the log's end, and takes configuration from elsewhere."""
        for name, file in list(self.files.items()):
            is_log = name.startswith("commitlog/")
            first = int(name[10:]) if is_log else 0
            if name.startswith("index/"):
                table = HEADER_BYTES + 4 * self._slots

                def entries(first: int, last: int, name: str = name, table: int = table) -> bytes:
                    return self._composed(
                        name, table + ENTRY_BYTES * first, table + ENTRY_BYTES * last
                    )

                header = bytes.fromhex(file.header)
                made = cut_header(header, entries, cut)
                if not any(made):
                    del self.files[name]
                elif made != header:
                    self.files[name] = replace(file, header=made.hex(), crc=0)
                    self._tables[name] = b""
            elif (is_log and first >= cut and first) or _is_small(name):
                del self.files[name]
        was = small.snapshot
        has_own = has_own and was.end_offset <= cut
        has_own = has_own and was.timeline == self.loaded.snapshot.timeline
        for name, file in small.files.items():
            # Both may lead beyond the log of an earlier moment.
            if _is_small(name) and (has_own or name not in ("checkpoint", "mqstore.mark")):
                self.files[name] = file

    def clamp(self) -> None:
        """Gives no group and no delay level an offset beyond its queue."""
        import mqstore

        with mqstore.open(self.path()) as store:
            ends = {(q.topic, str(q.queue_id)): q.max_offset for q in store.queues()}
        for name in OFFSET_FILES:
            if name in self.files:
                self.make(name, within(self.read(name, 0, self.files[name].end), ends))

    def _known(self, name: str) -> tuple[Sequence[Range], Sequence[int]]:
        if name not in self._ranges:
            ranges = ranges_of(self._target, self.files[name])
            self._ranges[name] = ranges, [ref[0] for ref in ranges]
        return self._ranges[name]

    def _between(self, name: str, begin: int, end: int) -> Sequence[Range]:
        ranges, begins = self._known(name)
        first = max(0, bisect_right(begins, begin) - 1)
        last = bisect_right(begins, end - 1)
        return [ref for ref in ranges[first:last] if ref[0] + ref[1] > begin]

    def _fetch(self, name: str, parts: Sequence[tuple[int, int]]) -> None:
        """Fetches the first objects of parts of a file at once."""
        if name in self._made:
            return
        wanted = {ref[2]: None for begin, end in parts for ref in self._between(name, begin, end)}
        missing = [digest for digest in wanted if digest not in self._objects]
        self._take(missing[:_AT_ONCE])

    def _take(self, digests: Sequence[str]) -> _Contents:
        with self._lock:
            found = [self._objects.get(digest) for digest in digests]
        pairs = zip(digests, found, strict=True)
        missing = list(dict.fromkeys(d for d, content in pairs if content is None))
        fetched = dict(zip(missing, get_objects(self._target, missing), strict=True))
        with self._lock:
            for digest in digests:
                if digest in fetched:
                    self._objects[digest] = fetched[digest]
                elif digest in self._objects:
                    self._objects.move_to_end(digest)
            while len(self._objects) > 1 and sum(map(len, self._objects.values())) > _MOST_BYTES:
                self._objects.popitem(last=False)
        return [
            fetched[digest] if content is None else content
            for digest, content in zip(digests, found, strict=True)
        ]

    def _composed(self, name: str, begin: int, end: int) -> bytes:
        out = bytearray(max(0, end - begin))
        parts = self._between(name, begin, end)
        for number, (at, size, digest, place) in enumerate(parts):
            if number % _AT_ONCE == 0:
                contents = self._take([ref[2] for ref in parts[number : number + _AT_ONCE]])
            content = contents[number % _AT_ONCE]
            first, last = max(at, begin), min(at + size, end)
            part = content[place + first - at : place + last - at]
            if len(part) < last - first:
                wrong = f"{place + size} bytes", f"{len(content)} bytes"
                raise damaged(self._target, object_name(digest), *wrong)
            out[first - begin : first - begin + len(part)] = part
        return bytes(out)

    def _queue(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of a queue's file without entries that lead beyond the log's end."""
        file = self.files[name]
        width = 46 if file.header == BATCH or name.startswith("batch") else 20
        first = begin - begin % width
        last = min(-(-end // width) * width, file.end)
        content = self._composed(name, first, max(first, last))
        low, high = 0, len(content) // width
        while low < high:
            middle = (low + high) // 2
            if struct.unpack_from(">q", content, middle * width)[0] >= (self.cut or 0):
                high = middle
            else:
                low = middle + 1
        kept = content[: low * width] if low < len(content) // width else content
        return kept[begin - first : end - first].ljust(end - begin, b"\0")

    def _index(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of an index file: its header, slots that its entries give, and these."""
        file = self.files[name]
        header = bytes.fromhex(file.header)
        table = HEADER_BYTES + 4 * self._slots
        ranges = self._known(name)[0]
        kept = sum(ranges[-1][:2]) - table if ranges else 0
        count = min(int.from_bytes(header[36:40], "big", signed=True), kept // ENTRY_BYTES)
        last = max(begin, min(end, table + ENTRY_BYTES * count))
        content = self._composed(name, begin, last).ljust(end - begin, b"\0")
        if begin < HEADER_BYTES:
            content = (header + bytes(end))[begin : min(end, HEADER_BYTES)] + content[
                HEADER_BYTES - begin :
            ]
        is_stored = file.manifest and name not in self._tables
        if begin < table and end > HEADER_BYTES and not is_stored:
            slots = self._table(name, count)
            first, last = max(begin, HEADER_BYTES), min(end, table)
            made = slots[first - HEADER_BYTES : last - HEADER_BYTES]
            content = content[: first - begin] + made + content[last - begin :]
        return content

    def _table(self, name: str, count: int) -> bytes:
        """The slots of an index file, made from its entries."""
        if not self._tables.get(name):
            table = bytes(4 * self._slots)
            above = HEADER_BYTES + len(table)
            most = (4 << 20) // ENTRY_BYTES
            for first in range(1, count, most):
                last = min(first + most, count)
                entries = self._composed(
                    name, above + ENTRY_BYTES * first, above + ENTRY_BYTES * last
                )
                table = _native._index_slots(table, entries, first)  # noqa: SLF001
            self._tables[name] = table
        return self._tables[name]
