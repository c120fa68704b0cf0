"""Messages by key or tags in several topics, through the index or in one pass over the log."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqstore._native import parse_message_id
from mqstore.errors import StoreError
from mqstore.results import QueryResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mqstore import Store, StoredMessage

_MOST_FOUND = 64
# A longer part of the log that the index lacks is read once for all topics, not for each.
_MOST_BEHIND = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """A key or tags to be looked up; ``None`` is no bound.

    Attributes:
        topics: The topics; all where empty.
        key: The key, unique key or message id.
        tags: The whole text of the tags, in place of a key.
        begin_ms: First store time that counts.
        end_ms: Last store time that counts.
        exact: As for ``Store.query``.
    """

    topics: tuple[str, ...] = ()
    key: str | None = None
    tags: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    exact: bool = True

    def is_of(self, message: StoredMessage) -> bool:
        """Whether a message has the key or the tags."""
        if self.key is None:
            return self.tags == message.tags
        return self.key == message.unique_key or self.key in message.keys


def topics_of(message: StoredMessage) -> tuple[str, ...]:
    """Returns the topic of a message, and the one that a waiting or failed one is for."""
    names = (message.topic, message.real_topic, message.properties.get("RETRY_TOPIC"))
    return tuple(name for name in names if name is not None)


def unread_text(unread: Iterable[tuple[int, int]]) -> str:
    """Returns which parts of the log were not read, to follow a sentence; empty without any."""
    parts = ", ".join(f"{begin} to {end}" for begin, end in unread)
    return f"; not read: physical offsets {parts}" if parts else ""


def index_covers(store: Store) -> bool:
    """Whether the index leaves little of the log to be read beside it."""
    return store.index_usable and (
        store.max_physical_offset - store.dispatched_offset <= _MOST_BEHIND
    )


def with_key(store: Store, key: str, topics: Sequence[str]) -> QueryResult:
    """Returns the newest messages with a key or unique key, of each topic at most 64.

    Of all topics together it is as many, where the log is searched.
    """
    if index_covers(store):
        results = [store.query(topic, key, max_messages=_MOST_FOUND) for topic in topics]
        return merged(results, sys.maxsize)
    if not topics:
        # Where none is known, damage may have taken the messages.
        return QueryResult([], unread=store._losses)  # noqa: SLF001
    return from_log(store, Sought(topics=tuple(topics), key=key), _MOST_FOUND)


def merged(results: Sequence[QueryResult], most: int) -> QueryResult:
    """The results of several topics as one, newest first."""
    if len(results) == 1:
        return results[0]
    # A message in light queues is found in each of their topics.
    messages = {message.physical_offset: message for result in results for message in result}
    newest = sorted(messages.values(), key=lambda message: -message.physical_offset)
    return QueryResult(
        newest[:most],
        truncated=len(newest) > most or any(result.truncated for result in results),
        rejected_by_hash=sum(result.rejected_by_hash for result in results),
        rejected_by_time=sum(result.rejected_by_time for result in results),
        complete=all(result.complete for result in results),
        unread=sorted({part for result in results for part in result.unread}),
    )


def from_log(
    store: Store, what: Sought, most: int, advance: Callable[[int, int], object] | None = None
) -> QueryResult:
    """Searches the log in one pass, where the index would leave much of it to each topic."""
    scan = store.scan(
        topics=what.topics or None,
        begin_ms=what.begin_ms,
        end_ms=what.end_ms,
        on_error="skip",
        decompress=False,
    )
    begin = scan.physical_offset
    newest: deque[StoredMessage] = deque(maxlen=most + 1)
    for message in scan:
        if advance is not None:
            advance(scan.physical_offset - begin, scan.stop_physical_offset - begin)
        if what.is_of(message):
            newest.append(message)
    messages = list(newest)[::-1]
    return QueryResult(
        messages[:most],
        truncated=len(messages) > most,
        complete=not (scan.skipped_ranges or store._losses),  # noqa: SLF001
        unread=store._losses,  # noqa: SLF001
    )


def by_id(store: Store, text: str) -> StoredMessage | None:
    """The message with this id; ``None`` where the text is no id, or that of no message."""
    try:
        message = store.get(parse_message_id(text).physical_offset)
    except (StoreError, ValueError, LookupError):
        return None
    return message if message.message_id == text.upper() else None
