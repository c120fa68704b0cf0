"""Which messages ``cat`` prints, and the shortest way to them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mqstore.cli.keys import may_be_more, query
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.exchange.matching import body_matches

if TYPE_CHECKING:
    import re
    from collections.abc import Generator, Iterator

    from mqstore import MessageScan, Store, StoredMessage

# Most that a key query gives, and how much of the log or of a queue is held to be turned round.
_MOST_OF_A_KEY = 65_536
_WINDOW_BYTES = 64 << 20
_QUEUE_CHUNK = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The requested selection; ``None`` is no bound.

    Attributes:
        topics: Only these topics; all where empty.
        queue_id: Only queues of this number.
        offset: Where to begin: a queue offset with ``queue_id`` and one topic, else a physical
            offset. With ``reverse``, where to end.
        limit: How many messages.
        begin_ms: First store time.
        end_ms: Last store time.
        tags: A tag expression.
        key: A key or unique key; goes with ``topics``, ``limit``, ``begin_ms`` and ``end_ms`` only.
        reverse: Newest first.
        grep: Pattern that the body must contain.
        skip_damage: Go on behind damage.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    offset: int | None = None
    limit: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    key: str | None = None
    reverse: bool = False
    grep: re.Pattern[bytes] | None = None
    skip_damage: bool = False


class Selected:
    """The messages that were asked for, to be iterated once, and the damage skipped on the way."""

    def __init__(self, store: Store, what: Selection) -> None:
        self._scan: MessageScan | None = None
        self._ranges = 0
        self._bytes = 0
        if what.key is not None:
            self._source = _by_key(store, what.key, what)
        elif len(what.topics) == 1 and what.queue_id is not None:
            self._source = _by_queue(store, what.topics[0], what.queue_id, what)
        elif what.reverse:
            self._source = _backwards(store, what, self)
        else:
            self._source = _forwards(store, what, self)
        chosen: Iterator[StoredMessage] = self._source
        if what.queue_id is not None and len(what.topics) > 1:
            chosen = (message for message in chosen if message.queue_id == what.queue_id)
        if what.grep is not None:
            chosen = filter(body_matches(what.grep), chosen)
        self._messages = islice(chosen, what.limit)

    def __iter__(self) -> Iterator[StoredMessage]:
        return self._messages

    def follow(self, scan: MessageScan) -> MessageScan:
        """Counts from here on what this scan passes over, beside what those before it did."""
        self._ranges, self._bytes = self.skipped_ranges, self.skipped_bytes
        self._scan = scan
        return scan

    @property
    def skipped_ranges(self) -> int:
        """Damaged ranges skipped so far."""
        return self._ranges + (self._scan.skipped_ranges if self._scan else 0)

    @property
    def skipped_bytes(self) -> int:
        """Their bytes."""
        return self._bytes + (self._scan.skipped_bytes if self._scan else 0)

    def close(self) -> None:
        """Ends the search where it stands."""
        self._source.close()


def _by_key(store: Store, key: str, what: Selection) -> Generator[StoredMessage, None, None]:
    # The newest come first, so a limit is of use to them only, and with a pattern nobody can say
    # how many are needed for so many matches.
    newest = what.limit if what.reverse and what.grep is None else None
    most = _MOST_OF_A_KEY if newest is None else newest
    result = query(
        store, what.topics, key, begin_ms=what.begin_ms, end_ms=what.end_ms, max_messages=most
    )
    if not result.complete:
        note(may_be_more(result))
    yield from result if what.reverse else reversed(result)


def _by_queue(
    store: Store, topic: str, queue_id: int, what: Selection
) -> Generator[StoredMessage, None, None]:
    for queue in store.queues(topic):
        if queue.queue_id == queue_id:
            break
    else:
        return
    begin, end = queue.min_offset, queue.max_offset
    if what.offset is not None:
        begin = max(begin, what.offset)
    if what.begin_ms is not None:
        begin = max(begin, store.offset_at(topic, queue_id, what.begin_ms))
    chunks = range(begin, end, _QUEUE_CHUNK)
    for chunk in reversed(chunks) if what.reverse else chunks:
        messages = _queue_chunk(store, topic, queue_id, chunk, min(chunk + _QUEUE_CHUNK, end), what)
        if what.reverse:
            yield from reversed(list(messages))
        else:
            yield from messages


def _queue_chunk(
    store: Store, topic: str, queue_id: int, begin: int, end: int, what: Selection
) -> Iterator[StoredMessage]:
    """The messages of the entries from `begin` until `end`."""
    while begin < end:
        result = store.read(
            topic,
            queue_id,
            begin,
            max_messages=end - begin,
            max_bytes=_WINDOW_BYTES,
            tags=what.tags,
        )
        for message in result.messages:
            if message.queue_offset < end and _in_time(message, what):
                yield message
        if result.next_queue_offset <= begin:
            return
        begin = result.next_queue_offset


def _in_time(message: StoredMessage, what: Selection) -> bool:
    time = message.store_timestamp_ms
    return (what.begin_ms is None or what.begin_ms <= time) and (
        what.end_ms is None or time <= what.end_ms
    )


def _scan(store: Store, what: Selection, start: int | None, stop: int | None) -> MessageScan:
    return store.scan(
        start_physical_offset=start,
        stop_physical_offset=stop,
        topics=what.topics or None,
        tags=what.tags,
        begin_ms=what.begin_ms,
        end_ms=what.end_ms,
        on_error="skip" if what.skip_damage else "raise",
        decompress=False,
    )


def _forwards(
    store: Store, what: Selection, found: Selected
) -> Generator[StoredMessage, None, None]:
    scan = found.follow(_scan(store, what, what.offset, None))
    begin = scan.physical_offset
    with progress("reading the log", beside_output=True) as advance:
        for message in scan:
            yield message
            advance(scan.physical_offset - begin, scan.stop_physical_offset - begin)


def _backwards(
    store: Store, what: Selection, found: Selected
) -> Generator[StoredMessage, None, None]:
    """The same, from the end: a window of the log at a time, so that memory stays bounded."""
    begin = store.min_physical_offset if what.offset is None else what.offset
    end = store.max_physical_offset
    with progress("reading the log", beside_output=True) as advance:
        for start in reversed(range(begin, end, _WINDOW_BYTES)):
            window = list(found.follow(_scan(store, what, start, min(start + _WINDOW_BYTES, end))))
            while window:
                yield window.pop()
            advance(end - start, end - begin)
