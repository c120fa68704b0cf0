"""Queues that a consumer group has taken, and its messages in flight."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from mqstore.errors import (
    OffsetOutOfRangeError,
    StoreClosedError,
    StoreError,
    StorePoisonedError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mqstore._native import StoredMessage, _GroupPlaces
    from mqstore.store import Store

QueueKey = tuple[str, int]
# The places before and behind a message.
Span = tuple[int, int]
OnLoss: TypeAlias = Literal["warn", "error"]
# A message with its queue and span, and the next place to read.
Found: TypeAlias = "tuple[QueueKey, StoredMessage, Span, int]"

_LOG = logging.getLogger("mqstore")
# Acknowledged places are committed after this time.
_COMMIT_S = 1.0
# A commit by time that failed is tried again after this time.
_AGAIN_S = 3.0
# Messages of which a late answer is told apart.
_MOST_LATE = 65_536
# Messages of one queue that wait for another call of ``process`` before no more are read.
_MOST_RETURNED = 1024


class Asked(NamedTuple):
    """Which messages a consumer asks for."""

    tags: str | None
    on_loss: OnLoss = "warn"
    wanted: Callable[[StoredMessage], bool] = lambda _: True
    """Whether a message that was given back is one of them."""


@dataclass(slots=True, eq=False)
class TakenQueue:
    """A queue that the group has taken: the next place to read, and messages in flight."""

    place: int
    began: int = field(init=False)
    # By physical offset: the places before and behind each, and what tells the message from one of
    # another store.
    waiting: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    # Those of them that nobody has seen, by their places; the first to come again.
    returned: dict[int, tuple[StoredMessage, str | None, int]] = field(default_factory=dict)
    # Physical offsets, each with its message, tag expression and deadline.
    hidden: dict[int, tuple[StoredMessage, str | None, float]] = field(default_factory=dict)
    # Whether a message was done since the last commit.
    has_progress: bool = False
    # Whether a message was done since then that only a commit writes.
    has_unwritten: bool = False
    # Whether messages were passed over since then, which only a commit writes, too.
    has_passed: bool = False
    # Batches of it that threads of ``process`` handle.
    in_hand: int = 0

    def __post_init__(self) -> None:
        self.began = self.place

    def begin_at(self, place: int) -> None:
        """Counts from `place` on, with nothing to commit by time."""
        self.began = place
        self.has_progress = self.has_unwritten = self.has_passed = False


class InFlight:
    """The queues and messages that a consumer group has now; all use is under its lock."""

    def __init__(self, store: Store, places: _GroupPlaces) -> None:
        self._store = store
        self._places = places
        self._open: dict[QueueKey, TakenQueue] = {}
        self._flight: dict[int, QueueKey] = {}
        # Messages that were late, in order; and objects of those of them that are in flight again,
        # by which a late answer is told apart.
        self._late: dict[int, None] = {}
        self._again: dict[int, StoredMessage] = {}
        self._turn: dict[str, int] = {}
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._timer_due = float("inf")
        # Topics of running calls of ``process``, as often as there are calls.
        self._handled: list[str] = []
        # Whether acknowledgements of released queues wait for a commit.
        self._has_left = False

    def _next(
        self, topic: str, max_messages: int, asked: Asked, *, of_one_queue: bool = False
    ) -> list[Found]:
        """Reads messages without moving."""
        found: list[Found] = []
        self._store._refresh_if_grown()  # noqa: SLF001 - a part of the store
        with self._lock:
            self._expire()
            queues = self._places.queues(topic)
            self._name_missing(topic, queues)
            last = self._turn.get(topic, -1)
            for queue_id in sorted(queues, key=lambda queue_id: (queue_id <= last, queue_id)):
                if found and (of_one_queue or len(found) >= max_messages):
                    break
                room = max_messages - len(found)
                try:
                    got = self._next_of((topic, queue_id), room, asked)
                except BaseException:
                    for key in {key for key, *_ in found}:
                        self._let_go(key, self._open[key])
                    raise
                found += got
                if got:
                    self._turn[topic] = queue_id
        return found

    def _name_missing(self, topic: str, queues: list[int]) -> None:
        """Warns, once, of a topic that is not there while others have near names."""
        if queues or topic in self._turn:
            return
        from mqstore._names import nearest

        self._turn[topic] = -1
        hint = nearest(topic, self._store.topics())
        if hint:
            text = "group %s: no topic %r in %s yet%s"
            _LOG.warning(text, self._places.name, topic, self._store.path, hint)

    def _next_of(self, key: QueueKey, max_messages: int, asked: Asked) -> list[Found]:
        """``_next`` for one queue."""
        queue = self._take(key)
        if queue is None:
            return []
        found: list[Found] = []
        try:
            found = self._read(key, queue, max_messages, asked)
        finally:
            if not found:
                self._let_go(key, queue)
        return found

    def _let_go(self, key: QueueKey, queue: TakenQueue) -> None:
        """Releases an idle queue, with a later commit if messages were passed over."""
        if queue.waiting or queue.in_hand:
            return
        if queue.place == queue.began and not queue.has_progress:
            self._release(key)
        else:
            queue.has_passed = True
            self._wake_at(time.monotonic() + _COMMIT_S)

    def _read(
        self, key: QueueKey, queue: TakenQueue, max_messages: int, asked: Asked
    ) -> list[Found]:
        tags = asked.tags
        found = [
            (key, message, queue.waiting[message.physical_offset][:2], after)
            for message, of_tags, after in queue.returned.values()
            if tags in (None, of_tags) and asked.wanted(message)
        ][:max_messages]
        room = max_messages - len(found)
        got, spans, end, lost = self._places.read(*key, queue.place, room, tags)
        if lost and room:
            self._report_loss(key, queue.place, lost, asked.on_loss)
        if got:
            queue.place = spans[0][0]  # what was done before is passed over
            places = [*(before for before, _ in spans[1:]), end]
            found += zip([key] * len(got), got, spans, places, strict=True)
        else:
            queue.place = end  # all that was there is skipped
        # A record that is in flight from another queue waits: its answer could not be told apart.
        return list(
            itertools.takewhile(
                lambda one: self._flight.get(one[1].physical_offset, key) == key, found
            )
        )

    def _report_loss(self, key: QueueKey, place: int, lost: int, on_loss: OnLoss) -> None:
        topic, queue_id = key
        text = (
            f"group {self._places.name}: queue {queue_id} of topic {topic}: retention deleted "
            f"{lost} messages from queue offset {place} on before the group read them"
        )
        if on_loss == "error":
            advice = 'nothing was taken: seek to a later place, or go on with on_loss="warn"'
            raise OffsetOutOfRangeError(f"{text}; {advice}", place, *self._bounds(*key))
        _LOG.warning("%s", text)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First queue offset and end of a queue; of a missing one 0."""
        for queue in self._store.queues(topic):
            if queue.queue_id == queue_id:
                return queue.min_offset, queue.max_offset
        return 0, 0

    def _take(self, key: QueueKey) -> TakenQueue | None:
        queue = self._open.get(key)
        if queue is None:
            place = self._places.take(*key)
            if place is None:
                return None
            queue = self._open[key] = TakenQueue(place)
            has_passed = any(one.has_passed for one in self._open.values())
            if self._places.has_moved and not has_passed:
                self._commit_late()  # what another process acknowledged counts from now on
        return queue

    def _release(self, key: QueueKey) -> None:
        self._drop_flight(key)
        del self._open[key]
        if self._places.release(*key):
            self._commit_late()

    def _commit_late(self) -> None:
        self._has_left = True
        self._wake_at(time.monotonic() + _COMMIT_S)

    def _drop_flight(self, key: QueueKey) -> list[int]:
        """Forgets which messages of a queue are in flight, and gives their physical offsets."""
        dropped = [at for at in self._open[key].waiting if self._flight.get(at) == key]
        for physical_offset in dropped:
            del self._flight[physical_offset]
            self._again.pop(physical_offset, None)
            self._open[key].hidden.pop(physical_offset, None)
        return dropped

    def _fly(self, key: QueueKey, message: StoredMessage, span: Span, after: int) -> StoredMessage:
        queue, at = self._open[key], message.physical_offset
        queue.place = max(queue.place, after)
        queue.returned.pop(span[0], None)
        if at in self._late:
            message = self._again[at] = copy(message)
        queue.waiting[at] = (*span, _mark(message))
        self._flight[at] = key
        return message

    def _queue_of(self, message: StoredMessage) -> QueueKey | None:
        """The queue of a message in flight; ``None`` for others, and before they came again."""
        at = message.physical_offset
        key = self._flight.get(at)
        if key is None or self._again.get(at, message) is not message:
            return None
        return key if self._open[key].waiting[at][2] == _mark(message) else None

    def _land(self, key: QueueKey, physical_offset: int) -> None:
        del self._flight[physical_offset]
        self._again.pop(physical_offset, None)
        self._late.pop(physical_offset, None)
        queue = self._open[key]
        del queue.waiting[physical_offset]
        queue.hidden.pop(physical_offset, None)
        queue.has_progress = True
        self._wake_at(time.monotonic() + _COMMIT_S)

    def _finish(self, messages: Iterable[StoredMessage]) -> list[QueueKey]:
        """Counts messages in flight as done, which outlives this process; gives their queues."""
        done: dict[QueueKey, dict[int, StoredMessage]] = {}
        with self._lock:
            for message in messages:
                key = self._queue_of(message)
                if key is not None:
                    done.setdefault(key, {})[message.physical_offset] = message
            for key, of_queue in done.items():
                waiting = self._open[key].waiting
                acks = [(*waiting[at][:2], one.store_timestamp_ms) for at, one in of_queue.items()]
                self._places.ack(*key, acks)
                for physical_offset in of_queue:
                    self._land(key, physical_offset)
        return list(done)

    def _pass(self, messages: Iterable[StoredMessage]) -> None:
        """Counts messages in flight as done, which the next commit writes."""
        with self._lock:
            for message in messages:
                key = self._queue_of(message)
                if key is not None:
                    self._land(key, message.physical_offset)
                    self._open[key].has_unwritten = True

    def skip(self, message: StoredMessage) -> None:
        """Counts a message as done; it is committed within a second."""
        try:
            self._finish([message])
        except UnsupportedError:  # a broker's consumers have places of their own
            self._pass([message])

    def give_back(self, messages: list[StoredMessage], *, tags: str | None = None) -> None:
        """Keeps messages in flight, which nobody has worked on, for the next ``poll``.

        Args:
            messages: Messages of one ``poll``.
            tags: The tag expression of that ``poll``, and of the next.
        """
        with self._lock:
            for key in self._give_back(messages, tags):
                self._release_returned(key, self._open[key])

    def _give_back(self, messages: Iterable[StoredMessage], tags: str | None) -> set[QueueKey]:
        """``give_back`` that keeps the queues, which it gives."""
        keys = set()
        for message in messages:
            key = self._queue_of(message)
            if key is not None:
                del self._flight[message.physical_offset]
                self._again.pop(message.physical_offset, None)
                queue = self._open[key]
                before = queue.waiting[message.physical_offset][0]
                queue.returned[before] = (message, tags, queue.place)
                queue.hidden.pop(message.physical_offset, None)
                keys.add(key)
        return keys

    def _take_in_hand(
        self, key: QueueKey, max_messages: int, asked: Asked, *, ordered: bool
    ) -> list[StoredMessage]:
        """The next messages of a queue for ``process``, until ``_put_down``.

        In order, one thread has the queue. Messages that are not wanted wait for another call.
        """
        with self._lock:
            self._expire()
            queue = self._open.get(key)
            if queue is not None and (
                (ordered and queue.in_hand) or len(queue.returned) >= _MOST_RETURNED
            ):
                return []
            found = self._next_of(key, max_messages, asked)
            messages = [self._fly(*one) for one in found]
            others = [message for message in messages if not asked.wanted(message)]
            self._give_back(others, asked.tags)
            taken = [message for message in messages if message not in others]
            if taken:
                self._open[key].in_hand += 1
            return taken

    def _put_down(self, key: QueueKey, left: list[StoredMessage], tags: str | None) -> None:
        """Ends the work on a batch of a queue; messages that are `left` come again."""
        with self._lock:
            self._give_back(left, tags)
            queue = self._open.get(key)
            if queue is not None and queue.in_hand:
                queue.in_hand -= 1
                self._release_returned(key, queue)

    def _hide(self, messages: list[StoredMessage], tags: str | None, seconds: float) -> None:
        """Gives messages in flight a deadline."""
        deadline = time.monotonic() + seconds
        for message in messages:
            queue = self._open[self._flight[message.physical_offset]]
            queue.hidden[message.physical_offset] = (message, tags, deadline)
        self._wake_at(deadline)

    def _wake_at(self, deadline: float) -> None:
        if deadline >= self._timer_due:
            return
        pause = min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)
        timer = threading.Timer(pause, _call, [weakref.WeakMethod(self._expire_late)])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # no thread can begin, as at the end of the interpreter
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = timer, deadline

    def _expire_late(self) -> None:
        try:
            with self._lock:
                self._timer = None
                try:
                    self._expire()
                    self._commit_progress()
                finally:
                    self._timer_due = float("inf")
                    hidden = [one for queue in self._open.values() for one in queue.hidden.values()]
                    if hidden:
                        self._wake_at(min(deadline for *_, deadline in hidden))
                    if any(queue.has_passed for queue in self._open.values()):
                        self._wake_at(time.monotonic() + _AGAIN_S)
        except StoreClosedError:
            return
        except StoreError:
            _LOG.exception("group %s", self._places.name)
            with self._lock:
                self._wake_at(time.monotonic() + _AGAIN_S)

    def _expire(self) -> None:
        """Gives back messages whose deadline has passed."""
        now = time.monotonic()
        if self._timer is not None and now < self._timer_due:
            return
        for key, queue in list(self._open.items()):
            late = [at for at, (*_, deadline) in queue.hidden.items() if deadline <= now]
            for at in late:
                message, tags, _ = queue.hidden[at]
                self._give_back([message], tags)
                # It may be in flight from another queue that has the same record.
                queue.hidden.pop(at, None)
                self._late[at] = None
            if late:
                self._release_returned(key, queue)
        while len(self._late) > _MOST_LATE:
            del self._late[next(iter(self._late))]

    def _release_returned(self, key: QueueKey, queue: TakenQueue) -> None:
        """Lets any process take a queue of which no message is in flight or in hand.

        What is done counts for it, too.
        """
        if len(queue.returned) != len(queue.waiting) or queue.in_hand:
            return
        if queue.has_progress or (not queue.waiting and queue.place != queue.began):
            self._advance(key, queue, queue.waiting.values())
            if not queue.has_progress or queue.has_unwritten:
                self._places.commit()  # nothing else says what a filter passed over
        self._release(key)

    def _advance(
        self, key: QueueKey, queue: TakenQueue, in_flight: Iterable[tuple[int, ...]]
    ) -> int:
        """Moves the group to the first message in flight, for the next commit; gives its place.

        Messages behind that one that are done stay so.
        """
        spans = sorted(in_flight)
        first = spans[0][0] if spans else queue.place
        ends = [span[0] for span in spans[1:]] + [queue.place]
        gaps = zip((span[1] for span in spans), ends, strict=False)
        done = [(after, end) for after, end in gaps if after < end]
        self._places.advance(*key, first, done, queue.place)
        return first

    def _commit_progress(self) -> None:
        """Commits what is done, up to the first message in flight of each queue."""
        with self._lock:
            queues = [
                (key, queue)
                for key, queue in self._open.items()
                if queue.has_progress or queue.has_passed
            ]
            if not queues and not self._has_left:
                return
            firsts = [self._advance(key, queue, queue.waiting.values()) for key, queue in queues]
            try:
                self._places.commit()
            except StoreError as error:
                # A group reads beside a broker, and where nothing can be written.
                is_end = isinstance(error, (StoreClosedError, StorePoisonedError))
                if is_end or self._has_left or any(queue.has_progress for _, queue in queues):
                    raise
                return
            self._has_left = False
            for (_, queue), first in zip(queues, firsts, strict=True):
                queue.begin_at(first)
            for key, queue in queues:
                self._release_returned(key, queue)


def _mark(message: StoredMessage) -> int:
    return hash((message, message.topic))


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()
