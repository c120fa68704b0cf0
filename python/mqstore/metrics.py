"""A store's state in Prometheus' text format, under the names that RocketMQ's broker uses.

Needs ``prometheus-client`` (``pip install 'mqstore[metrics]'``). Metrics that only a running
broker knows, such as connections and messages in flight, are missing.

>>> from prometheus_client import CollectorRegistry, generate_latest
>>> import mqstore, tempfile
>>> folder = tempfile.mkdtemp()
>>> mqstore.open(folder, "a").close()
>>> registry = CollectorRegistry()
>>> registry.register(StoreCollector(folder))
>>> b"rocketmq_storage_flush_behind_bytes" in generate_latest(registry)
True
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import mqstore
from mqstore.care.pending import PendingMessages
from mqstore.care.unread import Deleted, offsets_by_topic
from mqstore.errors import needs
from mqstore.store import connect, is_remote, root_of

with needs("metrics", "mqstore.metrics"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from mqstore import DeadLetters, GroupOffset, Store, WaitingRetries
    from mqstore.config import ConfigLike

__all__ = ["StoreCollector"]

_Sample: TypeAlias = "tuple[dict[str, str], float]"
_Found: TypeAlias = "tuple[str, str, Sequence[_Sample]]"
"""Name of a metric, what it tells, and its values."""

# `DefaultStoreMetricsManager` says the same of every store.
_STORAGE = {"storage_type": "local", "storage_medium": "disk"}
_RETRY_PREFIX = "%RETRY%"
# `TopicValidator`, and the prefix of system groups in `MixAll`.
_SYSTEM_TOPICS = {
    *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    "TRANS_CHECK_MAX_TIME_TOPIC",
}
_SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX = "rmq_sys_", "cid_rmq_sys_"


def _used_bytes(store: Store) -> int:
    """Bytes taken on the store's disk; of a store behind a URL those of its objects."""
    root = root_of(store)
    if is_remote(root):
        return sum(state.st_size for _, state in root.entries() if state is not None)
    return shutil.disk_usage(root).used


class StoreCollector(Collector):
    """Prometheus collector for a store; reads the store at each collection.

    Names that begin with ``rocketmq``, with their labels and meanings, are those of a broker
    (``DefaultStoreMetricsManager``, ``BrokerMetricsManager``):

    - ``rocketmq_storage_size``: used bytes of the store's file system, as a broker tells it;
    - ``rocketmq_storage_flush_behind_bytes`` and ``rocketmq_storage_dispatch_behind_bytes``;
    - ``rocketmq_storage_message_reserve_time``: milliseconds since the oldest message;
    - ``rocketmq_messages_in_total`` by topic;
    - ``mqstore_deleted_bytes_total`` and, by topic, ``mqstore_deleted_messages_total``: what the
      log once held and no longer does;
    - ``mqstore_consumer_deleted_messages`` by consumer group and topic: what was deleted and the
      group has not read;
    - ``mqstore_consumer_negative_offsets`` by consumer group and topic: queues of which the group's
      offset is negative;
    - ``mqstore_half_messages``: transactions without an end; ``mqstore_overdue_messages``: delayed
      ones and timers whose time has passed; ``mqstore_dead_letters`` and
      ``mqstore_waiting_retries`` by consumer group and origin topic;
      ``mqstore_pending_unread_queues``: queues of which damage hides a part of these;
    - ``rocketmq_consumer_lag_messages`` by consumer group and topic, and
      ``rocketmq_consumer_lag_latency``: milliseconds since the oldest message not consumed.

    Args:
        path: The store's root folder; it is opened read-only at each collection.
        config: As for ``mqstore.open``.
        labels: More labels for every metric, such as ``cluster`` and ``node_id``.
        now_ms: Clock, in Unix milliseconds; the system's by default.
        storage_options: As for ``mqstore.open``.
        backup: A backup of the store: ``mqstore_backup_age_seconds`` of its newest snapshot, and
            ``mqstore_backup_behind_bytes`` of the log that it lacks; neither where it cannot be
            read, and then ``mqstore_backup_up`` is 0.
        backup_options: Options of the object store of the backup's URL.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: ConfigLike = None,
        labels: dict[str, str] | None = None,
        now_ms: Callable[[], int] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        backup: str | os.PathLike[str] | None = None,
        backup_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._backup, self._backup_options = backup, backup_options
        self._path = connect(path, storage_options)
        self._config = config
        self._labels = labels or {}
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def describe(self) -> list[Metric]:
        """Nothing, so that the store is not read before it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now.

        Raises:
            NotAStoreError: No such folder, or no store in it.
            StoreIOError: The operating system refused something.
        """
        with mqstore.open(self._path, config=self._config) as store:
            for name, text, samples in self._found(store):
                is_counter = name.endswith("_total")
                family = (CounterMetricFamily if is_counter else GaugeMetricFamily)(name, text)
                for labels, value in samples:
                    family.add_sample(name, self._labels | labels, value)
                yield family

    def _found(self, store: Store) -> Iterator[_Found]:
        yield from self._storage(store)
        counts: dict[str, int] = {}
        for queue in store.queues():
            counts[queue.topic] = counts.get(queue.topic, 0) + queue.max_offset
        yield (
            "rocketmq_messages_in_total",
            "Total number of incoming messages",
            [
                ({"topic": topic, "is_system": _truth(_is_system(topic))}, count)
                for topic, count in counts.items()
            ],
        )
        deleted = Deleted(store)
        text = "Bytes deleted from the log"
        yield "mqstore_deleted_bytes_total", text, [({}, store.min_physical_offset)]
        gone = [({"topic": name}, sum(firsts.values())) for name, firsts in deleted.firsts.items()]
        yield "mqstore_deleted_messages_total", "Messages deleted", gone
        yield from self._lag(store, deleted)
        yield from self._pending(store)
        if self._backup is not None:
            yield from self._kept(self._backup, store)

    def _kept(self, backup: str | os.PathLike[str], store: Store) -> Iterator[_Found]:
        from mqstore.backup.moment import newest_snapshot

        found = None
        with contextlib.suppress(mqstore.StoreError):
            found = newest_snapshot(backup, self._backup_options)
        text = "Whether the backup can be read"
        yield "mqstore_backup_up", text, [({}, int(found is not None))]
        if found is not None:
            age: float = self._now_ms() // 1000 - found.time_ms // 1000
            if age < -60:  # a clock was wrong; the alert is to fire
                age = math.inf
            yield "mqstore_backup_age_seconds", "Age of the newest snapshot", [({}, age)]
            begin, end = store.min_physical_offset, store.max_physical_offset
            # A log that does not reach the backup's is another one.
            behind = end - (found.end_offset if begin <= found.end_offset <= end else begin)
            text = "Bytes of the log that the backup lacks"
            yield "mqstore_backup_behind_bytes", text, [({}, behind)]

    def _storage(self, store: Store) -> Iterator[_Found]:
        used = _used_bytes(store)
        end = store.max_physical_offset
        unflushed, undispatched = end - store.flushed_offset, end - store.dispatched_offset
        for name, text, value in (
            ("size", "Broker storage size", used),
            ("flush_behind_bytes", "Broker flush behind bytes", unflushed),
            ("dispatch_behind_bytes", "Broker dispatch behind bytes", undispatched),
        ):
            yield f"rocketmq_storage_{name}", text, [(_STORAGE, max(value, 0))]
        oldest = next(store.scan(on_error="skip", decompress=False), None)
        if oldest is not None and oldest.store_timestamp_ms > 0:
            age = [(_STORAGE, self._now_ms() - oldest.store_timestamp_ms)]
            yield "rocketmq_storage_message_reserve_time", "Broker message reserve time", age

    def _lag(self, store: Store, deleted: Deleted) -> Iterator[_Found]:
        missed: list[_Sample] = []
        negative: list[_Sample] = []
        lags: list[_Sample] = []
        latencies: list[_Sample] = []
        for (group, topic), queues in offsets_by_topic(store).items():
            place = {"consumer_group": group, "topic": topic}
            labels = {
                **place,
                "is_retry": _truth(topic.startswith(_RETRY_PREFIX)),
                "is_system": _truth(_is_system(topic, group)),
            }
            if below := sum(queue.queue_offset < 0 for queue in queues):
                negative.append((place, below))
            if gone := deleted.in_topic(topic, queues):
                missed.append((place, gone))
            lags.append((labels, sum(queue.lag for queue in queues)))
            latencies.append((labels, self._latency_ms(store, queues)))
        text = "Messages deleted before the group read them"
        yield "mqstore_consumer_deleted_messages", text, missed
        text = "Queues of which the group's offset is negative"
        yield "mqstore_consumer_negative_offsets", text, negative
        yield "rocketmq_consumer_lag_messages", "Consumer lag messages", lags
        yield "rocketmq_consumer_lag_latency", "Consumer lag time", latencies

    def _pending(self, store: Store) -> Iterator[_Found]:
        found = PendingMessages(store, self._now_ms()).report()

        def labels(row: DeadLetters | WaitingRetries) -> dict[str, str]:
            return {"consumer_group": row.group, "topic": row.origin_topic or ""}

        for name, text, count in (
            ("half_messages", "Transactions without an end", found.half_messages),
            ("overdue_messages", "Messages whose time has passed", found.overdue_messages),
            ("pending_unread_queues", "Queues that these counts lack in part", len(found.unread)),
        ):
            yield f"mqstore_{name}", text, [({}, count)]
        dead = [(labels(row), row.messages) for row in found.dead_letters]
        yield "mqstore_dead_letters", "Dead letters", dead
        waiting = [(labels(row), row.messages + row.scheduled) for row in found.retries]
        yield "mqstore_waiting_retries", "Redeliveries that wait", waiting

    def _latency_ms(self, store: Store, queues: list[GroupOffset]) -> int:
        """How long ago the oldest message was stored that the group has not consumed."""
        oldest = []
        for queue in queues:
            if queue.lag > 0:
                read = store.read(queue.topic, queue.queue_id, queue.queue_offset, max_messages=1)
                oldest += [message.store_timestamp_ms for message in read.messages]
        return max(self._now_ms() - min(oldest), 0) if oldest else 0


def _is_system(topic: str, group: str = "") -> bool:
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(_SYSTEM_TOPIC_PREFIX)
        or group.lower().startswith(_SYSTEM_GROUP_PREFIX)
    )


def _truth(value: bool) -> str:  # noqa: FBT001 - a label's value
    return "true" if value else "false"
