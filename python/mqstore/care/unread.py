"""Messages that consumer groups have not taken: those that are there, and those deleted before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqstore.errors import CorruptionError, NotDispatchedError, StoreError
from mqstore.store import below, root_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import GroupOffset, Store

OFFSET_TABLES = ("consumerOffset.json", "lmqConsumerOffset.json")
"""Files of consumer offsets below ``config``."""


def offsets_by_topic(store: Store) -> dict[tuple[str, str], list[GroupOffset]]:
    """The offsets of each group in each topic, sorted by both."""
    found: dict[tuple[str, str], list[GroupOffset]] = {}
    for group, offsets in store.groups().items():
        for offset in offsets:
            found.setdefault((group, offset.topic), []).append(offset)
    return dict(sorted(found.items()))


class Deleted:
    """Counts the deleted messages of a store that groups had not taken."""

    def __init__(self, store: Store) -> None:
        self.firsts: dict[str, dict[int, int]] = {}
        """First offset of each queue, by topic, where messages were deleted."""
        for queue in store.queues():
            if queue.min_offset > 0:
                self.firsts.setdefault(queue.topic, {})[queue.queue_id] = queue.min_offset

    def first(self, offset: GroupOffset) -> int:
        """First offset of a group's queue that is still there."""
        return self.firsts.get(offset.topic, {}).get(offset.queue_id, 0)

    def in_queue(self, offset: GroupOffset) -> int:
        """Deleted messages of a queue that the group had not taken."""
        # A broker takes a negative offset for none.
        return max(self.first(offset) - max(offset.queue_offset, 0), 0)

    def in_topic(self, topic: str, offsets: Iterable[GroupOffset]) -> int:
        """Deleted messages of a topic that a group with these offsets had not taken.

        A queue without an offset counts, as in the notice of a deletion.
        """
        places = {at.queue_id: max(at.queue_offset, 0) for at in offsets}
        firsts = self.firsts.get(topic, {})
        return sum(max(first - places.get(queue, 0), 0) for queue, first in firsts.items())


class GroupReader:
    """How far groups are behind, as rows, and what could not be read for them.

    Args:
        store: The store.
        passed: Errors at a message that are noted in ``unreadable``; others are raised.
    """

    def __init__(
        self,
        store: Store,
        passed: tuple[type[StoreError], ...] = (CorruptionError, NotDispatchedError),
    ) -> None:
        self._store = store
        self._passed = passed
        self._deleted = Deleted(store)
        files = (below(root_of(store), "config", name) for name in OFFSET_TABLES)
        written = [file.stat().st_mtime_ns // 1_000_000 for file in files if file.is_file()]
        self._written_ms = max(written, default=None)
        self.unreadable: list[str] = []
        self.found = False

    def queues(self, group: str | None) -> Iterator[dict[str, Any]]:
        """A row for each queue of a group."""
        for name, offsets in sorted(self._store.groups().items()):
            if group in {None, name}:
                yield from (self._row(name, offset) for offset in offsets)

    def topics(self, group: str | None) -> Iterator[dict[str, Any]]:
        """A row for each topic of a group."""
        for (name, topic), offsets in offsets_by_topic(self._store).items():
            if group not in {None, name}:
                continue
            queues = [self._row(name, offset) for offset in offsets]
            oldest = (queue["oldest_unread_timestamp_ms"] for queue in queues)
            yield {
                "group": name,
                "topic": topic,
                "queues": len(queues),
                "lag": sum(queue["lag"] for queue in queues),
                "oldest_unread_timestamp_ms": min(
                    (time_ms for time_ms in oldest if time_ms is not None), default=None
                ),
                "deleted_unread": self._deleted.in_topic(topic, offsets),
                "negative": any(queue["negative"] for queue in queues),
                "beyond_end": sum(queue["beyond_end"] for queue in queues),
                "offsets_timestamp_ms": self._written_ms,
            }

    def _row(self, group: str, offset: GroupOffset) -> dict[str, Any]:
        self.found = True
        return {
            "group": group,
            **{name: getattr(offset, name) for name in offset.__match_args__},
            "oldest_unread_timestamp_ms": self._oldest_ms(offset),
            "deleted_unread": self._deleted.in_queue(offset),
            "negative": offset.queue_offset < 0,
            "beyond_end": max(offset.queue_offset - offset.max_offset, 0),
            "offsets_timestamp_ms": self._written_ms,
        }

    def _oldest_ms(self, offset: GroupOffset) -> int | None:
        """When the first message was stored that the group has not taken."""
        begin = max(offset.queue_offset, self._deleted.first(offset))
        if begin >= offset.max_offset:
            return None
        try:
            read = self._store.read(offset.topic, offset.queue_id, begin, max_messages=1)
        except self._passed as error:
            self.unreadable.append(str(error))
            return None
        return read.messages[0].store_timestamp_ms if read.messages else None
