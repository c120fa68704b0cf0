"""Which messages the commands print, and the shortest way to them, by a key or along the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from mqstore._names import nearest, recent_keys
from mqstore.care.key_search import Sought as Sought
from mqstore.care.key_search import by_id, from_log, index_covers, merged, unread_text
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.exchange.matching import body_matches
from mqstore.files.layout import index_files, open_index_files
from mqstore.results import QueryResult
from mqstore.store import root_of
from mqstore.text import count_text, size_text, time_text
from mqstore.topic import messages_of_queue, queue_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mqstore import MessageScan, Store, StoredMessage
    from mqstore._native import _Pattern

    _Messages = Generator[StoredMessage, None, None]

_MAY_BE_MORE = (
    "there may be more: the log or the index is damaged, which `mqstore verify` names, or the index"
    " in RocksDB answered, which has no messages without a unique key"
)

ID_LENGTHS = {32, 56}
_MOST_COUNTED = 1_000
# Most that a key query gives, and how much of the log or of a queue is held to be turned round.
_MOST_OF_A_KEY = 65_536
_WINDOW_BYTES = 64 << 20
_QUEUE_CHUNK = 1_024


def may_be_more(result: QueryResult) -> str:
    """Returns what to say of an answer that is not complete, with the parts that were not read."""
    return f"{_MAY_BE_MORE}{unread_text(result.unread)}"


def query(store: Store, what: Sought, most: int) -> QueryResult:
    """Returns the newest messages, at most so many, with a key or tags in any of the topics."""
    searched = what.topics or store.topics()
    if (len(searched) > 1 and what.exact) and not (
        index_covers(store) and index_files(root_of(store))
    ):
        found = _from_log(store, what, most)
    else:
        names = ("tags", "begin_ms", "end_ms", "exact")
        asked: dict[str, Any] = {name: getattr(what, name) for name in names}
        results = [store.query(topic, what.key, max_messages=most, **asked) for topic in searched]
        found = merged(results, most)
    if what.key is None and what.exact and not found.complete:
        # The store reads no more than the newest gibibyte by itself.
        return _from_log(store, what, most)
    if found or not what.exact or what.key is None:
        return found
    message = by_id(store, what.key)
    if message is None or (what.topics and message.topic not in what.topics):
        return found
    return QueryResult([message], complete=found.complete, unread=found.unread)


def _from_log(store: Store, what: Sought, most: int) -> QueryResult:
    with progress("reading the log") as advance:
        return from_log(store, what, most, advance)


def index_reach(store: Store) -> dict[str, object]:
    """Returns which part of the log the index covers, for ``--json``."""
    files = index_files(root_of(store))
    reach: dict[str, object] = {"usable": store.index_usable, "files": len(files)}
    if store.index_usable and files:
        ends = (files[0], files[-1])
        headers = {
            path: file.header for path, file in open_index_files(store, ends, skip_damaged=True)
        }
        if (first := headers.get(files[0])) is not None:
            reach["begin_timestamp_ms"] = first.begin_timestamp_ms
        if (last := headers.get(files[-1])) is not None:
            reach["end_timestamp_ms"] = last.end_timestamp_ms
            reach["end_physical_offset"] = last.end_physical_offset
        reach["damaged"] = len(headers) < len({*ends})
    reach["log_begin_physical_offset"] = store.min_physical_offset
    reach["log_end_physical_offset"] = store.max_physical_offset
    return reach


def note_not_found(store: Store, what: Sought) -> None:
    """Says that a key or tags were not found, how far the index reaches and what was read instead.

    Also how many there are outside of the time that was asked for.
    """
    topics, key = what.topics, what.key
    where = " or ".join(map(repr, topics)) if topics else f"all {len(store.topics())} topics"
    outside = 0
    if what.begin_ms is not None or what.end_ms is not None:
        ever = replace(what, begin_ms=None, end_ms=None, exact=True)
        outside = len(query(store, ever, _MOST_COUNTED))
    hint = ""
    sought = f"key {key!r}" if key is not None else f"tags {what.tags!r}"
    if not outside and key is not None:
        hint = nearest(key, {one for _, one in recent_keys(store, topics or None)})
    note(f"mqstore: no message with {sought} in {where} of {store.path}{hint}")
    if outside:
        more = "or more " if outside == _MOST_COUNTED else ""
        note(f"{count_text(outside)} {more}of its messages are outside of --from and --to")
    reach = index_reach(store)
    begin, end = store.min_physical_offset, store.max_physical_offset
    if reach.get("damaged"):
        note("the first or the last index file is damaged, which `mqstore verify` names")
        return
    if "end_timestamp_ms" not in reach:
        why = "index files that do not fit the settings" if reach["files"] else "no index files"
        read = (
            f"the log was read instead, {size_text(end - begin)}"
            if what.exact
            else "nothing was read"
        )
        note(f"there are {why}: {read}")
        return
    first, last = reach["begin_timestamp_ms"], reach["end_timestamp_ms"]
    assert isinstance(first, int)  # noqa: S101 - made above
    assert isinstance(last, int)  # noqa: S101
    note(
        f"the index reaches from {time_text(first)} to {time_text(last)}, its last message begins "
        f"at {reach['end_physical_offset']}; the log ends at {end}"
    )
    behind = max(end - store.dispatched_offset, 0)
    if behind and what.exact:
        note(f"the last {size_text(behind)} of the log, which the index lacks, were read instead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Sought):
    """The requested selection; ``None`` is no bound, and ``tags`` an expression.

    A key goes with ``topics``, ``limit``, ``begin_ms`` and ``end_ms`` only.

    Attributes:
        queue_id: Only queues of this number.
        offset: Where to begin: a queue offset with ``queue_id`` and one topic, else a physical
            offset. With ``reverse``, where to end.
        limit: How many messages.
        reverse: Newest first.
        grep: Pattern that the body must contain.
        skip_damage: Go on behind damage.
    """

    queue_id: int | None = None
    offset: int | None = None
    limit: int | None = None
    reverse: bool = False
    grep: _Pattern | None = None
    skip_damage: bool = False


class Selected:
    """The messages that were asked for, to be iterated once, and the damage skipped on the way."""

    def __init__(self, store: Store, what: Selection) -> None:
        self._scan: MessageScan | None = None
        self._ranges = 0
        self._bytes = 0
        if what.key is not None:
            self._source = _by_key(store, what)
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


def _by_key(store: Store, what: Selection) -> _Messages:
    # The newest come first, so a limit is of use to them only, and with a pattern nobody can say
    # how many are needed for so many matches.
    newest = what.limit if what.reverse and what.grep is None else None
    most = _MOST_OF_A_KEY if newest is None else newest
    result = query(store, what, most)
    if not result.complete:
        note(may_be_more(result))
    yield from result if what.reverse else reversed(result)


def _by_queue(store: Store, topic: str, queue_id: int, what: Selection) -> _Messages:
    queue = queue_of(store, topic, queue_id)
    if queue is None:
        return
    begin, end = queue.min_offset, queue.max_offset
    if what.offset is not None:
        begin = max(begin, what.offset)
    if what.begin_ms is not None:
        begin = max(begin, store.offset_at(topic, queue_id, what.begin_ms))
    chunks = range(begin, end, _QUEUE_CHUNK)
    for chunk in reversed(chunks) if what.reverse else chunks:
        stop = min(chunk + _QUEUE_CHUNK, end)
        read = messages_of_queue(store, topic, queue_id, chunk, stop, tags=what.tags)
        # With tags a read may go on behind the end.
        messages = (one for one in read if one.queue_offset < stop and _in_time(one, what))
        yield from reversed(list(messages)) if what.reverse else messages


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


def _forwards(store: Store, what: Selection, found: Selected) -> _Messages:
    scan = found.follow(_scan(store, what, what.offset, None))
    begin = scan.physical_offset
    with progress("reading the log", beside_output=True) as advance:
        for message in scan:
            yield message
            advance(scan.physical_offset - begin, scan.stop_physical_offset - begin)


def _backwards(store: Store, what: Selection, found: Selected) -> _Messages:
    """Selected messages from the log's end, a window at a time, so that memory stays bounded."""
    begin = store.min_physical_offset if what.offset is None else what.offset
    end = store.max_physical_offset
    with progress("reading the log", beside_output=True) as advance:
        for start in reversed(range(begin, end, _WINDOW_BYTES)):
            window = list(found.follow(_scan(store, what, start, min(start + _WINDOW_BYTES, end))))
            while window:
                yield window.pop()
            advance(end - start, end - begin)
