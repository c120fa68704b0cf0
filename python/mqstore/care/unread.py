"""Messages that were deleted before a consumer group took them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqstore import GroupOffset, Store


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
