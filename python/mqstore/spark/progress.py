"""Progress of a stream: offsets, readable ranges, lost data.

An offset is ``{broker: physical_offset}``: every record that begins before it has been read. Bytes
behind ``until`` never change, so that two offsets name the same rows whenever they are asked for.
Two things can take rows away all the same, retention and a log that a crash cut behind ``until``;
both are reported here and are errors unless ``failOnDataLoss`` is off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
import pyarrow as pa

import mqstore
from mqstore import _native
from mqstore._names import nearest
from mqstore.errors import ConfigError, OffsetOutOfRangeError, expected
from mqstore.files.layout import log_folders, log_paths
from mqstore.spark.flushed_offsets import Bounds, Reach
from mqstore.spark.plan import LogRange
from mqstore.spark.stores import (
    INT64_MAX,
    QueuePart,
    StoreDir,
    bounds_of,
    check_queues_known,
    find_stores,
    first_time,
    summarize_all,
)
from mqstore.store import settings_of

if TYPE_CHECKING:
    from mqstore.spark.options import ReadOptions

Offset = dict[str, int]
"""A physical offset for each broker."""
QueueStarts = Mapping[str, Sequence[tuple[str, int, int]]]
"""By broker topic, queue, and first queue offset."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Crc = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Anchor = tuple[Count, Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)], _Crc]
"""A record before an offset: where it begins, its length, and the CRC-32 of its bytes."""
Marks = Mapping[str, Sequence[Anchor]]
"""By broker anchors, newest first."""
_Mark = TypeVar("_Mark")
_OLD_MARKED_BYTES = 64
"""Marks were ``[base, crc]`` before: of a log file's first bytes."""

_log = logging.getLogger("mqstore.spark")


class Progress:
    """Plans the batches of one stream.

    Args:
        options: The options of the stream.

    Raises:
        UnsupportedError: An option that says where a stream ends, or where a queue begins.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.check_stream()
        self.start_ms = options.starting_timestamp_ms
        # A place from the first batch on: as a filter of rows it would move with each start.
        self.options = dataclasses.replace(options, starting_timestamp_ms=None)
        self._bounds = Bounds(self.options)
        self._to_retire = set(options.retire)
        self._warned = False

    def reaches(self) -> dict[str, Reach]:
        """Current bounds of the stores, by broker; see ``Bounds.look``."""
        return self._bounds.read()

    def first(self) -> Offset:
        """Where a stream begins that has no checkpoint.

        Raises:
            OffsetOutOfRangeError: ``startingPhysicalOffset`` lies behind a log.
        """
        if self.options.resume is not None:
            return dict(self.options.resume[0])
        given = self.options.starting_physical_offset or 0
        first = {}
        for broker, reach in self.reaches().items():
            if given > reach.log_end:
                raise OffsetOutOfRangeError(
                    f"option startingPhysicalOffset: {given} lies behind the log of "
                    f"{reach.store.path}, which ends at {reach.log_end}",
                    given,
                    reach.begin,
                    reach.log_end,
                )
            latest = self.options.starting_from_latest
            at = reach.end if latest else max(reach.begin, given)
            first[broker] = at if self.start_ms is None else max(at, self._at_time(reach))
        return first

    def _at_time(self, reach: Reach) -> int:
        """Where the first message lies that was stored at the starting time or later."""
        with mqstore.open(self.options.root(reach.store.path), config=self.options.config) as store:
            begin = reach.begin
            bases = log_paths(log_folders(self.options.root(reach.store.path), self.options.config))
            for base in sorted((at for at in bases if begin < at < reach.end), reverse=True):
                time_ms = first_time(store, base)
                if time_ms is not None and time_ms < (self.start_ms or 0):
                    begin = base
                    break
            scan = store.scan_arrow(
                columns=["physical_offset"],
                start_physical_offset=begin,
                stop_physical_offset=reach.end,
                begin_ms=self.start_ms,
                on_error="skip",
            )
            for batch in pa.RecordBatchReader.from_stream(scan):
                if batch.num_rows:
                    place: int = batch.column(0)[0].as_py()
                    return place
        return reach.end

    def queue_starts(self) -> QueueStarts:
        """First offsets of the queues that ``startingOffsets`` names, words and times resolved.

        Raises:
            ConfigError: No store has a queue that is named, or it does not hold the offset.
        """
        if not self.options.starts:
            return {}
        stores = summarize_all(self.options)
        check_queues_known(stores, self.options)
        return {
            store.store.broker: [
                (topic, queue_id, begin)
                for topic, queue_id, begin, _ in bounds_of(store, self.options)
            ]
            for store in stores
        }

    def _queue_bounds(self, starts: QueueStarts, broker: str) -> tuple[QueuePart, ...]:
        queues = {(topic, one): 0 for topic, ids in self.options.queues or () for one in ids}
        queues |= {(topic, queue_id): begin for topic, queue_id, begin in starts.get(broker, ())}
        return tuple((*named, begin, INT64_MAX) for named, begin in queues.items())

    def last(self) -> Offset:
        """Up to where a stream can read now."""
        return {broker: reach.end for broker, reach in self.reaches().items()}

    def next(
        self,
        start: Offset,
        *,
        most_bytes: int | None = None,
        most_rows: int | None = None,
        final: Offset | None = None,
    ) -> Offset:
        """Up to where the next batch reads.

        Args:
            start: Where it begins.
            most_bytes: Most bytes of the log in it, shared by the brokers.
            most_rows: Most messages in it, shared by the brokers.
            final: Where the stream is to end.

        Returns:
            The end; ``start`` itself where there is nothing new. Without ``failOnDataLoss`` it may
            lie before ``start``: the log of a broker was cut, and goes on from there.

        Raises:
            OffsetOutOfRangeError: Rows that the stream was to read are gone, or a log ends before
                what was read from it.
        """
        reaches = self.reaches()
        end = {}
        for broker, reach in reaches.items():
            begin = start.get(broker, reach.begin)
            self._check_end(begin, reach)
            # A truncated log continues at its new end; rows held back by `until` were read already.
            stop = min(max(reach.end, begin), reach.log_end)
            end[broker] = stop if final is None else min(stop, max(final.get(broker, begin), begin))
        for broker in self._to_retire - start.keys():
            near = nearest(broker, start)
            _log.warning("option retire: the checkpoint has no broker %r%s", broker, near)
        self._to_retire = set()
        for broker in start.keys() - reaches.keys():
            if self._gone(broker, start[broker]) == "wait":
                end[broker] = start[broker]
        begins = {
            broker: max(start.get(broker, 0), reach.begin) for broker, reach in reaches.items()
        }
        if most_bytes is not None:
            end = _share(begins, end, most_bytes)
        if most_rows is not None:
            end = self._limit_rows(reaches, begins, end, most_rows)
        return end

    def marks(self, offset: Offset) -> Marks:
        """Anchors of the stores at an offset: another log in the place of one is noticed."""
        return {
            store.broker: self._anchors_at(store, offset[store.broker])
            for store in find_stores(self.options)
            if store.broker in offset
        }

    def _anchors_at(self, store: StoreDir, offset: int) -> list[tuple[int, int, int]]:
        root, settings = self.options.root(store.path), settings_of(self.options.config)
        return _native._anchors(root, offset, settings=settings)  # noqa: SLF001 - our own

    def _other_than(self, store: StoreDir, anchor: tuple[int, int, int]) -> str | None:
        root, settings = self.options.root(store.path), settings_of(self.options.config)
        return _native._other_than(root, anchor, settings=settings)  # noqa: SLF001 - our own

    def same_stores(self, start: Offset, marks: Marks) -> Offset:
        """The offsets at which the stores' logs are still those that were read.

        Args:
            start: Up to where they were read.
            marks: What ``marks`` gave for it then.

        Returns:
            ``start``; without ``failOnDataLoss`` a broker that has another log now is read from the
            last record on that both logs have, else from the log's beginning.

        Raises:
            OffsetOutOfRangeError: A broker has another log now.
            ConfigError: Marks of a checkpoint that are none.
        """
        same = dict(start)
        for store in find_stores(self.options) if marks else ():
            anchors, place = self._anchors(marks.get(store.broker)), start.get(store.broker)
            if not anchors or place is None:
                continue
            others = (self._other_than(store, one) for one in anchors)
            found = next(others)
            if found is None:
                continue
            reach = self._whole(store)
            if reach.end < place and self.options.fail_on_data_loss:
                continue  # `_check_end` says so
            older = zip(anchors[1:], others, strict=True)
            common = next((one for one, other in older if other is None), None)
            on = reach.begin if common is None else max(reach.begin, common[0] + common[1])
            at, size, crc = anchors[0]
            self._lost(
                f"broker {store.broker}: {store.path} is another store than the one that was read "
                f"up to {place}: expected {size} bytes with checksum {crc:08x} at physical offset "
                f"{at}, found: {found}; "
                + (
                    "no record is known that both have" if common is None else f"both agree to {on}"
                ),
                place,
                reach,
                then=f"goes on from {on}: messages behind it come again if both have them",
            )
            same[store.broker] = on
        return same

    def _anchors(self, marks: object) -> list[Anchor]:
        """Parses the marks of one broker, which are untrusted."""
        if marks is None:
            return []
        with contextlib.suppress(msgspec.ValidationError):
            base, crc = msgspec.convert(marks, tuple[Count, _Crc])
            self.warn_of_old_marks()
            return [(base, _OLD_MARKED_BYTES, crc)]
        return checked_mark(marks, list[Anchor], "anchors")

    def warn_of_old_marks(self) -> None:
        """Says once that another log in a store's place may go unnoticed."""
        if not self._warned:
            _log.warning(
                "the checkpoint was made by a version that did not keep the record before its "
                "offset: a store that was restored from an older copy may go unnoticed, until the "
                "next batch keeps that record"
            )
            self._warned = True

    def ranges(
        self, start: Offset, end: Offset, starts: QueueStarts | None = None
    ) -> list[LogRange]:
        """The partitions of a batch; the same for the same offsets.

        Args:
            start: Where it begins.
            end: Where it ends.
            starts: What ``queue_starts`` gave to the first batch.

        Raises:
            OffsetOutOfRangeError: Rows of it are gone.
            ConfigError: An offset of a checkpoint that is none.
        """
        start, end = (checked_mark(one, dict[str, Count], "offset") for one in (start, end))
        reaches = self.reaches()
        ranges = []
        for broker in start.keys() - end.keys() - reaches.keys():
            if self._gone(broker, start[broker]) == "wait":
                raise self._is_gone(broker, start[broker])
        for broker, planned in end.items():
            stop, reach = planned, reaches.get(broker)
            if reach is None:
                # Rows of a planned batch: a store that comes back has them still.
                if (at := start.get(broker, 0)) < stop and self._gone(broker, at) == "wait":
                    raise self._is_gone(broker, at)
                continue
            at = start.get(broker, reach.begin)
            if at < stop:
                self._check_held(at, stop, reach)
            at, stop = max(at, reach.begin), min(stop, reach.log_end)
            step = self.options.split_bytes
            bounds = self._queue_bounds(starts or {}, broker)
            ranges += [
                LogRange(
                    reach.store.path, broker, one, min(one + step, stop), reach.log_end, bounds
                )
                for one in range(at, stop, step)
            ]
        return ranges

    def check_range(self, part: LogRange) -> None:
        """Whether a task can still read what was planned.

        Raises:
            OffsetOutOfRangeError: It cannot.
        """
        self._check_held(part.begin, part.end, self._whole(StoreDir(part.store, part.broker)))

    def _whole(self, store: StoreDir) -> Reach:
        """Bounds of a store's log, whichever part of it may be read."""
        with mqstore.open(self.options.root(store.path), config=self.options.config) as opened:
            begin, end = opened.min_physical_offset, opened.max_physical_offset
        return Reach(store, begin, end, end)

    def _check_held(self, begin: int, end: int, reach: Reach) -> None:
        if begin < reach.begin:
            self._lost(
                f"broker {reach.store.broker}: retention deleted physical offsets {begin} to "
                f"{reach.begin} of {reach.store.path} before they were read",
                begin,
                reach,
            )
        self._check_end(end, reach)

    def _check_end(self, at: int, reach: Reach) -> None:
        if at > reach.log_end:
            self._lost(
                f"broker {reach.store.broker}: the log of {reach.store.path} ends at "
                f"{reach.log_end}, and was read up to {at}: a crash cut its tail, or it is another "
                "store",
                at,
                reach,
            )

    def _gone(self, broker: str, at: int) -> Literal["wait", "drop"]:
        """Whether the query waits for a broker whose store is not there, or drops it.

        Raises:
            OffsetOutOfRangeError: ``missingStores`` is ``fail``, and the broker is not retired.
        """
        mode = "drop" if broker in self.options.retire else self.options.missing_stores
        if mode == "fail":
            raise self._is_gone(broker, at)
        _log.warning(
            "broker %s: its store is gone; it was read up to %d, and the stream %s",
            broker,
            at,
            "goes on without it" if mode == "drop" else "waits for it to come back",
        )
        return mode

    def _is_gone(self, broker: str, at: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"broker {broker}: its store is gone; it was read up to {at}; option retire={broker} "
            "(mqstore pipeline --retire) takes it out of the checkpoint, missingStores=wait reads "
            "the others until it is back",
            at,
            0,
            0,
        )

    def _lost(
        self, what: str, at: int, reach: Reach, then: str = "goes on with what is there"
    ) -> None:
        if self.options.fail_on_data_loss:
            hint = f"; option failOnDataLoss=false {then}"
            raise OffsetOutOfRangeError(what + hint, at, reach.begin, reach.log_end)
        _log.warning("%s; failOnDataLoss is off, the stream %s", what, then)

    def _limit_rows(
        self, reaches: dict[str, Reach], begins: Offset, end: Offset, most: int
    ) -> Offset:
        limited = dict(end)
        left = most
        behind = [broker for broker, stop in end.items() if begins.get(broker, stop) < stop]
        for number, broker in enumerate(behind):
            share = -(-left // (len(behind) - number))
            path = reaches[broker].store.path
            count, limited[broker] = self._after_rows(path, begins[broker], end[broker], share)
            left -= count
        return limited

    def _after_rows(self, path: str, begin: int, end: int, most: int) -> tuple[int, int]:
        """How many messages a range has, at most ``most``, and where the last of these ends."""
        if most == 0:
            return 0, begin
        count, place = 0, end
        with mqstore.open(self.options.root(path), config=self.options.config) as store:
            scan = store.scan_arrow(
                columns=["physical_offset", "store_size"],
                start_physical_offset=begin,
                stop_physical_offset=end,
                topics=self.options.topics,
                tags=self.options.tags,
                batch_rows=min(most, 8192),
                on_error="skip",
            )
            for batch in pa.RecordBatchReader.from_stream(scan):
                taken = min(batch.num_rows, most - count)
                count += taken
                if count == most:
                    at, size = (column[taken - 1].as_py() for column in batch.columns)
                    place = min(at + size, end)
                    break
        return count, place


def checked_mark(given: object, kind: type[_Mark], what: str) -> _Mark:
    """A part of a checkpoint, which is untrusted.

    Raises:
        ConfigError: It is of another type.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError:
        text = expected(f"the checkpoint's {what}", "what this source wrote", str(given)[:200])
        raise ConfigError(text, "path") from None


def _share(begins: Offset, end: Offset, most: int) -> Offset:
    """The ends after at most so many bytes, shared by how much there is; each moves on."""
    waiting = {
        broker: stop - begins[broker]
        for broker, stop in end.items()
        if begins.get(broker, stop) < stop
    }
    total = sum(waiting.values())
    if total <= most:
        return end
    return end | {
        broker: begins[broker] + max(1, most * size // total) for broker, size in waiting.items()
    }
