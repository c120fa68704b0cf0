"""A snapshot as the files of a store, for the extension to read."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from mqstore import _native
from mqstore.backup.small_files import OFFSET_FILES, within
from mqstore.backup.snapshot import BATCH, File, Loaded, ranges_of
from mqstore.backup.source import ENTRY_BYTES, HEADER_BYTES, cut_header, overlay
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
        before: The snapshot before the cut, whose configuration and offsets count then.
    """

    def __init__(
        self, target: Target, loaded: Loaded, cut: int | None = None, before: Loaded | None = None
    ) -> None:
        self.url = target.url
        self.cache = None
        self.failed: tuple[int, StoreError | None] = (0, None)
        self.cut = cut
        self.loaded = loaded
        self._target = target
        self._table_end = HEADER_BYTES + 4 * int(loaded.settings.get("max_hash_slot_num", 0))
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        self._ranges: dict[str, Sequence[Range]] = {}
        self._tables: dict[str, bytes] = {}
        self._made: dict[str, bytes] = {}
        self.configuration = (before or loaded).snapshot.id
        self.files = dict(loaded.files)
        if cut is not None:
            self._cut(cut, before)

    @property
    def counts(self) -> IoCounts:
        """Requests and bytes so far."""
        return self._target.counts

    def path(self) -> RemotePath:
        """The root, for readers of a store."""
        settings = json_bytes({"format_version": 1, "settings": self.loaded.settings})
        if SETTINGS not in self.files and self.loaded.settings:
            self._make(SETTINGS, settings)
        return RemotePath(self.url, _native._RemoteStorage(self.url, self), self)  # type: ignore[arg-type]  # noqa: SLF001

    def _make(self, name: str, content: bytes) -> None:
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
        name = state[0]
        try:
            if name not in self._made:
                wanted = (one.digest for part in parts for one in self._between(name, *part))
                missing = [o for o in dict.fromkeys(wanted) if o not in self._objects]
                self._take(missing[:_AT_ONCE])  # the first of all parts at once
            return [self.read(name, begin, end) for begin, end in parts]
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

    def _cut(self, cut: int, before: Loaded | None) -> None:
        """Leaves out files behind the log's end, and takes configuration from before."""
        for name, file in list(self.files.items()):
            if name.startswith("index/"):
                header = bytes.fromhex(file.header)
                made = cut_header(header, partial(self._entries, name), cut)
                if not any(made):
                    del self.files[name]
                elif made != header:
                    self.files[name] = replace(file, header=made.hex(), crc=0)
                    self._tables[name] = b""
            elif _is_small(name) or (name.startswith("commitlog/") and 0 < int(name[10:]) >= cut):
                del self.files[name]
        here, small = self.loaded.snapshot, (before or self.loaded)
        has_own = before is not None and before.snapshot.end_offset <= cut
        has_own = has_own and small.snapshot.timeline == here.timeline
        for name, file in small.files.items():
            # Both may lead beyond the log of an earlier moment.
            if _is_small(name) and (has_own or name not in ("checkpoint", "mqstore.mark")):
                self.files[name] = file
        if not has_own:
            self._clamp()

    def _clamp(self) -> None:
        """Gives no group and no delay level an offset beyond its queue."""
        import mqstore

        with mqstore.open(self.path()) as store:
            ends = {(q.topic, str(q.queue_id)): q.max_offset for q in store.queues()}
        for name in OFFSET_FILES:
            if name in self.files:
                self._make(name, within(self.read(name, 0, self.files[name].end), ends))

    def _known(self, name: str) -> Sequence[Range]:
        if name not in self._ranges:
            self._ranges[name] = ranges_of(self._target, self.files[name])
        return self._ranges[name]

    def _between(self, name: str, begin: int, end: int) -> Sequence[Range]:
        ranges, begin_of = self._known(name), attrgetter("begin")
        first = max(0, bisect_right(ranges, begin, key=begin_of) - 1)
        last = bisect_right(ranges, end - 1, key=begin_of)
        return [one for one in ranges[first:last] if one.end > begin]

    def _take(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Objects by digest; those used last stay in memory."""
        with self._lock:
            found = {o: self._objects[o] for o in digests if o in self._objects}
        missing = [digest for digest in dict.fromkeys(digests) if digest not in found]
        found |= zip(missing, get_objects(self._target, missing), strict=True)
        with self._lock:
            for digest, content in found.items():
                self._objects.pop(digest, None)
                self._objects[digest] = content
            while len(self._objects) > 1 and sum(map(len, self._objects.values())) > _MOST_BYTES:
                del self._objects[next(iter(self._objects))]
        return found

    def _composed(self, name: str, begin: int, end: int) -> bytes:
        out = bytearray(max(0, end - begin))
        parts = self._between(name, begin, end)
        for number in range(0, len(parts), _AT_ONCE):
            several = parts[number : number + _AT_ONCE]
            contents = self._take([one.digest for one in several])
            for one in several:
                content, last = contents[one.digest], one.place + one.size
                if len(content) < last:
                    wrong = f"{last} bytes", f"{len(content)} bytes"
                    raise damaged(self._target, object_name(one.digest), *wrong)
                overlay(out, begin, one.begin, memoryview(content)[one.place : last])
        return bytes(out)

    def _queue(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of a queue's file without entries that lead beyond the log's end."""
        file = self.files[name]
        width = 46 if file.header == BATCH or name.startswith("batch") else 20
        first = begin - begin % width
        last = min(-(-end // width) * width, file.end)
        content = self._composed(name, first, max(first, last))

        def offset(number: int) -> int:
            at = number * width
            return int.from_bytes(content[at : at + 8], "big", signed=True)

        count = len(content) // width
        kept = bisect_left(range(count), self.cut or 0, key=offset)
        if kept < count:
            content = content[: kept * width]
        return content[begin - first : end - first].ljust(end - begin, b"\0")

    def _entries(self, name: str, first: int, last: int) -> bytes:
        """Entries of an index file from one number to before another."""
        above = self._table_end
        return self._composed(name, above + ENTRY_BYTES * first, above + ENTRY_BYTES * last)

    def _index(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of an index file: its header, slots that its entries give, and these."""
        file, table = self.files[name], self._table_end
        header = bytes.fromhex(file.header)
        ranges = self._known(name)
        kept = ranges[-1].end - table if ranges else 0
        count = min(int.from_bytes(header[36:40], "big", signed=True), kept // ENTRY_BYTES)
        last = max(begin, min(end, table + ENTRY_BYTES * count))
        content = bytearray(self._composed(name, begin, last).ljust(end - begin, b"\0"))
        overlay(content, begin, 0, header)
        is_stored = file.manifest and name not in self._tables
        if begin < table and end > HEADER_BYTES and not is_stored:
            overlay(content, begin, HEADER_BYTES, self._table(name, count))
        return bytes(content)

    def _table(self, name: str, count: int) -> bytes:
        """The slots of an index file, made from its entries."""
        if not self._tables.get(name):
            table = bytes(self._table_end - HEADER_BYTES)
            most = (4 << 20) // ENTRY_BYTES
            for first in range(1, count, most):
                entries = self._entries(name, first, min(first + most, count))
                table = _native._index_slots(table, entries, first)  # noqa: SLF001
            self._tables[name] = table
        return self._tables[name]
