"""A handler over the messages of a topic: ``ConsumerGroup.process``."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqstore.errors import StoreClosedError
from mqstore.groups.failed import Failed, send_back
from mqstore.groups.in_flight import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqstore._native import StoredMessage
    from mqstore.groups.group import ConsumerGroup
    from mqstore.groups.in_flight import OnLoss, QueueKey

    Stops = Sequence[threading.Event]

_COMMIT_S = 1.0
_SLICE_S = 0.05
# A look at all queues though the log did not grow: another process may have released one.
_CHECK_S = 0.5
_NOT_AWAITED = (
    "handler: expected a function, got one whose coroutine nobody would run; mqstore.aio.open "
    "gives groups that await it"
)
_LOG = logging.getLogger("mqstore")


class Interrupted(BaseException):
    """A handler was stopped: its message neither failed nor is done."""


@dataclass(frozen=True, slots=True)
class Processed:
    """Result of ``ConsumerGroup.process``.

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


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages of one queue in hand; all use is under its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: list[Failed] = field(default_factory=list)
    sent_s: float = field(default_factory=time.monotonic)
    # The error of failures that could not be sent back, which is not tried again.
    error: BaseException | None = None


@dataclass(eq=False)
class Processing:
    """One call of ``process``; its threads take queue after queue."""

    _group: ConsumerGroup
    _topic: str
    _handler: Callable[[StoredMessage], object]
    _level: Callable[[StoredMessage], int]
    _max_messages: int
    _tags: str | None
    _ordered: bool
    _on_loss: OnLoss

    def __post_init__(self) -> None:
        self._store = self._group._store  # noqa: SLF001 - of this package
        self._topics = list(dict.fromkeys([self._topic, self._group.retry_topic]))
        self._done = Processed()
        self._lock = threading.Lock()
        self._batches: set[_Batch] = set()
        self._error: BaseException | None = None
        self._last_s = time.monotonic()
        self._reported: set[str] = set()

    def run(self, concurrency: int, stop: threading.Event, idle_s: float) -> Processed:
        """Works until it is told to stop, the store is closed, or nothing came for `idle_s`."""
        halt = threading.Event()  # `stop` is the caller's
        self._threads = concurrency
        self._group._handled.append(self._topic)  # noqa: SLF001 - of this package
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
            self._group._handled.remove(self._topic)  # noqa: SLF001 - of this package
            with contextlib.suppress(StoreClosedError):
                self._group._commit_progress()  # noqa: SLF001 - of this package
        return self._done

    def _run_threads(self, concurrency: int, stops: Stops, idle_s: float) -> None:
        threads: list[threading.Thread] = []
        try:
            for number in range(concurrency):
                given = (number, stops, idle_s)
                thread = threading.Thread(target=self._guarded, args=given, daemon=True)
                thread.start()
                threads.append(thread)
            for thread in threads:
                thread.join()
        finally:
            stops[-1].set()
            for thread in threads:
                thread.join()
        if self._error is not None:
            raise self._error

    def _guarded(self, number: int, stops: Stops, idle_s: float) -> None:
        try:
            self._work(number, stops, idle_s)
        except BaseException as error:
            self._error = self._error or error
            stops[-1].set()

    def _work(self, number: int, stops: Stops, idle_s: float) -> None:
        checked_s = 0.0
        try:
            while not any(stop.is_set() for stop in stops):
                end = self._store._readable_end  # noqa: SLF001 - a part of the store
                self._store._refresh_if_grown()  # noqa: SLF001 - a part of the store
                checked_s = time.monotonic()
                if self._take_turns(number, stops):
                    self._last_s = time.monotonic()
                    continue
                while not any(stop.is_set() for stop in stops):
                    if time.monotonic() - self._last_s >= idle_s:
                        return
                    grown = self._store.wait(end, timeout_s=min(_SLICE_S, idle_s))
                    if grown or time.monotonic() - checked_s > _CHECK_S:
                        break
        except StoreClosedError:
            return

    def _take_turns(self, number: int, stops: Stops) -> bool:
        """Takes each queue that no other thread or process has; whether there was a message."""
        group, found = self._group, False
        for topic in self._topics:
            queues = group._places.queues(topic)  # noqa: SLF001 - of this package
            if topic == self._topic:
                group._name_missing(topic, queues)  # noqa: SLF001 - of this package
            first = number % len(queues) if queues else 0
            for queue_id in queues[first:] + queues[:first]:
                # Retries come from other topics of the group, too.
                tags = self._tags if topic == self._topic else None
                asked = Asked(tags, self._on_loss, self._is_wanted)
                taken = group._take_in_hand(  # noqa: SLF001 - of this package
                    (topic, queue_id), self._max_messages, asked, ordered=self._ordered
                )
                if taken:
                    found = True
                    self._report_idle_threads(topic, len(queues))
                    self._handle((topic, queue_id), taken, tags, stops)
        return found

    def _is_wanted(self, message: StoredMessage) -> bool:
        """Whether no other call of ``process`` in this group has the message's topic."""
        origin = message.properties.get("RETRY_TOPIC", self._topic)
        if origin == self._topic or self._topic == self._group.retry_topic:
            return True
        if origin in self._group._handled:  # noqa: SLF001 - of this package
            return False
        if origin not in self._reported:
            self._reported.add(origin)
            _LOG.warning(
                "group %s: the handler of topic %s gets retries of topic %s: all topics of a group "
                "share %s, so each of its processes must handle the same topics, as in RocketMQ "
                "(one group, one subscription); give each topic a group of its own",
                self._group.name,
                self._topic,
                origin,
                self._group.retry_topic,
            )
        return True

    def _report_idle_threads(self, topic: str, queues: int) -> None:
        if topic != self._topic or not self._ordered or self._threads <= queues:
            return
        with self._lock:
            threads, self._threads = self._threads, 0
        if threads:
            _LOG.warning(
                "group %s: concurrency=%d: topic %s has messages in %d queues, each of which one "
                "thread handles in order; append with queue_id=None to use more queues, or give "
                "ordered=False",
                self._group.name,
                threads,
                topic,
                queues,
            )

    def _handle(
        self, key: QueueKey, messages: list[StoredMessage], tags: str | None, stops: Stops
    ) -> None:
        batch, left = _Batch(), list(reversed(messages))
        with self._lock:
            self._batches.add(batch)
        try:
            while left and not self._must_end(stops):
                try:
                    failed = self._call(left[-1])
                except Interrupted:
                    break
                if failed is None:
                    self._finish([left[-1]], handled=1)
                    left.pop()
                    continue
                left.pop()
                with batch.lock:
                    batch.failed.append(failed)
                    if time.monotonic() - batch.sent_s > _COMMIT_S:
                        self._send(batch)
        finally:
            with batch.lock:
                with self._lock:
                    self._batches.discard(batch)
                try:
                    self._send(batch)
                finally:
                    rest = [one.message for one in batch.failed] + left[::-1]
                    self._group._put_down(key, rest, tags)  # noqa: SLF001 - of this package

    def _must_end(self, stops: Stops) -> bool:
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
                        self._send(batch)

    def _send(self, batch: _Batch) -> None:
        """Sends failed messages back, which are done then."""
        if batch.error is not None:
            raise batch.error
        if not batch.failed:
            return
        try:
            # Retries are durable before the offset that passes their messages.
            self._group._places.check_place()  # noqa: SLF001 - of this package
            dead = send_back(self._store, self._group.name, batch.failed)
            sent, batch.failed = [one.message for one in batch.failed], []
            try:
                self._finish(sent, retried=len(sent) - dead, dead=dead)
            except BaseException:
                # Their retries are written: given back, they would get others.
                self._group._pass(sent)  # noqa: SLF001 - of this package
                raise
        except BaseException as error:
            batch.error = error
            raise
        batch.sent_s = time.monotonic()

    def _finish(
        self, messages: list[StoredMessage], handled: int = 0, retried: int = 0, dead: int = 0
    ) -> None:
        self._group._finish(messages)  # noqa: SLF001 - of this package
        with self._lock:
            was = self._done
            self._done = Processed(was.handled + handled, was.retried + retried, was.dead + dead)
