"""Messages that wait for something: a transaction's end, their time, a redelivery, an operator."""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import mqstore
from mqstore import _native
from mqstore._names import table_rows
from mqstore.errors import CorruptionError, checked
from mqstore.groups.failed import SCHEDULE_TOPIC, levels_ms
from mqstore.results import _Report as Report
from mqstore.store import below, connect, root_of
from mqstore.topic import messages_of_queue

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from mqstore import QueueInfo, Store, StoredMessage
    from mqstore.config import ConfigLike

RETRY, DEAD_LETTER = "%RETRY%", "%DLQ%"
# Topics of half messages, and of the notes that they ended (`TransactionalMessageUtil`).
OP_TOPICS = {
    "RMQ_SYS_TRANS_HALF_TOPIC": "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
# Its offsets in both topics say how far the broker has checked (`MixAll.CID_SYS_RMQ_TRANS`).
_TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
_TIMER_TOPIC = "rmq_sys_wheel_timer"
_MOST_ROWS = 10_000

# A group, and the topic in which it got a message first.
_Origin: TypeAlias = "tuple[str, str | None]"


@dataclass(frozen=True, slots=True)
class HalfMessage(Report):
    """A half message whose transaction has no end, or whose end the broker had not noted yet.

    Attributes:
        topic: Topic that it is for.
        keys: Its keys.
        unique_key: Its unique key.
        producer_group: Group of the producer that a broker asks.
        born_timestamp_ms: When the producer made it.
        age_ms: Milliseconds since then.
        checks: How often a broker has asked.
        physical_offset: Its newest record.
    """

    topic: str
    keys: tuple[str, ...]
    unique_key: str | None
    producer_group: str | None
    born_timestamp_ms: int
    age_ms: int
    checks: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class OverdueMessage(Report):
    """A message whose time has passed, and that no broker delivered.

    Attributes:
        kind: ``"delayed"`` by a delay level, or ``"timer"``.
        topic: Topic that it is for; ``%RETRY%...`` for a redelivery.
        keys: Its keys.
        unique_key: Its unique key.
        deliver_timestamp_ms: When it was due.
        late_ms: Milliseconds since then.
        physical_offset: Its record.
    """

    kind: Literal["delayed", "timer"]
    topic: str
    keys: tuple[str, ...]
    unique_key: str | None
    deliver_timestamp_ms: int
    late_ms: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class DeadLetters(Report):
    """Dead letters of a consumer group that come from one topic.

    Attributes:
        group: The consumer group.
        origin_topic: Topic in which it got them; ``None`` if they do not say.
        messages: How many there are.
        oldest_timestamp_ms: When the first of them was stored.
        newest_timestamp_ms: When the last of them was stored.
    """

    group: str
    origin_topic: str | None
    messages: int
    oldest_timestamp_ms: int
    newest_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WaitingRetries(Report):
    """Redeliveries that a consumer group has not got.

    Attributes:
        group: The consumer group.
        origin_topic: Topic in which it got them first; ``None`` if they do not say.
        messages: How many lie in its retry topic, behind its offset.
        scheduled: How many wait for their time before.
        oldest_timestamp_ms: When the first of them was stored.
    """

    group: str
    origin_topic: str | None
    messages: int
    scheduled: int
    oldest_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PendingReport(Report):
    """Result of ``mqstore.pending``.

    Attributes:
        path: The store.
        half: Half messages without an end, in log order; at most 10,000.
        half_messages: How many there are.
        overdue: Messages whose time has passed, in the order of their topics; at most 10,000.
        overdue_messages: How many there are.
        dead_letters: Dead letters by group and origin topic.
        retries: Waiting redeliveries by group and origin topic.
        unread: A sentence for each queue of which something could not be read or judged.
    """

    path: str
    half: tuple[HalfMessage, ...]
    half_messages: int
    overdue: tuple[OverdueMessage, ...]
    overdue_messages: int
    dead_letters: tuple[DeadLetters, ...]
    retries: tuple[WaitingRetries, ...]
    unread: tuple[str, ...] = ()


@checked
def pending(
    path: str | os.PathLike[str],
    *,
    now_ms: datetime | int | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PendingReport:
    """Lists messages that wait: half, overdue, dead letters, redeliveries. Never writes.

    It reads a broker's own topics from where the broker's files say that it goes on: half messages
    from the offset of ``CID_RMQ_SYS_TRANS``, delayed ones from ``delayOffset.json``, timers by
    ``timercheck``. Without such a file everything in the topic counts, as it does for a broker.
    Timers in RocksDB are not told from delivered ones.

    Args:
        path: The store's root folder.
        now_ms: Time that ages are counted from; the clock's if left out.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreIOError: The operating system refused something.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"delivery": True}) as store:
        ...     _ = store.append("orders", b"fails")
        ...     with store.group("billing") as group:
        ...         done = group.process(
        ...             "orders", lambda message: 1 / 0, max_attempts=1, idle_s=0
        ...         )
        >>> [(row.group, row.origin_topic) for row in mqstore.pending(folder).dead_letters]
        [('billing', 'orders')]
    """
    path = connect(path, storage_options)
    with mqstore.open(path, config=config) as store:
        now = None if now_ms is None else _native._time_ms(now_ms)  # noqa: SLF001 - our own
        return PendingMessages(store, now).report()


def resend_command(path: str, group: str) -> str:
    """The command that sends a group its dead letters again, as a shell takes it."""
    return f"mqstore resend {shlex.quote(path)} -g {shlex.quote(group)} --to NAMESRV"


@dataclass(slots=True)
class _Times:
    """How many messages, and when the first and the last of them were stored."""

    count: int = 0
    oldest_ms: int = 2**63 - 1
    newest_ms: int = -(2**63)

    def add(self, stored_ms: int) -> None:
        self.count += 1
        self.oldest_ms = min(self.oldest_ms, stored_ms)
        self.newest_ms = max(self.newest_ms, stored_ms)


def delivered_offsets(store: Store) -> dict[int, int]:
    """First queue offset that was not delivered, by queue of ``SCHEDULE_TOPIC_XXXX``."""
    rows = table_rows(store, "delayOffset.json", "offsetTable")
    return {
        int(level) - 1: offset
        for level, offset in rows.items()
        if level.isdecimal() and isinstance(offset, int)
    }


class PendingMessages:
    """The waiting messages of an open store."""

    def __init__(self, store: Store, now_ms: int | None = None) -> None:
        self._store = store
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._queues = store.queues()
        self._offsets = {
            (group, at.topic, at.queue_id): at.queue_offset
            for group, offsets in store.groups().items()
            for at in offsets
        }
        self._delays = levels_ms(store)
        self._unread: dict[tuple[str, int], str] = {}

    def report(self) -> PendingReport:
        """All of them."""
        half = self.half()
        overdue: list[OverdueMessage] = []
        overdue_count = 0
        scheduled: dict[_Origin, _Times] = defaultdict(_Times)
        for message, due_ms in self._delayed():
            if due_ms <= self._now_ms:
                overdue_count += 1
                if len(overdue) < _MOST_ROWS:
                    overdue.append(self._overdue_message("delayed", message, due_ms))
            topic = message.real_topic or ""
            if topic.startswith(RETRY):
                key = topic.removeprefix(RETRY), _origin(message)
                scheduled[key].add(message.store_timestamp_ms)
        timers = self.timers(self._now_ms)
        for place, due_ms in islice(timers.values(), _MOST_ROWS - len(overdue)):
            overdue.append(self._overdue_message("timer", self._store.get(place), due_ms))
        return PendingReport(
            path=self._store.path,
            half=tuple(
                self._half_message(self._store.get(place))
                for place in islice(half.values(), _MOST_ROWS)
            ),
            half_messages=len(half),
            overdue=tuple(overdue),
            overdue_messages=overdue_count + len(timers),
            dead_letters=tuple(self._dead_letters()),
            retries=tuple(self._retries(scheduled)),
            unread=tuple(
                f"{topic}/{queue_id}: {text}" for (topic, queue_id), text in self._unread.items()
            ),
        )

    def half(self) -> dict[object, int]:
        """Where half messages lie that no note ends; one that was put again counts once."""
        newest: dict[object, int] = {}
        for queue in self._queues:
            op_topic = OP_TOPICS.get(queue.topic)
            if op_topic is None:
                continue
            ended = self._ended(op_topic, queue.queue_id)
            for message in self._messages(queue, self._offset(_TRANSACTION_GROUP, queue)):
                name = message.unique_key or message.physical_offset
                newest.pop(name, None)
                if message.queue_offset not in ended:
                    newest[name] = message.physical_offset
        return newest

    def _ended(self, op_topic: str, queue_id: int) -> set[int]:
        """Queue offsets of the half messages that the notes in the topic end."""
        ended: set[int] = set()
        for queue in self._queues:
            if (queue.topic, queue.queue_id) == (op_topic, queue_id):
                for note in self._messages(queue, self._offset(_TRANSACTION_GROUP, queue)):
                    ended.update(int(part) for part in note.raw_body.split(b",") if part.isdigit())
        return ended

    def _half_message(self, message: StoredMessage) -> HalfMessage:
        checks = message.properties.get("TRANSACTION_CHECK_TIMES", "0")
        return HalfMessage(
            **_named(message),
            producer_group=message.properties.get("PGROUP"),
            born_timestamp_ms=message.born_timestamp_ms,
            age_ms=self._now_ms - message.born_timestamp_ms,
            checks=int(checks) if checks.isdigit() else 0,
        )

    def _delayed(self) -> Iterator[tuple[StoredMessage, int]]:
        """Messages that wait for a delay level, each with its time."""
        offsets = delivered_offsets(self._store)
        for queue in self._queues:
            level = queue.queue_id + 1
            if queue.topic != SCHEDULE_TOPIC:
                continue
            begin = offsets.get(queue.queue_id, 0)
            if level > len(self._delays):
                if (count := queue.max_offset - max(queue.min_offset, begin)) > 0:
                    levels = f"messageDelayLevel of this config has {len(self._delays)}"
                    text = f"{count} messages wait for delay level {level}; {levels}"
                    self._unread[queue.topic, queue.queue_id] = text
                continue
            for message in self._messages(queue, begin):
                yield message, message.store_timestamp_ms + self._delays[level - 1]

    def timers(self, end_ms: int) -> dict[object, tuple[int, int]]:
        """Where undelivered timers lie whose time is up to `end_ms`, each with that time."""
        path = below(root_of(self._store), "config", "timercheck")
        check = _native._timer_check(path)  # noqa: SLF001 - our own
        delivered_ms, begin = check or (0, 0)
        waiting: dict[object, tuple[int, int]] = {}
        for queue in self._queues:
            if queue.topic != _TIMER_TOPIC:
                continue
            for message in self._messages(queue, 0):
                due_ms = message.deliver_timestamp_ms
                name = message.unique_key or message.physical_offset
                if (deleted := message.properties.get("TIMER_DEL_UNIQKEY")) is not None:
                    waiting.pop(deleted, None)
                    waiting.pop(deleted.partition("+")[2], None)
                    continue
                if due_ms is None or due_ms > end_ms:
                    continue
                if message.queue_offset >= begin or due_ms > delivered_ms:
                    # A timer that was put again for the rest of its time counts once.
                    waiting[name] = message.physical_offset, due_ms
        return waiting

    def _overdue_message(
        self, kind: Literal["delayed", "timer"], message: StoredMessage, due_ms: int
    ) -> OverdueMessage:
        return OverdueMessage(
            kind=kind,
            deliver_timestamp_ms=due_ms,
            late_ms=self._now_ms - due_ms,
            **_named(message),
        )

    def _dead_letters(self) -> list[DeadLetters]:
        rows = [
            DeadLetters(*key, it.count, it.oldest_ms, it.newest_ms)
            for key, it in self._by_origin(DEAD_LETTER).items()
        ]
        return sorted(rows, key=lambda row: (-row.messages, row.group, row.origin_topic or ""))

    def _retries(self, scheduled: dict[_Origin, _Times]) -> list[WaitingRetries]:
        rows, waiting = [], self._by_origin(RETRY)
        for key in dict.fromkeys([*waiting, *scheduled]):
            there, later = waiting[key], scheduled[key]
            oldest_ms = min(there.oldest_ms, later.oldest_ms)
            rows.append(WaitingRetries(*key, there.count, later.count, oldest_ms))
        return sorted(rows, key=lambda row: (-row.messages - row.scheduled, row.group))

    def _by_origin(self, prefix: str) -> dict[_Origin, _Times]:
        """The messages in topics of a kind; of retries those that the group has not taken."""
        found: dict[_Origin, _Times] = defaultdict(_Times)
        for queue in self._queues:
            if queue.topic.startswith(prefix):
                group = queue.topic.removeprefix(prefix)
                begin = self._offset(group, queue) if prefix == RETRY else 0
                for message in self._messages(queue, begin):
                    found[group, _origin(message)].add(message.store_timestamp_ms)
        return found

    def _offset(self, group: str, queue: QueueInfo) -> int:
        return self._offsets.get((group, queue.topic, queue.queue_id), 0)

    def _messages(self, queue: QueueInfo, begin: int) -> Iterator[StoredMessage]:
        """A queue's messages from an offset on; damaged ones are skipped, and noted."""
        offset, damaged = max(begin, queue.min_offset), 0
        while offset < queue.max_offset:
            try:
                place = queue.topic, queue.queue_id, offset, queue.max_offset
                for message in messages_of_queue(self._store, *place):
                    offset = message.queue_offset + 1
                    yield message
                break
            except CorruptionError as error:
                damaged += 1
                self._unread[queue.topic, queue.queue_id] = f"{damaged} damaged, the last: {error}"
                offset += 1


def _named(message: StoredMessage) -> dict[str, Any]:
    """The fields by which a row names its message."""
    names = ("keys", "unique_key", "physical_offset")
    return {name: getattr(message, name) for name in names} | {
        "topic": message.real_topic or message.topic
    }


def _origin(message: StoredMessage) -> str | None:
    """Topic in which a group got a failed message first."""
    return message.properties.get("RETRY_TOPIC")
