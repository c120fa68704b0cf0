"""Queues that a consumer group has taken, and its messages in flight."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING

from mqstore.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore._native import Store, StoredMessage, _GroupPlaces

__all__ = ["InFlight", "QueueKey", "TakenQueue"]

QueueKey = tuple[str, int]


class TakenQueue:
    """A queue that the group has taken: the next place to read, and messages in flight."""

    __slots__ = ("began", "deadline", "place", "returned", "waiting")

    def __init__(self, place: int) -> None:
        self.began = self.place = place
        # Physical offsets, each with the place of a group that has not done the message.
        self.waiting: dict[int, int] = {}
        # Those of them that nobody has seen, by their places; the first to come again.
        self.returned: dict[int, tuple[StoredMessage, str | None, int]] = {}
        self.deadline = float("inf")


class InFlight:
    """The queues and messages that a consumer group has now; all use is under its lock."""

    __slots__ = ("__weakref__", "_flight", "_lock", "_open", "_places", "_store", "_turn")

    def __init__(self, store: Store, places: _GroupPlaces) -> None:
        self._store = store
        self._places = places
        self._open: dict[QueueKey, TakenQueue] = {}
        self._flight: dict[int, QueueKey] = {}
        self._turn: dict[str, int] = {}
        self._lock = threading.RLock()

    def _next(
        self, topic: str, max_messages: int, tags: str | None
    ) -> list[tuple[QueueKey, StoredMessage, int, int]]:
        """Reads messages without moving: the queue, the message, the places before and behind."""
        found: list[tuple[QueueKey, StoredMessage, int, int]] = []
        if self._store.mode == "r":
            self._store.refresh()
        with self._lock:
            self._expire()
            queues = self._places.queues(topic)
            last = self._turn.get(topic, -1)
            for queue_id in sorted(queues, key=lambda queue_id: (queue_id <= last, queue_id)):
                if found and len(found) >= max_messages:
                    break
                key = (topic, queue_id)
                queue = self._take(key)
                if queue is None:
                    continue
                for before, (message, of_tags, after) in list(queue.returned.items()):
                    if of_tags == tags and len(found) < max_messages:
                        found.append((key, message, before, after))
                room = max_messages - len(found)
                got, places, end = self._places.read(topic, queue_id, queue.place, room, tags)
                if got:
                    found += zip([key] * len(got), got, places, [*places[1:], end], strict=True)
                    self._turn[topic] = queue_id
                elif end != queue.place:
                    queue.place = end  # all that was there is skipped
                elif not queue.waiting and queue.place == queue.began:
                    self._release(key)
        return found

    def _take(self, key: QueueKey) -> TakenQueue | None:
        queue = self._open.get(key)
        if queue is None:
            place = self._places.take(*key)
            if place is None:
                return None
            queue = self._open[key] = TakenQueue(place)
        return queue

    def _release(self, key: QueueKey) -> None:
        self._drop_flight(key)
        del self._open[key]
        self._places.release(*key)

    def _drop_flight(self, key: QueueKey) -> list[int]:
        """Forgets which messages of a queue are in flight, and gives their physical offsets."""
        dropped = [at for at in self._open[key].waiting if self._flight.get(at) == key]
        for physical_offset in dropped:
            del self._flight[physical_offset]
        return dropped

    def _fly(self, key: QueueKey, message: StoredMessage, before: int, after: int) -> StoredMessage:
        queue = self._open[key]
        queue.place = max(queue.place, after)
        queue.returned.pop(before, None)
        queue.waiting[message.physical_offset] = before
        self._flight[message.physical_offset] = key
        return message

    def _land(self, message: StoredMessage) -> QueueKey | None:
        key = self._flight.pop(message.physical_offset, None)
        if key is not None:
            del self._open[key].waiting[message.physical_offset]
        return key

    def skip(self, message: StoredMessage) -> None:
        """Counts a message as done without a commit; the next one makes it durable."""
        with self._lock:
            self._land(message)

    def give_back(self, messages: list[StoredMessage], *, tags: str | None = None) -> None:
        """Keeps messages in flight, which nobody has worked on, for the next ``poll``.

        Args:
            messages: Messages of one ``poll``.
            tags: The tag expression of that ``poll``, and of the next.
        """
        with self._lock:
            for message in messages:
                key = self._flight.pop(message.physical_offset, None)
                if key is not None:
                    queue = self._open[key]
                    before = queue.waiting[message.physical_offset]
                    queue.returned[before] = (message, tags, queue.place)

    def _hide(self, keys: set[QueueKey], seconds: float) -> None:
        for key in keys:
            self._open[key].deadline = time.monotonic() + seconds
        timer = threading.Timer(seconds, _call, [weakref.WeakMethod(self._expire_late)])
        timer.daemon = True
        timer.start()

    def _expire_late(self) -> None:
        try:
            with self._lock:
                self._expire()
        except StoreClosedError:
            return
        except StoreError:
            logging.getLogger("mqstore").exception("group %s", self._places.name)

    def _expire(self) -> None:
        now = time.monotonic()
        for key, queue in list(self._open.items()):
            if queue.waiting and queue.deadline <= now:
                queue.place = next(iter(queue.waiting.values()))
                self._settle(key, queue)

    def _settle(self, key: QueueKey, queue: TakenQueue) -> None:
        """Commits a queue's place, and lets other processes take it."""
        if queue.place != queue.began:
            self._places.seek(*key, queue.place)
            self._places.commit()
        self._release(key)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()
