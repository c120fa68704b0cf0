"""A handler over the messages of a topic: ``ConsumerGroup.process``."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqstore.errors import StoreClosedError
from mqstore.groups.failed import Failed, send_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqstore._native import StoredMessage, _GroupPlaces
    from mqstore.store import Store

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


class _Batch:
    """Messages of one queue in hand; all use is under its lock."""

    __slots__ = (
        "committed_s",
        "done",
        "error",
        "failed",
        "handled",
        "lock",
        "place",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, place: int, done: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.lock = threading.Lock()
        # The committed place, and the one behind the last message that was handled.
        self.place, self.done = place, done
        self.failed: list[Failed] = []
        self.handled = 0
        self.committed_s = time.monotonic()
        # The error of a failed commit, which is not tried again.
        self.error: BaseException | None = None


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
        self._batches: set[_Batch] = set()
        self._error: BaseException | None = None
        self._last_s = time.monotonic()

    def run(self, concurrency: int, stop: threading.Event, idle_s: float) -> Processed:
        """Works until it is told to stop, the store is closed, or nothing came for `idle_s`."""
        halt = threading.Event()  # `stop` is the caller's
        commits = threading.Thread(target=self._commit_by_time, args=(halt,), daemon=True)
        commits.start()
        try:
            if concurrency == 1:
                self._work(0, (stop,), idle_s)
            else:
                self._run_threads(concurrency, (stop, halt), idle_s)
        finally:
            halt.set()
            commits.join()
        return self._done

    def _run_threads(
        self, concurrency: int, stops: tuple[threading.Event, threading.Event], idle_s: float
    ) -> None:
        threads = [
            threading.Thread(target=self._guarded, args=(number, stops, idle_s), daemon=True)
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
            stops[-1].set()
            for thread in started:
                thread.join()
        if self._error is not None:
            raise self._error

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
        messages, spans, end = read
        batch = _Batch(topic, queue_id, place, place if messages else end)
        with self._lock:
            self._batches.add(batch)
        try:
            places = [*(before for before, _ in spans[1:]), end]
            for message, after in zip(messages, places, strict=False):
                if self._must_end(stops):
                    break
                try:
                    failed = self._call(message)
                except Interrupted:
                    break
                with batch.lock:
                    batch.done = after
                    batch.handled += failed is None
                    batch.failed += [] if failed is None else [failed]
                    if time.monotonic() - batch.committed_s > _COMMIT_S:
                        self._commit(batch)
        finally:
            with batch.lock:
                with self._lock:
                    self._batches.discard(batch)
                self._commit(batch)
        return bool(messages)

    def _must_end(self, stops: Sequence[threading.Event]) -> bool:
        closed = self._store._is_closed  # noqa: SLF001 - a part of the store
        return closed or any(stop.is_set() for stop in stops)

    def _call(self, message: StoredMessage) -> Failed | None:
        try:
            result = self._handler(message)
        except Exception:
            one = Failed(message, self._level(message))
            what = "is tried again" if one.level else "is a dead letter now"
            _LOG.warning("message %s failed and %s", message.message_id, what, exc_info=True)
            return one
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(_NOT_AWAITED)
        return None

    def _commit_by_time(self, halt: threading.Event) -> None:
        """Commits what was handled while a handler is at work."""
        while not halt.wait(_COMMIT_S):
            with self._lock:
                batches = list(self._batches)
            for batch in batches:
                # The thread that handles the queue raises the error again.
                with batch.lock, contextlib.suppress(Exception):
                    if batch in self._batches:
                        self._commit(batch)

    def _commit(self, batch: _Batch) -> None:
        if batch.error is not None:
            raise batch.error
        try:
            self._commit_once(batch)
        except BaseException as error:
            batch.error = error
            raise

    def _commit_once(self, batch: _Batch) -> None:
        # Retries are durable before the offset that passes their messages.
        retried = dead = 0
        if batch.failed:
            self._places.check_place()
            dead = send_back(self._store, self._places.name, batch.failed)
            retried = len(batch.failed) - dead
            batch.failed = []
        if batch.done != batch.place:
            self._places.advance(batch.topic, batch.queue_id, batch.done, [], batch.done)
            self._places.commit()
            batch.place = batch.done
        handled, batch.handled = batch.handled, 0
        batch.committed_s = time.monotonic()
        with self._lock:
            was = self._done
            self._done = Processed(was.handled + handled, was.retried + retried, was.dead + dead)
