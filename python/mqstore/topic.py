"""One topic of a store as a whole: ``Store.topic`` returns a ``Topic``."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import TYPE_CHECKING

from mqstore.errors import expect, expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mqstore._native import QueueInfo, StoredMessage
    from mqstore.store import Store

__all__ = ["Topic"]

_AT_ONCE = 256
_BYTES_AT_ONCE = 4 << 20


class Topic:
    """The messages of one topic in all of its queues, in the order in which they were stored.

    Iteration gives the messages that are there when it begins. ``len`` counts queue entries.

    Args:
        store: The store.
        name: Name of the topic; it need not be there yet.

    Examples:
        >>> import mqstore, tempfile
        >>> with mqstore.open(tempfile.mkdtemp(), "a") as store:
        ...     for number in range(3):
        ...         _ = store.append("orders", str(number).encode(), queue_id=number % 2)
        ...     orders = store.topic("orders")
        ...     len(orders), [m.body for m in orders], [m.body for m in orders.latest(2)]
        (3, [b'0', b'1', b'2'], [b'2', b'1'])
    """

    __slots__ = ("_name", "_store")

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._name

    @property
    def queues(self) -> list[QueueInfo]:
        """The topic's queues."""
        return self._store.queues(self._name)

    def __len__(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[StoredMessage]:
        return self._merged({queue.queue_id: queue.min_offset for queue in self.queues})

    def latest(self, n: int = 1, *, tags: str | None = None) -> list[StoredMessage]:
        """The `n` newest messages, newest first.

        Args:
            n: How many at most.
            tags: Only messages that match this tag expression.

        Raises:
            ValueError: `n` is below 0.
        """
        expect("n", n, int, "int")
        if n < 0:
            raise ValueError(expected("n", "0 or more", n))
        found: list[StoredMessage] = []
        for queue in self.queues:
            newest: list[StoredMessage] = []
            end, step = queue.max_offset, n
            # Steps grow, as tags leave some out.
            while end > queue.min_offset and len(newest) < n:
                begin = max(queue.min_offset, end - step)
                newest = [*self._of_queue(queue.queue_id, begin, end, tags), *newest]
                end, step = begin, 2 * step
            found += newest[-n:]
        return heapq.nlargest(n, found, key=_place)

    def since(self, when: datetime | int, *, tags: str | None = None) -> Iterator[StoredMessage]:
        """Messages stored at a time or later.

        Each queue is searched for its first one, which needs store times that rise along it:
        ``scan(begin_ms=...)`` looks at every message instead.

        Args:
            when: A ``datetime`` with a time zone, or Unix milliseconds.
            tags: Only messages that match this tag expression.

        Raises:
            ValueError: A ``datetime`` without a time zone, or a time in seconds.
        """
        begins = {
            queue.queue_id: self._store.offset_at(self._name, queue.queue_id, when)
            for queue in self.queues
        }
        return self._merged(begins, tags)

    def from_offset(
        self, physical_offset: int, *, tags: str | None = None
    ) -> Iterator[StoredMessage]:
        """Messages that lie at a physical offset or behind it, such as that of the last one seen.

        Args:
            physical_offset: A byte position in the commit log.
            tags: Only messages that match this tag expression.
        """
        expect("physical_offset", physical_offset, int, "int")
        begins = {
            queue.queue_id: self._first_behind(queue, physical_offset) for queue in self.queues
        }
        return self._merged(begins, tags)

    def __repr__(self) -> str:
        return f"<Topic {self._name!r} of {self._store.path!r}>"

    def _merged(self, begins: dict[int, int], tags: str | None = None) -> Iterator[StoredMessage]:
        ends = {queue.queue_id: queue.max_offset for queue in self.queues}
        parts = [
            self._of_queue(queue_id, begin, ends.get(queue_id, begin), tags)
            for queue_id, begin in begins.items()
        ]
        return heapq.merge(*parts, key=_place)

    def _of_queue(
        self, queue_id: int, offset: int, end: int, tags: str | None
    ) -> Iterator[StoredMessage]:
        for message in messages_of_queue(self._store, self._name, queue_id, offset, end, tags=tags):
            # With tags a read may go on behind the end.
            if self._number(message) < end:
                yield message

    def _number(self, message: StoredMessage) -> int:
        """The queue offset in this topic, which may be a light queue."""
        if message.topic == self._name:
            return message.queue_offset
        return dict(message.multi_dispatch).get(self._name, message.queue_offset)

    def _first_behind(self, queue: QueueInfo, physical_offset: int) -> int:
        def is_behind(at: int) -> bool:
            found = self._store.read(self._name, queue.queue_id, at, max_messages=1).messages
            return bool(found) and found[0].physical_offset >= physical_offset

        begin, end = queue.min_offset, queue.max_offset
        return bisect_left(range(end), x=True, lo=begin, hi=end, key=is_behind)


def queue_of(store: Store, topic: str, queue_id: int) -> QueueInfo | None:
    """Returns a queue of a store; ``None`` where there is none of that name."""
    return next((one for one in store.queues(topic) if one.queue_id == queue_id), None)


def messages_of_queue(
    store: Store, topic: str, queue_id: int, offset: int, end: int, *, tags: str | None = None
) -> Iterator[StoredMessage]:
    """Reads a queue from an offset on, in steps of bounded size."""
    while offset < end:
        result = store.read(
            topic,
            queue_id,
            offset,
            max_messages=min(_AT_ONCE, end - offset),
            max_bytes=_BYTES_AT_ONCE,
            tags=tags,
        )
        yield from result.messages
        if result.next_queue_offset <= offset:
            return
        offset = result.next_queue_offset


def _place(message: StoredMessage) -> int:
    return message.physical_offset
