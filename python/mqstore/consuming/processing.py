"""A handler over the messages of a topic: ``ConsumerGroup.process``."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqstore.consuming.failed import Failed, send_back
from mqstore.errors import StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqstore._native import Store, StoredMessage, _GroupPlaces

__all__ = ["Interrupted", "Processed", "Processing"]

_COMMIT_S = 1.0
_SLICE_S = 0.05
# A look at all queues though the log did not grow: another process may have released one.
_LOOK_S = 0.5
_NOT_AWAITED = (
    "handler: expected a function, got one whose coroutine nobody would run; mqstore.aio.open "
    "gives groups that await it"
)
_LOG = logging.getLogger("mqstore")


class Interrupted(BaseException):
    """A handler was stopped: its message neither failed nor is done."""


@dataclass(frozen=True, slots=True)
class Processed:
    """What ``ConsumerGroup.process`` did.

    Attributes:
        handled: Messages whose handler returned.
        retried: Messages that failed and are tried again later.
        dead: Messages that failed for the last time.
    """

    handled: int = 0
    retried: int = 0
    dead: int = 0


def check_handler(handler: object, *, is_awaited: bool) -> None:
    """Refuses what ``process`` cannot call, and coroutine functions that nobody awaits.

    Raises:
        TypeError: It is such a handler.
    """
    if not callable(handler):
        found = type(handler).__name__
        raise TypeError(f"handler: expected a function of one message, got {found}")
    if not is_awaited and inspect.iscoroutinefunction(handler):
        raise TypeError(_NOT_AWAITED)


class Processing:
    """One call of ``process``; its threads take queue after queue."""

    def __init__(
        self,
        store: Store,
        places: _GroupPlaces,
        topics: Sequence[str],
        handler: Callable[[StoredMessage], object],
        level: Callable[[StoredMessage], int],
        max_messages: int,
        tags: str | None,
    ) -> None:
        self._store, self._places, self._topics = store, places, topics
        self._handler, self._level = handler, level
        self._max_messages, self._tags = max_messages, tags
        self._done = Processed()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._last_s = time.monotonic()

    def run(self, concurrency: int, stop: threading.Event, idle_s: float) -> Processed:
        """Works until it is told to stop, the store is closed, or nothing came for `idle_s`."""
        if concurrency == 1:
            self._work(0, (stop,), idle_s)
            return self._done
        halt = threading.Event()  # `stop` is the caller's
        threads = [
            threading.Thread(target=self._guarded, args=(number, (stop, halt), idle_s), daemon=True)
            for number in range(concurrency)
        ]
        started = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            for thread in threads:
                thread.join()
        finally:
            halt.set()
            for thread in started:
                thread.join()
        if self._error is not None:
            raise self._error
        return self._done

    def _guarded(
        self, number: int, stops: tuple[threading.Event, threading.Event], idle_s: float
    ) -> None:
        try:
            self._work(number, stops, idle_s)
        except BaseException as error:
            self._error = self._error or error
            stops[-1].set()

    def _work(self, number: int, stops: Sequence[threading.Event], idle_s: float) -> None:
        looked_s = 0.0
        try:
            while not any(stop.is_set() for stop in stops):
                end = self._store._readable_end  # noqa: SLF001 - a part of the store
                self._store._refresh_if_grown()  # noqa: SLF001 - a part of the store
                looked_s = time.monotonic()
                if self._take_turns(number, stops):
                    self._last_s = time.monotonic()
                    continue
                while not any(stop.is_set() for stop in stops):
                    if time.monotonic() - self._last_s >= idle_s:
                        return
                    grown = self._store.wait(end, timeout_s=min(_SLICE_S, idle_s))
                    if grown or time.monotonic() - looked_s > _LOOK_S:
                        break
        except StoreClosedError:
            return

    def _take_turns(self, number: int, stops: Sequence[threading.Event]) -> bool:
        """Takes each queue that no other thread or process has; whether there was a message."""
        found = False
        for topic in self._topics:
            queues = self._places.queues(topic)
            first = number % len(queues) if queues else 0
            for queue_id in queues[first:] + queues[:first]:
                place = self._places.take(topic, queue_id)
                if place is not None:
                    try:
                        found |= self._handle(topic, queue_id, place, stops)
                    finally:
                        self._places.release(topic, queue_id)
        return found

    def _handle(
        self, topic: str, queue_id: int, place: int, stops: Sequence[threading.Event]
    ) -> bool:
        # Retries come from other topics of the group, too.
        tags = self._tags if topic == self._topics[0] else None
        read = self._places.read(topic, queue_id, place, self._max_messages, tags)
        messages, places, end = read
        todo = zip(messages, [*places[1:], end], strict=False)
        done = end if not messages else place
        is_over = False
        while not is_over:
            failed: list[Failed] = []
            handled, begun_s = 0, time.monotonic()
            try:
                is_over = True
                for message, after in todo:
                    if self._must_end(stops):
                        break
                    try:
                        handled += self._call(message, failed)
                    except Interrupted:
                        break
                    done = after
                    if time.monotonic() - begun_s > _COMMIT_S:
                        is_over = False
                        break
            finally:
                place = self._commit(topic, queue_id, place, done, failed, handled)
        return bool(messages)

    def _must_end(self, stops: Sequence[threading.Event]) -> bool:
        closed = self._store._is_closed  # noqa: SLF001 - a part of the store
        return closed or any(stop.is_set() for stop in stops)

    def _call(self, message: StoredMessage, failed: list[Failed]) -> int:
        try:
            result = self._handler(message)
        except Exception:
            one = Failed(message, self._level(message))
            what = "is tried again" if one.level else "is a dead letter now"
            _LOG.warning("message %s failed and %s", message.message_id, what, exc_info=True)
            failed.append(one)
            return 0
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(_NOT_AWAITED)
        return 1

    def _commit(
        self, topic: str, queue_id: int, place: int, done: int, failed: list[Failed], handled: int
    ) -> int:
        # Retries are durable before the offset that passes their messages.
        retried = dead = 0
        if failed:
            dead = send_back(self._store, self._places.name, failed)
            retried = len(failed) - dead
        if done != place:
            self._places.seek(topic, queue_id, done)
            self._places.commit()
        with self._lock:
            was = self._done
            self._done = Processed(was.handled + handled, was.retried + retried, was.dead + dead)
        return done
