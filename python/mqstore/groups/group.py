"""Consumer groups: ``Store.group`` returns a ``ConsumerGroup``."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from mqstore._native import StoredMessage
from mqstore.errors import (
    InvalidMessageError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
    check_argument,
    expect,
    expected,
)
from mqstore.groups.delays import level_for, milliseconds, seconds_or_ever
from mqstore.groups.failed import MAX_ATTEMPTS, Failed, check_delivery, levels_ms, send_back
from mqstore.groups.in_flight import Asked, InFlight, TakenQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mqstore._native import GroupOffset
    from mqstore.groups.delays import Seconds
    from mqstore.groups.in_flight import Found, OnLoss
    from mqstore.groups.processing import Processed

_AHEAD = 32
_SLICE_S = 0.05


class ConsumerGroup(InFlight):
    """A consumer group: reads topics, and keeps its place in each queue. See ``Store.group``.

    Offsets are stored in ``config/consumerOffset.json``, with ``enable_lmq`` in
    ``config/lmqConsumerOffset.json``, as in a broker. Without that setting the file changed last is
    used. A new topic is read from the first entry of each queue.

    Several processes may use a group, also with a store in mode ``"r"``, but not while a broker has
    the store open. A process has a queue for itself from ``poll`` until its messages are done; the
    system releases the queues of a process that ends.

    A message that was returned is in flight until ``ack``, ``nack`` or ``commit``, and comes again,
    here or elsewhere, after ``visibility_s``, ``close``, or the end of the process. Any number of
    threads may use a group.
    """

    @property
    def name(self) -> str:
        """Name of the group."""
        return self._places.name

    @property
    def retry_topic(self) -> str:
        """Topic of failed messages that are to be tried again, ``%RETRY%`` and the name."""
        return f"%RETRY%{self.name}"

    @property
    def dead_letter_topic(self) -> str:
        """Topic of messages that failed too often, ``%DLQ%`` and the name."""
        return f"%DLQ%{self.name}"

    def poll(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        tags: str | None = None,
        timeout_s: Seconds = 0,
        visibility_s: Seconds | None = None,
        on_loss: OnLoss = "warn",
    ) -> list[StoredMessage]:
        """Returns the next messages of a topic, its queues in turn.

        Args:
            topic: Name of the topic; ``retry_topic`` has the failed messages.
            max_messages: At most this many.
            tags: A tag expression; other messages are skipped.
            timeout_s: Waits up to so many seconds for the first message, of any process.
            visibility_s: After so many seconds messages in flight come again, to any process.
                ``None``: not while this group is open.
            on_loss: Where retention deleted messages before the group read them: ``"warn"`` says
                how many in a warning, ``"error"`` raises. Then nothing is taken; ``seek`` to go on.

        Returns:
            The messages, in order in each queue; empty after a timeout, and while other processes
            have the queues.

        Raises:
            OffsetOutOfRangeError: Messages were deleted, with ``on_loss="error"``.
            ValueError: ``max_messages`` below 0.
        """
        _check_on_loss(on_loss)
        expect("topic", topic, str, "str")
        expect("max_messages", max_messages, int, "int")
        if max_messages < 0:
            raise ValueError(expected("max_messages", "0 or more", max_messages))
        visible_ms = None if visibility_s is None else milliseconds(visibility_s, "visibility_s")
        deadline = time.monotonic() + seconds_or_ever(timeout_s, "timeout_s")
        while True:
            end = self._store._readable_end  # noqa: SLF001 - a part of the store
            with self._lock:
                found = self._next(topic, max_messages, Asked(tags, on_loss))
                if found:
                    messages = [self._fly(*one) for one in found]
                    if visible_ms is not None:
                        self._hide(messages, tags, visible_ms / 1000)
                    return messages
            left = deadline - time.monotonic()
            if left <= 0 or max_messages == 0:
                return []
            self._store.wait(end, timeout_s=min(left, _SLICE_S))

    def messages(self, topic: str, *, tags: str | None = None) -> Iterator[StoredMessage]:
        """Iterates over the messages of a topic; waits for new ones until the store is closed.

        The next step counts a message as done, as ``ack`` does. After ``seek`` or ``poll`` the
        iteration goes on from the new place.
        """
        self._places.queues(topic)
        return self._each(topic, tags)

    def _each(self, topic: str, tags: str | None) -> Iterator[StoredMessage]:
        ahead: deque[Found] = deque()
        queue: TakenQueue | None = None
        try:
            while True:
                end = self._store._readable_end  # noqa: SLF001 - a part of the store
                if not ahead:
                    self._store._refresh_if_grown()  # noqa: SLF001 - a part of the store
                    with self._lock:
                        # The others are for other processes meanwhile.
                        ahead.extend(self._next(topic, _AHEAD, Asked(tags), of_one_queue=True))
                        queue = self._open[ahead[0][0]] if ahead else None
                while ahead:
                    key, message, span, after = ahead.popleft()
                    with self._lock:
                        if (
                            queue is None
                            or self._open.get(key) is not queue
                            or span[0] not in (queue.place, *queue.returned)
                            or message.physical_offset in self._flight
                        ):
                            # The group was moved, another process had the queue meanwhile, or the
                            # record came from another queue.
                            ahead.clear()
                            break
                        message = self._fly(key, message, span, after)
                    yield message
                    self.skip(message)
                else:
                    self._store.wait(end, timeout_s=_SLICE_S)
        except StoreClosedError:
            return

    def ack(self, messages: StoredMessage | Iterable[StoredMessage]) -> bool:
        """Counts messages as done: they do not come again, however this process ends.

        They are durable within a second, and by ``commit`` and ``close``; a power cut before brings
        them again. ``consumerOffset.json`` has by then the offset of each queue's first message in
        flight; what is done behind it stands beside it.

        Args:
            messages: A message, or many.

        Returns:
            ``False`` if one of them is not in flight, such as after ``visibility_s``: it comes, or
            came, again. The others count as done.

        Raises:
            StorePoisonedError: Another store lies at the path by now. Nothing was written to it,
                and the messages stay in flight.
            UnsupportedError: A broker has the store open; the messages stay in flight.
        """
        many = _messages(messages)
        with self._lock:
            self._expire()
            are_there = all(self._queue_of(message) is not None for message in many)
            for key in self._finish(many):
                self._release_returned(key, self._open[key])
            return are_there

    def nack(self, message: StoredMessage, delay_s: Seconds | None = None) -> bool:
        """Gives a failed message back: it comes again in ``retry_topic``, and counts as done here.

        After 16 attempts it goes to ``dead_letter_topic`` instead. A writer of a broker's store
        needs ``delivery=True``; with a store in mode ``"r"`` the writer beside it does the work.

        Args:
            message: A message in flight.
            delay_s: Wait at least so long: the next delay level counts. ``None``: level 3 for the
                first retry, and one more for each further one, as in RocketMQ: 10 s, 30 s, 1 min.

        Returns:
            ``False`` if the message is not in flight; nothing was changed.

        Raises:
            ConfigError: This writer delivers no retries: ``delivery=False``, or a broker's store.
            ValueError: ``delay_s`` is longer than every delay level.
        """
        if not isinstance(message, StoredMessage):
            raise TypeError(expected("message", "a StoredMessage", type(message).__name__))
        with self._lock:
            self._places.check_place()
            self._expire()
            check_delivery(self._store)
            key = self._queue_of(message)
            if key is None:
                return False
            self._places.ack(*key, [])  # refuses a broker
            dead = message.reconsume_times + 1 >= MAX_ATTEMPTS
            level = 0 if dead else self._level(message, delay_s, "delay_s")
            send_back(self._store, self.name, [Failed(message, level)])
            try:
                return self.ack(message)
            except BaseException:
                self._pass([message])  # its retry is written
                raise

    def _level(self, message: StoredMessage, delay: Seconds | None, argument: str) -> int:
        levels = levels_ms(self._store)
        if delay is not None:
            return level_for(levels, delay, argument)
        return min(max(3 + message.reconsume_times, 1), len(levels))

    def process(
        self,
        topic: str,
        handler: Callable[[StoredMessage], object],
        *,
        max_attempts: int = MAX_ATTEMPTS,
        backoff: Callable[[int], Seconds | None] | None = None,
        concurrency: int = 1,
        max_messages: int = 32,
        tags: str | None = None,
        stop: threading.Event | None = None,
        idle_s: Seconds | None = None,
        ordered: bool = True,
        on_loss: OnLoss = "warn",
    ) -> Processed:
        """Calls `handler` with each message of a topic, and of ``retry_topic``.

        A message is done when `handler` returns. If it raises an ``Exception``, the message comes
        again in ``retry_topic`` after a delay, and goes to ``dead_letter_topic`` after
        `max_attempts`. ``reconsume_times`` counts its failures, and property ``RETRY_TOPIC`` names
        its first topic. All topics of a group share ``retry_topic``: of the calls in one process
        each gets the retries of its own topic; several processes need one handler, or a group for
        each topic.

        Each queue is handled in order by one thread of one process at a time, beside messages that
        ``poll`` returned. A process that is killed repeats at most the message in hand of each
        thread, and failed messages of the last second.

        Args:
            topic: Name of the topic.
            handler: Called with one message.
            max_attempts: How often a message is tried before it is a dead letter.
            backoff: Gives the delay before the next attempt, for the number of failed ones: the
                next delay level that is as long counts, else the longest. ``None``: as in RocketMQ.
            concurrency: Number of threads; in order, more than queues have nothing to do.
            max_messages: How many messages to take from a queue at once.
            tags: A tag expression; other messages are skipped.
            stop: Set it to end; messages that were not begun stay for the next call.
            idle_s: End when no message came for so long. ``None``: wait for more.
            ordered: ``False`` lets all threads work on one queue, in any order.
            on_loss: As for ``poll``.

        Returns:
            How many messages were handled, retried, and dead, when `stop` is set, the store or the
            group is closed meanwhile, or after `idle_s`.

        Raises:
            ConfigError: This writer delivers no retries: ``delivery=False``, or a broker's store.
            TypeError: `handler` cannot be called, or gives a coroutine, as for ``mqstore.aio``; the
                message is not done.
            OffsetOutOfRangeError: Messages were deleted, with ``on_loss="error"``.
            StoreClosedError: The store or the group is closed already, or belongs to the process
                that this one was forked off.
            ValueError: `max_attempts`, `concurrency` or `max_messages` below 1.
        """
        from mqstore.groups.processing import Processing, check_handler

        _check_on_loss(on_loss)
        expect("topic", topic, str, "str")
        check_handler(handler, is_awaited=False)
        check_delivery(self._store)
        for name, number in (
            ("max_attempts", max_attempts),
            ("concurrency", concurrency),
            ("max_messages", max_messages),
        ):
            expect(name, number, int, "an int")
            if number < 1:
                raise ValueError(f"{name}: expected 1 or more, got {number}")
        if backoff is not None:
            check_argument("backoff", backoff)
        stop = threading.Event() if stop is None else stop
        if not hasattr(stop, "is_set"):
            raise TypeError(expected("stop", "a threading.Event", type(stop).__name__))
        self._places.queues(topic)  # refuses what is closed

        def level(message: StoredMessage) -> int:
            failures = message.reconsume_times + 1
            if failures >= max_attempts:
                return 0
            delay = None if backoff is None else backoff(failures)
            if delay is not None:
                delay = min(milliseconds(delay, "backoff"), max(levels_ms(self._store))) / 1000
            return self._level(message, delay, "backoff")

        idle = seconds_or_ever(math.inf if idle_s is None else idle_s, "idle_s")
        most = max_messages if ordered else 1
        work = Processing(self, topic, handler, level, most, tags, ordered, on_loss)
        return work.run(concurrency, stop, idle)

    def commit(self) -> None:
        """Counts everything in flight as done, and commits the group's offsets.

        A queue that ``process`` handles keeps its messages in flight. The offsets and the
        messages before them are durable on return.

        Raises:
            UnsupportedError: A broker has the store open and would overwrite the offsets; nothing
                was committed.
        """
        with self._lock:
            self._expire()
            firsts = {}
            try:
                for key, queue in self._open.items():
                    in_flight = [
                        span
                        for at, span in queue.waiting.items()
                        if queue.in_hand or self._flight.get(at) != key
                    ]
                    if in_flight or queue.has_progress or queue.place != queue.began:
                        firsts[key] = self._advance(key, queue, in_flight)
                self._places.commit()
            except BaseException:
                # A later commit must not count them as done.
                for key in firsts:
                    queue = self._open[key]
                    with suppress(StoreError):
                        self._advance(key, queue, queue.waiting.values())
                raise
            self._has_left = False
            for key, queue in list(self._open.items()):
                if queue.in_hand:
                    queue.begin_at(firsts.get(key, queue.began))
                elif queue.returned:
                    for physical_offset in self._drop_flight(key):
                        del queue.waiting[physical_offset]
                    queue.begin_at(min(queue.returned))
                    self._release_returned(key, queue)
                else:
                    self._release(key)

    def seek(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Sets the group's place in one queue; ``commit`` makes it durable.

        Raises:
            InvalidMessageError: The queue does not reach there.
            StoreLockedError: Another process of the group has the queue.
        """
        expect("topic", topic, str, "str")
        for name, number, bits in (("queue_id", queue_id, 31), ("queue_offset", queue_offset, 63)):
            expect(name, number, int, "int")
            if number >> bits:
                wanted = "0 or more" if number < 0 else f"at most {(1 << bits) - 1}"
                raise InvalidMessageError(
                    expected(name, wanted, number), name, "MESSAGE_ILLEGAL", (1 << bits) - 1
                )
        with self._lock:
            self._places.check_place()
            self._check_bounds(topic, queue_id, queue_offset)
            key = (topic, queue_id)
            was_open = key in self._open
            queue = self._take(key)
            if queue is None:
                raise StoreLockedError(
                    f"group {self.name}: another consumer has queue {queue_id} of topic {topic}; "
                    "the place was not changed: stop that consumer first",
                    self._store.path,
                )
            try:
                if queue.has_progress:
                    self._advance(key, queue, queue.waiting.values())
                self._places.seek(topic, queue_id, queue_offset)
            except StoreError:
                if not was_open and key in self._open:
                    self._release(key)
                raise
            self._drop_flight(key)
            queue.waiting.clear()
            queue.returned.clear()
            queue.place = queue_offset
            queue.begin_at(-1)

    def _check_bounds(self, topic: str, queue_id: int, queue_offset: int) -> None:
        if self._store.mode == "r":
            self._store.refresh()
        least, most = self._bounds(topic, queue_id)
        if not least <= queue_offset <= most:
            raise InvalidMessageError(
                f"queue_offset: queue {queue_id} of topic {topic}: expected {least} to {most}, got "
                f"{queue_offset}; the place was not changed",
                "queue_offset",
                "MESSAGE_ILLEGAL",
            )

    def lag(self) -> list[GroupOffset]:
        """Returns the group's lag in each queue, from its current places, committed or not."""
        with self._lock:
            return self._places.lag({key: queue.place for key, queue in self._open.items()})

    def close(self) -> None:
        """Commits what is done, and releases the group's name and its queues.

        Messages in flight come again. A second call does nothing.
        """
        with self._lock:
            try:
                self._commit_progress()
            except StoreClosedError:
                pass  # the store's `close` has committed it
            finally:
                if self._timer is not None:
                    self._timer.cancel()
                self._open.clear()
                self._flight.clear()
                self._has_left = False
                self._places.close()

    def _end(self) -> None:
        """Commits what is done and lets other processes have the queues: the store is closed."""
        with self._lock:
            try:
                self._commit_progress()
            finally:
                self._places.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f'<ConsumerGroup "{self.name}">'


def _check_on_loss(on_loss: str) -> None:
    if on_loss not in {"warn", "error"}:
        raise ValueError(f'on_loss: expected "warn" or "error", got {on_loss!r}')


def _messages(given: object) -> list[StoredMessage]:
    if isinstance(given, StoredMessage):
        return [given]
    many: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for one in many:
        if not isinstance(one, StoredMessage):
            raise TypeError(expected("message", "a StoredMessage", type(one).__name__))
    return many
