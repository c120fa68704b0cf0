"""Snapshots of a backup: which objects are a store's files at a moment.

A snapshot is a small document. It has what changed since a *state*, an object with all files.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore import _native
from mqstore.backup.target import MOST_OBJECT_BYTES, digest_of, json_bytes, object_name, packed
from mqstore.errors import CorruptionError, MessageNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mqstore.backup.target import Target


BATCH = "46"
"""``File.header`` of a file of a queue of batches: the bytes of an entry."""
_COUNTS = ("begin_offset", "end_offset", "flushed_offset", "bytes", "new_bytes")
_MOST_BYTES = 64 << 10
_MOST_OF_FILE = 100
_DOCUMENT = re.compile(r"snapshots/([0-9]{8})/(\1T[0-9]{9}Z-[0-9a-f]{16})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEADER = re.compile(r"[0-9a-f]{80}")
_MOST_SLOTS = 100_000_000
_WRONG = ValueError, LookupError, TypeError, AttributeError, RecursionError


class Range(NamedTuple):
    """A part of a file: its position there, its length, its object and the position in that."""

    begin: int
    size: int
    digest: str
    place: int

    @property
    def end(self) -> int:
        """Behind its last byte in the file."""
        return self.begin + self.size


@dataclass(frozen=True, slots=True)
class File:
    """A file of a store.

    Attributes:
        length: Its length.
        end: Behind the last byte that is kept; zeros follow.
        crc: CRC-32 of up to 4,096 bytes before it.
        ranges: What is kept of it, in order; empty where `manifest` has it.
        manifest: Digest of an object with the ranges.
        header: The header of an index file, in hexadecimal digits; ``BATCH``.
        gone_ms: When a sync first missed it in the store, Unix milliseconds.
    """

    length: int
    end: int = 0
    crc: int = 0
    ranges: tuple[Range, ...] = ()
    manifest: str = ""
    header: str = ""
    gone_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A moment of a store in a backup.

    Attributes:
        id: Its name.
        time: When the log's end was taken, UTC.
        timeline: The log that it belongs to; one that was cut and went on differently has another.
        begin_offset: Physical offset of the first byte that the store had.
        end_offset: Physical offset of the log's end.
        flushed_offset: Up to there the log was known to be durable in the store.
        fork_offset: Physical offset at which the timeline left the one before; ``None`` if it did
            not.
        bytes: Bytes of the store's files that it has.
        new_bytes: Bytes that the sync copied.
        left_out: Files of the store that it lacks, a line for each kind.
        source: The store's path.
        redact: ``"bodies"`` if it has zeros in the place of each body; else ``None``.
    """

    id: str
    time: datetime
    timeline: str
    begin_offset: int
    end_offset: int
    flushed_offset: int
    fork_offset: int | None
    bytes: int
    new_bytes: int
    left_out: tuple[str, ...]
    source: str
    redact: str | None = None

    @property
    def time_ms(self) -> int:
        """The time in Unix milliseconds."""
        return round(self.time.timestamp() * 1000)


@dataclass(slots=True)
class Loaded:
    """A snapshot with its files.

    Attributes:
        snapshot: The snapshot; its `id` is empty until it is written.
        files: By path.
        settings: Settings that the files do not prove.
        base: Digest of the state.
        state: The state's files.
        objects: Digests of the state's objects, as it numbers them.
        clock_ms: What the clock said; the snapshot's time is later after one that was ahead.
    """

    snapshot: Snapshot
    files: dict[str, File]
    settings: dict[str, Any] = field(default_factory=dict)
    base: str = ""
    state: Mapping[str, File] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    clock_ms: int = 0


def document_name(snapshot_id: str) -> str:
    """Name of a snapshot's document."""
    return f"snapshots/{snapshot_id[:8]}/{snapshot_id}.json"


def days(target: Target) -> list[str]:
    """Days that may have snapshots, as YYYYMMDD, oldest first."""
    return [day for day in target.folders("snapshots") if _is_time(f"{day}T000000000Z")]


def ids(target: Target, day: str = "") -> list[str]:
    """Ids of all snapshots, or of those of a day; oldest first."""
    found = target.names(f"snapshots/{day}" if day else "snapshots")
    documents = (_DOCUMENT.fullmatch(name) for name, *_ in found)
    return sorted(match[2] for match in documents if match and _is_time(match[2]))


def newest_first(target: Target, of: Sequence[str]) -> Iterator[str]:
    """Ids of the snapshots of some days, the newest first."""
    for day in reversed(of):
        yield from reversed(ids(target, day))


def time_ms_of(snapshot_id: str) -> int:
    """The time in an id, Unix milliseconds."""
    time = datetime.strptime(snapshot_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return int(time.timestamp()) * 1000 + int(snapshot_id[15:18])


def _is_time(snapshot_id: str) -> bool:
    try:
        return time_ms_of(snapshot_id) is not None
    except ValueError:
        return False


def kept_bytes(file: File) -> int:
    """Bytes that a backup has of a file."""
    return file.end if file.manifest else sum(one.size for one in file.ranges)


def log_files(files: Mapping[str, File]) -> dict[int, File]:
    """Files of the log, by the physical offset at which each begins."""
    return {int(n[10:]): f for n, f in files.items() if n.startswith("commitlog/")}


def log_name(physical_offset: int) -> str:
    """Path of the file of the log that begins at a physical offset."""
    return f"commitlog/{physical_offset:020}"


def shown(files: Mapping[str, File], oldest: str) -> dict[str, File]:
    """Files that the store had in the day of the oldest snapshot or later."""
    floor_ms = time_ms_of(f"{oldest[:8]}T000000000Z")
    return {n: f for n, f in files.items() if not f.gone_ms or f.gone_ms > floor_ms}


def can_keep(path: str) -> bool:
    """Whether a path is that of a file of a store."""
    is_below = all(part not in ("", ".", "..") for part in path.split("/"))
    return path.isprintable() and is_below and _native._store_name(path) is not None  # noqa: SLF001


def _objects(files: Mapping[str, File]) -> list[str]:
    return list(dict.fromkeys(one.digest for file in files.values() for one in file.ranges))


def _rows(
    files: Mapping[str, File], objects: Sequence[str], more: Collection[str] = ()
) -> dict[str, list[Any]]:
    numbers = {digest: number for number, digest in enumerate(objects)}
    return {
        path: [
            int(path in more),
            file.length, file.end, file.crc, file.manifest, file.header, file.gone_ms,
            *chain.from_iterable((at, size, numbers[o], to) for at, size, o, to in file.ranges),
        ]
        for path, file in files.items()
    }  # fmt: skip


def _files(
    rows: Mapping[str, Sequence[Any]], objects: Sequence[str], known: Mapping[str, File]
) -> Iterator[tuple[str, File]]:
    for path, (is_more, length, end, crc, manifest, header, gone_ms, *flat) in rows.items():
        _check_counts(path, length, end, crc, gone_ms, *flat)
        is_header = _HEADER.fullmatch if path.startswith("index/") else ("", BATCH).__contains__
        if not can_keep(path) or end > length or not is_header(header):
            raise ValueError(path)
        if manifest != "":
            _check_digests([manifest])
        ranges = tuple(
            Range(at, size, objects[number], place)
            for at, size, number, place in zip(*(iter(flat),) * 4, strict=True)
        )
        if is_more:
            ranges = known[path].ranges + ranges
        check_ranges(path, ranges, end)
        yield path, File(length, end, crc, ranges, manifest, header, gone_ms)


def check_ranges(path: str, ranges: Sequence[Range], end: int) -> None:
    """Refuses ranges that do not lie one behind the other."""
    at = 0
    for one in ranges:
        if one.begin < at or one.size < 1:
            raise ValueError(path)
        at = one.end
    if at > end:
        raise ValueError(path)


def _check_counts(name: str, *numbers: object) -> None:
    if not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError(name)


def _check_digests(digests: Sequence[str]) -> None:
    """Refuses digests that lead anywhere else than to an object."""
    if not all(_DIGEST.fullmatch(digest) for digest in digests):
        raise ValueError("digest")


def ranges_of(target: Target, file: File) -> tuple[Range, ...]:
    """The ranges of a file, of its manifest where it has one."""
    if not file.manifest:
        return file.ranges
    content = target.objects([file.manifest])[0]
    try:
        ranges = tuple(Range(*row) for row in json.loads(content))
        _check_counts("manifest", *(n for at, size, _, to in ranges for n in (at, size, to)))
        _check_digests([one.digest for one in ranges])
        check_ranges("manifest", ranges, file.end)
    except (ValueError, TypeError, RecursionError):
        name = object_name(file.manifest)
        raise target.damaged(name, "a manifest of this file", "something else") from None
    return ranges


def same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes at the begin of both are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def needed(target: Target, file: File) -> Iterator[tuple[str, int]]:
    """Digests of the objects that a file needs, and bytes that each must have."""
    for one in ranges_of(target, file):
        yield one.digest, one.place + one.size
    if file.manifest:
        yield file.manifest, 1


def lost(target: Target, files: Mapping[str, File]) -> set[str]:
    """Files of which an object is missing, or whose ranges cannot be read."""
    needs: dict[str, set[str]] = {}
    for name, file in files.items():
        with contextlib.suppress(CorruptionError):
            needs[name] = {digest for digest, _ in needed(target, file)}
    digests = sorted(set().union(*needs.values()))
    times = target.times([object_name(digest) for digest in digests])
    there = {digest for digest, time_s in zip(digests, times, strict=True) if time_s is not None}
    return {name for name in files if name not in needs or not needs[name] <= there}


def load(target: Target, snapshot_id: str, near: Loaded | None = None) -> Loaded:
    """Reads a snapshot; `near` may have the same state, which then is not read again."""
    name = document_name(snapshot_id)
    content = target.get([name])[0] if _DOCUMENT.fullmatch(name) else None
    if content is None:
        known = ", ".join(ids(target, *days(target)[-1:])[-3:]) or "none"
        text = f"snapshot: expected one of {target.url}, got {snapshot_id!r}; the newest: {known}"
        raise MessageNotFoundError(text)
    if digest_of(content)[:16] != snapshot_id[-16:]:
        raise target.damaged(name, "the document that its name proves", "another one")
    try:
        return _parse(target, snapshot_id, content, near)
    except _WRONG:
        raise target.damaged(name, "a snapshot", "something else") from None


def _state(content: bytes) -> tuple[Mapping[str, File], list[str]]:
    row = json.loads(content)
    _check_digests(row["objects"])
    return dict(_files(row["files"], row["objects"], {})), row["objects"]


def _parse(target: Target, snapshot_id: str, content: bytes, near: Loaded | None) -> Loaded:
    row = json.loads(content)
    _check_digests([*([row["base"]] if row["base"] else ()), *row["objects"]])
    state: Mapping[str, File] = {}
    objects: list[str] = []
    if near is not None and row["base"] == near.base:
        state, objects = near.state, near.objects
    elif row["base"]:
        state, objects = _state(target.objects([row["base"]])[0])
    files = {**state} | dict(_files(row["files"], objects + row["objects"], state))
    for path in row["removed"]:
        del files[path]
    facts = row["snapshot"]
    facts["left_out"] = tuple(map(str, facts["left_out"]))
    fork, slots = facts["fork_offset"], row["settings"].get("max_hash_slot_num", 0)
    _check_counts("facts", slots, 0 if fork is None else fork, *(facts[name] for name in _COUNTS))
    texts = facts["timeline"], facts["source"], facts.get("redact", "")
    if slots > _MOST_SLOTS or not all(isinstance(text, str) for text in texts):
        raise ValueError("facts")
    time_ms = time_ms_of(snapshot_id)
    snapshot = Snapshot(snapshot_id, datetime.fromtimestamp(time_ms / 1000, UTC), **facts)
    clock_ms = row.get("clock_ms", time_ms)
    _check_counts("clock", clock_ms)
    return Loaded(snapshot, files, row["settings"], row["base"], state, objects, clock_ms)


def newest(target: Target) -> Loaded | None:
    """The newest snapshot of a backup; ``None`` without one."""
    name = next(newest_first(target, days(target)), None)
    return None if name is None else load(target, name)


def write(target: Target, new: Loaded, changed: int, compress: str | None = None) -> str:
    """Writes a snapshot, whose objects are there; returns its id.

    It has the state of the one before, since which so many files `changed`.
    """
    body, content = b"", _document(new)
    if len(content) > _MOST_BYTES + _MOST_OF_FILE * changed or not new.base:
        objects = _objects(new.files)
        body = json_bytes({"objects": objects, "files": _rows(new.files, objects)})
        if len(body) > MOST_OBJECT_BYTES:
            wrong = f"at most {MOST_OBJECT_BYTES} bytes, found {len(body)}"
            text = f"{target.url}: the list of {len(new.files)} files: expected {wrong}"
            raise StoreError(f"{text}; no snapshot was written")
        new.base, new.state, new.objects = digest_of(body), new.files, objects
        content = _document(new)
    time = new.snapshot.time
    stamp = f"{time:%Y%m%dT%H%M%S}{new.snapshot.time_ms % 1000:03d}Z"
    snapshot_id = f"{stamp}-{digest_of(content)[:16]}"
    try:
        near = replace(new, state=_state(body)[0]) if body else new
        if _parse(target, snapshot_id, content, near).files != new.files:
            raise ValueError("files")
    except _WRONG as error:
        text = f"{target.url}: expected a snapshot that can be read back, wrong is: {error}"
        raise StoreError(f"{text}; no snapshot was written") from None
    if body:
        target.put({object_name(new.base): packed(body, compress)})
    target.put({document_name(snapshot_id): content})
    return snapshot_id


def _document(new: Loaded) -> bytes:
    """The document of a snapshot: what differs from the state."""
    state = new.state
    parts: dict[str, File] = {}
    more: set[str] = set()
    for path, file in new.files.items():
        before = state.get(path)
        if before == file:
            continue
        kept = before.ranges if before is not None else ()
        if kept and file.ranges[: len(kept)] == kept:
            file = replace(file, ranges=file.ranges[len(kept) :])
            more.add(path)
        parts[path] = file
    known = _objects(state)
    objects = list(dict.fromkeys([*known, *_objects(parts)]))
    facts = {name: getattr(new.snapshot, name) for name in Snapshot.__slots__[2:]}
    if facts["redact"] is None:
        del facts["redact"]
    row: dict[str, Any] = {
        "snapshot": facts,
        "settings": new.settings,
        "base": new.base,
        "objects": objects[len(known) :],
        "files": _rows(parts, objects, more),
        "removed": [path for path in state if path not in new.files],
    }
    if new.clock_ms != new.snapshot.time_ms:
        row["clock_ms"] = new.clock_ms
    return json_bytes(row)
