"""Messages by key in several topics, through the index or in one pass over the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mqstore import Store, StoredMessage

_MOST_FOUND = 64
# A longer part of the log that the index lacks is read once for all topics, not for each.
_MOST_BEHIND = 16 << 20


def topics_of(message: StoredMessage) -> tuple[str, ...]:
    """Returns the topic of a message, and the one that a waiting or failed one is for."""
    names = (message.topic, message.real_topic, message.properties.get("RETRY_TOPIC"))
    return tuple(name for name in names if name is not None)


def unread_text(unread: Iterable[tuple[int, int]]) -> str:
    """Returns which parts of the log were not read, to follow a sentence; empty without any."""
    parts = ", ".join(f"{begin} to {end}" for begin, end in unread)
    return f"; not read: physical offsets {parts}" if parts else ""


def with_key(
    store: Store, key: str, topics: Sequence[str]
) -> tuple[list[StoredMessage], bool, set[tuple[int, int]]]:
    """Returns the newest messages with a key or unique key.

    Also whether there are more, and the parts of the log that could not be read.
    """
    found: dict[int, StoredMessage] = {}
    truncated = False
    unread: set[tuple[int, int]] = set()
    behind = store.max_physical_offset - store.dispatched_offset
    if store.index_usable and behind <= _MOST_BEHIND:
        for topic in topics:
            result = store.query(topic, key, max_messages=_MOST_FOUND)
            truncated |= result.truncated
            unread.update(result.unread)
            found |= {message.physical_offset: message for message in result}
        return list(found.values()), truncated, unread
    every = store.scan(topics=list(topics), on_error="skip", decompress=False)
    for message in every if topics else ():
        if key == message.unique_key or key in message.keys:
            found[message.physical_offset] = message
            if len(found) > _MOST_FOUND:
                del found[min(found)]
                truncated = True
    return list(found.values()), truncated, set(store._losses)  # noqa: SLF001
