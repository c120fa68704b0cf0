"""Plans a read: parts of stores, each a Spark partition or, if it is small, one with others.

Planning is a pure function of what is known of the stores and the options. Ends are fixed here, so
that a task that runs again reads the same rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqstore.spark.compat import InputPartition
from mqstore.spark.stores import (
    INT64_MAX,
    Summary,
    bounds_of,
    check_queues_known,
    check_topics,
    find_stores,
    summarize_all,
)
from mqstore.text import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mqstore.spark.options import ReadOptions
    from mqstore.spark.stores import QueuePart
    from mqstore.spark.tables import StructurePart

    Bounds = tuple[QueuePart, ...]
    Ranges = tuple[tuple[int, int], ...]

_LOG = logging.getLogger("mqstore.spark")
_LEAST_SPLIT = 1024
# Opening a store takes about as long as reading so many bytes.
_OPEN_BYTES = 1 << 20
_PLACE_BYTES = 4096
# A record has about so many times the bytes of its queue entry.
_RECORD_BY_ENTRY = 50


@dataclass(frozen=True)
class LogRange(InputPartition):
    """A part of a store's log: what one task reads.

    Attributes:
        store: The store's directory.
        broker: Value of the column ``broker``.
        begin: First physical offset: the records that begin from there on are meant.
        end: One past the last.
        log_end: How far the log may be read: the last record may end there.
        bounds: Half-open ranges of queue offsets, for the queues that have some.
        queue_parts: Only the records that these name; ``None`` is every record of the range.
        places: Only the records that begin at these offsets; ``None`` is every record.
        with_gaps: Whether the task scans what no queue entry covers, too; without `queue_parts` the
            tags codes in the queues choose the other records.
    """

    store: str
    broker: str
    begin: int
    end: int
    log_end: int
    bounds: tuple[QueuePart, ...] = ()
    queue_parts: tuple[QueuePart, ...] | None = None
    places: tuple[int, ...] | None = None
    with_gaps: bool = False

    @property
    def size(self) -> int:
        """Bytes of the log between its ends."""
        return self.end - self.begin

    def __str__(self) -> str:
        where = f"{self.store}, physical offsets {self.begin} to {self.end}"
        if self.queue_parts:
            named = [f"topic {t} queue {q} offsets {b} to {e}" for t, q, b, e in self.queue_parts]
            more = f" and {len(named) - 3} more queues" if len(named) > 3 else ""
            where += f", {'; '.join(named[:3])}{more}"
        return where


def plan(options: ReadOptions, *, asked: Sequence[str] | None = None) -> list[LogRange]:
    """The partitions of a read of messages.

    Args:
        options: The options.
        asked: Topics that the caller named, where a filter has narrowed those of the options.

    Raises:
        NotAStoreError: A path that is no store, or a glob that no store matches.
        ConfigError: Offsets out of range, or of a queue that no store has.
        StoreError: A store that cannot be read.
    """
    # A filter of Spark's may leave nothing.
    if options.topics == () or options.keys == ():
        find_stores(options)
        return []
    return plan_stores(summaries(options, asked=asked), options)


def summaries(options: ReadOptions, *, asked: Sequence[str] | None = None) -> list[Summary]:
    """Facts about every store, and a warning for a topic that none has; as for `plan`."""
    stores = summarize_all(options)
    if all(store.topic_names is not None for store in stores):
        known = frozenset().union(*(store.topic_names or () for store in stores))
        check_topics(options.topics if asked is None else asked, known, options)
    return stores


def plan_stores(stores: Sequence[Summary], options: ReadOptions) -> list[LogRange]:
    """The ranges to read, from what is known of the stores.

    Raises:
        ConfigError: Offsets out of range, or of a queue that no store has.
    """
    check_queues_known(stores, options)
    chosen = [_choose(store, options) for store in stores]
    total = sum(way.shared for way in chosen)
    split = options.split_bytes
    if options.min_partitions > 1:
        split = max(min(split, -(-total // options.min_partitions)), _LEAST_SPLIT)
    parts = []
    for way in chosen:
        _LOG.info(
            "%s: %s, about %s of %s",
            way.store.store.path,
            way.name,
            size_text(way.cost),
            size_text(way.store.end - way.store.begin),
        )
        parts += way.parts(split)
    return parts


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to the messages of a store that are asked for.

    Attributes:
        name: Its name in ``accessPath``.
        cost: Bytes that it reads, about.
        store: The store.
        scans: Byte ranges to be scanned, and whether only what no queue entry covers is.
        bounds: Bounds of queue offsets.
        queues: Parts of queues, each with the bytes of a record.
        within: The byte range whose records the queues are asked for.
        beside: Parts of queues that are read beside what no queue entry covers; ``None`` is all.
        places: Records that the index names.
    """

    name: str
    cost: int
    store: Summary
    scans: tuple[tuple[int, int, bool], ...] = ()
    bounds: tuple[QueuePart, ...] = ()
    queues: tuple[tuple[QueuePart, int], ...] = ()
    within: tuple[int, int] = (0, 0)
    beside: tuple[QueuePart, ...] | None = None
    places: tuple[int, ...] = ()

    @property
    def shared(self) -> int:
        """Bytes of the log that are shared out."""
        records = sum((end - begin) * mean for (_, _, begin, end), mean in self.queues)
        return records + _bytes_of(self.scans)

    def parts(self, split: int) -> list[LogRange]:
        """The partitions, of about `split` bytes each."""
        path, broker = self.store.store.path, self.store.store.broker
        begin, log_end = self.store.begin, self.store.end
        parts = [
            LogRange(path, broker, *self.within, log_end, self.bounds, queue_parts=tuple(group))
            for group in _grouped(self.queues, split)
        ]
        if self.places:
            parts.append(
                LogRange(path, broker, begin, log_end, log_end, self.bounds, places=self.places)
            )
        parts += [
            LogRange(
                *(path, broker, first, last, log_end, self.bounds),
                queue_parts=self.beside if with_gaps else None,
                with_gaps=with_gaps,
            )
            for low, high, with_gaps in self.scans
            for first, last in split_range(low, high, split, self.store.file_size)
        ]
        return parts


def split_range(begin: int, end: int, split: int, file_size: int) -> list[tuple[int, int]]:
    """Cuts a byte range of a log into pieces of at most so many bytes.

    Where files are larger than that each is cut evenly, so that every file's beginning, which needs
    no search, is the beginning of a piece; otherwise a piece has several whole files.
    """
    pieces = []
    at = begin
    while at < end:
        if not 0 < split < file_size:
            stop = at - at % file_size + split // file_size * file_size if file_size else end
            stop = stop if stop > at else at + split
        else:
            base = at - at % file_size
            even = -(-file_size // -(-file_size // split))
            stop = min(base + ((at - base) // even + 1) * even, base + file_size)
        pieces.append((at, min(stop, end)))
        at = stop
    return pieces


def _choose(store: Summary, options: ReadOptions) -> _Way:
    """The way that reads least, or the one that was asked for."""
    bounds = bounds_of(store, options)
    ranges = _ranges(store, options)
    scans = tuple((b, e, False) for b, e in ranges)
    scan = _Way("scan", sum(e - b for b, e in ranges), store, scans, bounds)
    ways = {"scan": scan}
    # Only a scan meets every damaged range, and what no queue names.
    only_scan = options.shows_undelivered or (
        options.access_path == "auto" and options.on_error == "rows"
    )
    if not only_scan:
        if store.queues is not None and _chooses_queues(options):
            ways["consumequeue"] = _by_queues(store, options, bounds, ranges)
        elif store.queues is not None and options.selects_tags:
            ways["consumequeue"] = _by_tags(store, bounds, ranges)
        if store.found is not None:
            places, size = store.found
            inside = tuple(at for at in places if any(b <= at < e for b, e in ranges))
            ways["index"] = _Way("index", size, store, bounds=bounds, places=inside)
    if options.access_path != "auto":
        return ways.get(options.access_path, scan)
    return min(ways.values(), key=lambda way: way.cost)


def _chooses_queues(options: ReadOptions) -> bool:
    """Whether queues that are not chosen can be left unread."""
    return not (
        options.topics is None
        and options.topic_pattern is None
        and options.queues is None
        and (options.access_path != "consumequeue" or options.selects_tags)
    )


def _ranges(store: Summary, options: ReadOptions) -> Ranges:
    """The byte ranges that can hold what is asked for."""
    begin = max(store.begin, options.starting_physical_offset or 0)
    end = store.end
    if options.ending_physical_offset is not None:
        end = min(end, options.ending_physical_offset)
    first, last = options.starting_timestamp_ms, options.ending_timestamp_ms
    ranges: list[tuple[int, int]] = []
    for number, file in enumerate(store.files):
        later = store.files[number + 1] if number + 1 < len(store.files) else None
        # A missing file is damage, and so a part of what comes before it.
        file_end = later.base_offset if later else max(store.end, file.base_offset)
        own_ms = file.first_store_timestamp_ms
        next_ms = later.first_store_timestamp_ms if later else None
        if first is not None and next_ms is not None and next_ms < first:
            continue
        if last is not None and own_ms is not None and own_ms > last:
            continue
        a, b = max(begin, file.base_offset), min(end, file_end)
        if a >= b:
            continue
        if ranges and ranges[-1][1] == a:
            ranges[-1] = (ranges[-1][0], b)
        else:
            ranges.append((a, b))
    return tuple(ranges)


def _by_queues(store: Summary, options: ReadOptions, bounds: Bounds, ranges: Ranges) -> _Way:
    wanted = {(topic, queue_id): (begin, end) for topic, queue_id, begin, end in bounds}
    topics = options.topics_of({queue.topic for queue in store.queues or ()})
    queues, cost = [], 0
    for queue in store.queues or ():
        named = (queue.topic, queue.queue_id)
        if queue.topic not in topics or (options.queues is not None and named not in wanted):
            continue
        begin, end = wanted.get(named, (0, INT64_MAX))
        begin, end = max(begin, queue.min_offset), min(end, queue.max_offset)
        if begin < end:
            queues.append(((*named, begin, end), queue.mean_bytes))
            cost += int((end - begin) * queue.entry_cost)
    first = ranges[0][0] if ranges else store.end
    last = ranges[-1][1] if ranges else store.end
    tail = _behind(store.dispatched, ranges)
    known = min(store.complete_to, last)
    clipped = ((max(b, known), min(e, store.dispatched)) for b, e in ranges)
    doubtful = tuple((b, e, True) for b, e in clipped if b < e)
    return _Way(
        "consumequeue",
        cost + sum((e - b) // _RECORD_BY_ENTRY for b, e, _ in doubtful) + _bytes_of(tail),
        store,
        (*doubtful, *tail),
        bounds,
        tuple(queues) if first < known else (),
        (first, known),
        tuple(part for part, _ in queues),
    )


def _by_tags(store: Summary, bounds: Bounds, ranges: Ranges) -> _Way:
    """The records whose queue entries have a code that matches, and those without an entry.

    Each task reads the entries of its bytes of the log. What they leave uncovered is scanned, so
    that a lost queue costs time and no rows.
    """
    ends = store.dispatched
    known = tuple((b, min(e, ends), True) for b, e in ranges if b < ends)
    tail = _behind(ends, ranges)
    entries = sum((one.max_offset - one.min_offset) * one.entry_cost for one in store.queues or ())
    part = sum(e - b for b, e, _ in known) / max(ends - store.begin, 1)
    cost = int(entries * part) + _bytes_of(tail)
    return _Way("consumequeue", cost, store, (*known, *tail), bounds)


def _behind(dispatched: int, ranges: Ranges) -> tuple[tuple[int, int, bool], ...]:
    """The parts of byte ranges that no queue tells of."""
    return tuple((max(b, dispatched), e, False) for b, e in ranges if e > dispatched)


def _bytes_of(ranges: Iterable[tuple[int, int, bool]]) -> int:
    return sum(end - begin for begin, end, _ in ranges)


def _grouped(queues: Iterable[tuple[QueuePart, int]], split: int) -> Iterable[list[QueuePart]]:
    """Parts of queues, cut and put together to about `split` bytes of records."""
    group: list[QueuePart] = []
    room = split
    for (topic, queue_id, first, end), mean in queues:
        begin = first
        while begin < end:
            count = min(end - begin, max(room // max(mean, 1), 0))
            if count == 0 and group:
                yield group
                group, room = [], split
                continue
            count = max(count, 1)
            group.append((topic, queue_id, begin, begin + count))
            room -= count * mean
            begin += count
    if group:
        yield group


@dataclass(frozen=True)
class Pack(InputPartition):
    """Parts that one task reads, one after the other.

    Attributes:
        ranges: The parts.
    """

    ranges: tuple[LogRange | StructurePart, ...]


def pack(ranges: Sequence[LogRange | StructurePart], options: ReadOptions) -> list[InputPartition]:
    """Puts neighbours together to about ``splitBytes``, and not below ``minPartitions``.

    Args:
        ranges: The parts, in the order in which their rows come.
        options: The options.
    """
    most = options.split_bytes
    if options.min_partitions > 1:
        total = sum(map(_cost, ranges))
        most = min(most, total // options.min_partitions)
    groups: list[list[LogRange | StructurePart]] = []
    room = 0
    for one in ranges:
        if not groups or _cost(one) > room:
            groups.append([])
            room = most
        groups[-1].append(one)
        room -= _cost(one)
    return [group[0] if len(group) == 1 else Pack(tuple(group)) for group in groups]


def plan_name(partitions: Sequence[object], options: ReadOptions) -> str:
    """A name for Spark's plan: access paths, stores, splits, and options that narrow the read.

    Args:
        partitions: The partitions.
        options: The options.
    """
    ranges = [
        one for partition in partitions for one in ranges_of(partition) if isinstance(one, LogRange)
    ]
    narrowing = [name.removesuffix("_ms") for name in options.narrowing]
    words = [
        options.table if options.table != "messages" else "",
        *sorted({_access_path(one) for one in ranges}),
        _counted(len({one.store for one in ranges}), "store") if ranges else "",
        _counted(len(partitions), "split"),
        *(["by", *narrowing] if narrowing else []),
    ]
    return "_".join(["mqstore", *filter(None, words)])


def _counted(count: int, what: str) -> str:
    return f"{count}_{what}{'' if count == 1 else 's'}"


def _access_path(one: LogRange) -> str:
    if one.places is not None:
        return "index"
    return "consumequeue" if one.queue_parts is not None or one.with_gaps else "scan"


def ranges_of(partition: object) -> Iterable[Any]:
    """The parts of a partition; none of one that Spark made where there is nothing to read."""
    if isinstance(partition, Pack):
        return partition.ranges
    return (partition,) if hasattr(partition, "size") else ()


def size_of(partitions: Sequence[object], options: ReadOptions) -> int:
    """Bytes of the stores that partitions read, about: the size that Spark plans with.

    Args:
        partitions: The partitions.
        options: The options.
    """
    sizes = 0
    for one in (one for partition in partitions for one in ranges_of(partition)):
        most = one.size
        if isinstance(one, LogRange) and one.queue_parts is not None:
            most = options.split_bytes
        elif isinstance(one, LogRange) and one.places is not None:
            most = _PLACE_BYTES * len(one.places)
        sizes += min(one.size, most)
    return sizes


def _cost(one: LogRange | StructurePart) -> int:
    return _OPEN_BYTES + one.size
