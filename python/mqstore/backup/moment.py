"""A moment of a backup: the snapshots that show it, and the files of a store that it has."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import mqstore
from mqstore import _native
from mqstore.backup.small_files import OFFSET_FILES, QUEUES, within
from mqstore.backup.snapshot import (
    File,
    Loaded,
    Snapshot,
    ids,
    load,
    log_files,
    log_name,
    newest,
    ranges_of,
    same_bytes,
    shown,
    time_ms_of,
)
from mqstore.backup.source import ENTRY_BYTES, HEADER_BYTES, cut_header, overlay
from mqstore.backup.target import existing, json_bytes, object_name, target_of
from mqstore.errors import MessageNotFoundError, OffsetOutOfRangeError, StoreError, checked
from mqstore.files.remote_path import RemotePath

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from mqstore.backup.snapshot import Range
    from mqstore.backup.target import Target
    from mqstore.files.object_cache import Parts, State
    from mqstore.files.remote import IoCounts


_CLOCK_MS = 60_000
"""Store times so far behind the snapshot that has them are believed."""
# Names for annotations in a class that has a method ``list``.
_Listed: TypeAlias = "list[tuple[str, int, str | None, int]]"
SETTINGS = "config/mqstore.json"
_MOST_BYTES = 64 << 20
_AT_ONCE = 4
_QUEUES = ("consumequeue/", "batchconsumequeue/")


@checked
def snapshots(
    target: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> list[Snapshot]:
    """Returns the snapshots of a backup, oldest first.

    Args:
        target: The backup: a folder or a URL.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: There is no backup.
        CorruptionError: A snapshot cannot be read; ``mqstore.check_backup`` reports all.
        UnsupportedError: The backup's format is newer than this mqstore.
        StoreIOError: An object cannot be read.
    """
    found = existing(target_of(target, storage_options))
    several: list[Snapshot] = []
    for name in ids(found):
        with contextlib.suppress(MessageNotFoundError):  # pruned meanwhile
            several.append(load(found, name).snapshot)
    return several


def newest_snapshot(
    target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Snapshot | None:
    """The newest snapshot of a backup; ``None`` without one."""
    loaded = newest(existing(target_of(target, storage_options)))
    return None if loaded is None else loaded.snapshot


def backup_path(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    at: datetime | int | None,
    snapshot: str | None,
) -> RemotePath:
    """The files of a store at a moment of a backup; arguments as of ``mqstore.open``."""
    target = existing(target_of(path, storage_options or None))
    return files_at(target, at=at, snapshot=snapshot).path()


def files_at(
    target: Target,
    *,
    at: datetime | int | None = None,
    snapshot: str | None = None,
    to_offset: int | None = None,
) -> BackupFiles:
    """The files of a store at a moment, as ``mqstore.restore`` chooses it.

    Raises:
        MessageNotFoundError: There is no such snapshot, or all messages are later than `at`.
        OffsetOutOfRangeError: The backup does not reach `to_offset`.
        ValueError: More than one of them.
    """
    if sum(given is not None for given in (at, snapshot, to_offset)) > 1:
        raise ValueError("at, snapshot, to_offset: expected one of them, got several")
    known = ids(target)
    if snapshot is not None:
        return BackupFiles(target, _load(target, snapshot, known))
    if not known:
        raise MessageNotFoundError(
            f"snapshot: {target.url} has none yet: mqstore sync STORE TARGET"
        )
    if at is not None:
        return _at_time(target, known, _native._time_ms(at))  # noqa: SLF001 - our own
    last = _load(target, known[-1], known)
    if to_offset is None or to_offset == last.snapshot.end_offset:
        return BackupFiles(target, last)
    return _to_offset(target, known, last, to_offset)


def _load(target: Target, name: str, known: Sequence[str]) -> Loaded:
    """A snapshot without files that the store had deleted before the oldest one's day."""
    loaded = load(target, name)
    loaded.files = shown(loaded.files, known[0])
    return loaded


def _at_time(target: Target, known: list[str], at_ms: int) -> BackupFiles:
    earlier = [name for name in known if time_ms_of(name) <= at_ms]
    later = known[len(earlier) :]
    before = _load(target, earlier[-1], known) if earlier else None
    if not later and before is not None:
        return BackupFiles(target, before)
    after = _load(target, later[0], known)
    timeline = after.snapshot.timeline
    is_fork = before is not None and before.snapshot.timeline != timeline
    if before is None:
        start = min(log_files(after.files), default=0)
    else:
        start = _fork_of(target, before, after) if is_fork else before.snapshot.end_offset
    cut = _first_later(target, after, start, at_ms)
    for name in later[1:]:
        following = _load(target, name, known) if cut == after.snapshot.end_offset else None
        # Where a clock was set back, a later snapshot too may have records of before.
        if following is None or following.snapshot.timeline != timeline:
            break
        after, cut = following, _first_later(target, following, cut, at_ms)
    if before is None and cut <= start:
        first = after.snapshot
        text = f"at: expected a time that {target.url} reaches back to, got an earlier one"
        raise MessageNotFoundError(f"{text}; its first snapshot is {first.id} of {first.time}")
    if before is not None and is_fork and cut <= start:
        return BackupFiles(target, before)  # the log was cut after that time
    return BackupFiles(target, after, cut, before)


def _fork_of(target: Target, before: Loaded, after: Loaded) -> int:
    """Where the logs of two snapshots differ; timelines between them may have been pruned."""
    views = [BackupFiles(target, one) for one in (before, after)]
    files = log_files(after.files)
    for at, kept in sorted(log_files(before.files).items()):
        there = files.get(at)
        if there is None:
            return min(at, before.snapshot.end_offset)
        if (kept.manifest, kept.ranges) == (there.manifest, there.ranges):
            continue
        same = {*ranges_of(target, there)}
        for one in ranges_of(target, kept):
            if one not in same:
                was, now = (view.read(log_name(at), one.begin, one.end) for view in views)
                if was != now:
                    return at + one.begin + same_bytes(was, now)
    return before.snapshot.end_offset


def _first_later(target: Target, after: Loaded, start: int, at_ms: int) -> int:
    """Where the first record begins that was stored after a time."""
    most_ms = after.snapshot.time_ms + _CLOCK_MS
    with mqstore.open(BackupFiles(target, after).path()) as store:
        begin = max((at for at in log_files(after.files) if at <= start), default=start)
        for message in store.scan(
            # A fork may lie within a record.
            start_physical_offset=start if after.snapshot.fork_offset is None else begin,
            begin_ms=at_ms + 1,
            on_error="skip",
            decompress=False,
        ):
            is_new = message.physical_offset + message.store_size > start
            if is_new and message.store_timestamp_ms <= most_ms:
                return message.physical_offset
        return store.max_physical_offset


def _to_offset(target: Target, known: list[str], last: Loaded, to_offset: int) -> BackupFiles:
    reached: Loaded | None = None
    end = last.snapshot.end_offset
    for name in reversed(known):
        found = _load(target, name, known)
        if found.snapshot.timeline != last.snapshot.timeline:
            break
        if found.snapshot.end_offset <= to_offset:
            reached = found
            break
        last = found
    begin = min(log_files(last.files), default=last.snapshot.begin_offset)
    if not begin <= to_offset <= end:
        text = f"to_offset: expected {begin} to {end}, got {to_offset}; nothing was restored"
        raise OffsetOutOfRangeError(text, to_offset, begin, end)
    start = reached.snapshot.end_offset if reached else None
    with mqstore.open(BackupFiles(target, last).path()) as store:
        cut = start if start is not None else store.min_physical_offset
        for message in store.scan(
            start_physical_offset=cut, stop_physical_offset=to_offset, on_error="skip"
        ):
            if message.physical_offset + message.store_size > to_offset:
                break
            cut = message.physical_offset + message.store_size
    return BackupFiles(target, last, cut, reached)


def _is_small(name: str) -> bool:
    """Whether a file is kept as a whole."""
    return "/" not in name or name.startswith(("config/", "mqstore."))


def _width(name: str, file: File) -> int:
    """Bytes of an entry of a queue's file."""
    return int(file.header or QUEUES[name.partition("/")[0]])


class BackupFiles:
    """Files composed of ranges of objects.

    The extension calls ``list`` and ``ranges``, as those of ``mqstore.files.remote``. With a `cut`
    the log ends at that physical offset, and configuration and offsets are those of `before`.

    Attributes:
        made: Content of files that was made for their readers.
    """

    def __init__(
        self, target: Target, loaded: Loaded, cut: int | None = None, before: Loaded | None = None
    ) -> None:
        self.url = target.url
        self.failed: tuple[int, StoreError | None] = (0, None)
        self.cut = cut
        self.loaded = loaded
        self._target = target
        self._table_end = HEADER_BYTES + 4 * int(loaded.settings.get("max_hash_slot_num", 0))
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        self._ranges: dict[str, Sequence[Range]] = {}
        self._tables: dict[str, bytes] = {}
        self.made: dict[str, bytes] = {}
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
        self.made[name] = content
        self.files[name] = File(len(content), len(content))

    def list(self) -> _Listed:
        """Each file: its path, length, what changes with its content, and time in ms."""
        time_ms = self.loaded.snapshot.time_ms
        # A store without a message has this folder, too.
        return [
            ("commitlog/", 0, None, time_ms),
            *(
                (name, file.length, f"{file.end} {file.crc} {file.header}", time_ms)
                for name, file in self.files.items()
            ),
        ]

    def ranges(self, state: State, parts: Parts, _ahead: object = ()) -> Sequence[bytes]:
        """The bytes of parts of a file."""
        name = state[0]
        try:
            if name not in self.made:
                wanted = (one.digest for part in parts for one in self._between(name, *part))
                missing = [o for o in dict.fromkeys(wanted) if o not in self._objects]
                self._take(missing[:_AT_ONCE])  # the first of all parts at once
            return [self.read(name, begin, end) for begin, end in parts]
        except StoreError as error:
            self.failed = (self.failed[0] + 1, error)
            raise

    def read(self, name: str, begin: int, end: int) -> bytes:
        """The bytes of a file from `begin` to before `end`."""
        if name in self.made:
            return self.made[name][begin:end]
        if name.startswith("index/"):
            return self._index(name, begin, end)
        if self.cut is not None and name.startswith("commitlog/"):
            last = max(begin, min(end, self.cut - int(name[10:])))
            return self._composed(name, begin, last) + bytes(end - last)
        if self.cut is not None and name.startswith(_QUEUES):
            return self._queue(name, begin, end)
        return self._composed(name, begin, end)

    def _cut(self, cut: int, before: Loaded | None) -> None:
        """Leaves out files behind the log's end, and takes configuration from before."""
        here, small = self.loaded.snapshot, (before or self.loaded)
        has_own = before is not None and before.snapshot.end_offset <= cut
        has_own = has_own and small.snapshot.timeline == here.timeline
        empty: list[tuple[str, ...]] = []
        for name, file in list(self.files.items()):
            if name.startswith("index/"):
                header = bytes.fromhex(file.header)
                made = cut_header(header, partial(self._entries, name), cut)
                if not any(made):
                    del self.files[name]
                elif made != header:
                    self.files[name] = replace(file, header=made.hex(), crc=0)
                    self._tables[name] = b""
            elif name.startswith(_QUEUES):
                # One that had an entry before has it still.
                is_known = has_own and name in small.files
                if not is_known and not any(self._queue(name, 0, _width(name, file))):
                    del self.files[name]
                    empty.append(tuple(name.split("/")[1:3]))
            elif _is_small(name) or (name.startswith("commitlog/") and 0 < int(name[10:]) >= cut):
                del self.files[name]
        for name, file in small.files.items():
            # Both may lead beyond the log of an earlier moment.
            if _is_small(name) and (has_own or name not in ("checkpoint", "mqstore.mark")):
                self.files[name] = file
        if not has_own:
            self._clamp(empty)

    def _clamp(self, empty: Iterable[tuple[str, ...]]) -> None:
        """Gives no group and no delay level an offset beyond its queue."""
        names = [name for name in OFFSET_FILES if name in self.files]
        offsets = {name: self.read(name, 0, self.files[name].end) for name in names}
        with mqstore.open(self.path()) as store:
            for name, content in within(offsets, store, empty).items():
                self._make(name, content)

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
        found |= zip(missing, self._target.objects(missing), strict=True)
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
                    raise self._target.damaged(object_name(one.digest), *wrong)
                overlay(out, begin, one.begin, memoryview(content)[one.place : last])
        return bytes(out)

    def _queue(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of a queue's file without entries that lead beyond the log's end."""
        file = self.files[name]
        width = _width(name, file)
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
