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
import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import mqstore
from mqstore.care.pending import PendingMessages
from mqstore.care.unread import Deleted
from mqstore.errors import needs
from mqstore.store import connect, is_remote, root_of

with needs("metrics", "mqstore.metrics"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from mqstore import DeadLetters, GroupOffset, Store, WaitingRetries
    from mqstore.config import ConfigLike

__all__ = ["StoreCollector"]

Samples: TypeAlias = "list[tuple[dict[str, str], float]]"

# `DefaultStoreMetricsManager` says the same of every store.
_STORAGE = {"storage_type": "local", "storage_medium": "disk"}
_RETRY_PREFIX = "%RETRY%"
# `TopicValidator`, and the prefix of system groups in `MixAll`.
_SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX = "rmq_sys_", "cid_rmq_sys_"


def _used_bytes(store: Store) -> int:
    """Bytes taken on the store's disk; of a store behind a URL those of its objects."""
    root = root_of(store)
    if is_remote(root):
        return sum(state.st_size for _, state in root.entries() if state is not None)
    disk = os.statvfs(root)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


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
            yield from self._storage(store)
            yield self._messages_in(store)
            deleted = Deleted(store)
            yield from self._deleted(store, deleted)
            yield from self._lag(store, deleted)
            yield from self._pending(store)
            if self._backup is not None:
                yield from self._kept(self._backup, store)

    def _kept(self, backup: str | os.PathLike[str], store: Store) -> Iterator[Metric]:
        from mqstore.backup.moment import newest_snapshot

        found = None
        with contextlib.suppress(mqstore.StoreError):
            found = newest_snapshot(backup, self._backup_options)
        samples: Samples = [({}, int(found is not None))]
        yield self._gauge("mqstore_backup_up", "Whether the backup can be read", samples)
        if found is not None:
            age: float = self._now_ms() // 1000 - found.time_ms // 1000
            if age < -60:  # a clock was wrong; the alert is to fire
                age = math.inf
            name = "mqstore_backup_age_seconds"
            yield self._gauge(name, "Age of the newest snapshot", [({}, age)])
            begin, end = store.min_physical_offset, store.max_physical_offset
            # A log that does not reach the backup's is another one.
            behind = end - (found.end_offset if begin <= found.end_offset <= end else begin)
            name = "mqstore_backup_behind_bytes"
            yield self._gauge(name, "Bytes of the log that the backup lacks", [({}, behind)])

    def _storage(self, store: Store) -> Iterator[Metric]:
        used = _used_bytes(store)
        end = store.max_physical_offset
        unflushed, undispatched = end - store.flushed_offset, end - store.dispatched_offset
        for name, text, value in (
            ("size", "Broker storage size", used),
            ("flush_behind_bytes", "Broker flush behind bytes", unflushed),
            ("dispatch_behind_bytes", "Broker dispatch behind bytes", undispatched),
        ):
            yield self._gauge(f"rocketmq_storage_{name}", text, [(_STORAGE, max(value, 0))])
        oldest = next(store.scan(on_error="skip", decompress=False), None)
        if oldest is not None and oldest.store_timestamp_ms > 0:
            age_ms = self._now_ms() - oldest.store_timestamp_ms
            name = "rocketmq_storage_message_reserve_time"
            yield self._gauge(name, "Broker message reserve time", [(_STORAGE, age_ms)])

    def _messages_in(self, store: Store) -> Metric:
        counts: dict[str, int] = {}
        for queue in store.queues():
            counts[queue.topic] = counts.get(queue.topic, 0) + queue.max_offset
        samples: Samples = [
            ({"topic": topic, "is_system": _truth(_is_system(topic))}, count)
            for topic, count in counts.items()
        ]
        family = CounterMetricFamily(
            "rocketmq_messages_in_total", "Total number of incoming messages"
        )
        return self._filled(family, samples)

    def _deleted(self, store: Store, deleted: Deleted) -> Iterator[Metric]:
        family = CounterMetricFamily("mqstore_deleted_bytes_total", "Bytes deleted from the log")
        yield self._filled(family, [({}, store.min_physical_offset)])
        samples: Samples = [
            ({"topic": topic}, sum(firsts.values())) for topic, firsts in deleted.firsts.items()
        ]
        family = CounterMetricFamily("mqstore_deleted_messages_total", "Messages deleted")
        yield self._filled(family, samples)

    def _lag(self, store: Store, deleted: Deleted) -> Iterator[Metric]:
        missed: Samples = []
        negative: Samples = []
        lags: Samples = []
        latencies: Samples = []
        for group, offsets in sorted(store.groups().items()):
            topics: dict[str, list[GroupOffset]] = {}
            for offset in offsets:
                topics.setdefault(offset.topic, []).append(offset)
            for topic, queues in topics.items():
                labels = {
                    "consumer_group": group,
                    "topic": topic,
                    "is_retry": _truth(topic.startswith(_RETRY_PREFIX)),
                    "is_system": _truth(_is_system(topic, group)),
                }
                gone = deleted.in_topic(topic, queues)
                below = sum(queue.queue_offset < 0 for queue in queues)
                if below:
                    negative.append(({"consumer_group": group, "topic": topic}, below))
                if gone:
                    missed.append(({"consumer_group": group, "topic": topic}, gone))
                lags.append((labels, sum(queue.lag for queue in queues)))
                latencies.append((labels, self._latency_ms(store, queues)))
        name = "mqstore_consumer_deleted_messages"
        yield self._gauge(name, "Messages deleted before the group read them", missed)
        name = "mqstore_consumer_negative_offsets"
        yield self._gauge(name, "Queues of which the group's offset is negative", negative)
        yield self._gauge("rocketmq_consumer_lag_messages", "Consumer lag messages", lags)
        yield self._gauge("rocketmq_consumer_lag_latency", "Consumer lag time", latencies)

    def _pending(self, store: Store) -> Iterator[Metric]:
        found = PendingMessages(store, self._now_ms()).report()

        def labels(row: DeadLetters | WaitingRetries) -> dict[str, str]:
            return {"consumer_group": row.group, "topic": row.origin_topic or ""}

        name = "mqstore_half_messages"
        yield self._gauge(name, "Transactions without an end", [({}, found.half_messages)])
        name = "mqstore_overdue_messages"
        yield self._gauge(name, "Messages whose time has passed", [({}, found.overdue_messages)])
        name = "mqstore_pending_unread_queues"
        yield self._gauge(name, "Queues that these counts lack in part", [({}, len(found.unread))])
        dead: Samples = [(labels(row), row.messages) for row in found.dead_letters]
        yield self._gauge("mqstore_dead_letters", "Dead letters", dead)
        waiting: Samples = [(labels(row), row.messages + row.scheduled) for row in found.retries]
        yield self._gauge("mqstore_waiting_retries", "Redeliveries that wait", waiting)

    def _latency_ms(self, store: Store, queues: list[GroupOffset]) -> int:
        """How long ago the oldest message was stored that the group has not consumed."""
        oldest = []
        for queue in queues:
            if queue.lag > 0:
                read = store.read(queue.topic, queue.queue_id, queue.queue_offset, max_messages=1)
                oldest += [message.store_timestamp_ms for message in read.messages]
        return max(self._now_ms() - min(oldest), 0) if oldest else 0

    def _gauge(self, name: str, text: str, samples: Samples) -> Metric:
        return self._filled(GaugeMetricFamily(name, text), samples)

    def _filled(self, family: Metric, samples: Samples) -> Metric:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for labels, value in samples:
            family.add_sample(name, self._labels | labels, value)
        return family


def _is_system(topic: str, group: str = "") -> bool:
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(_SYSTEM_TOPIC_PREFIX)
        or group.lower().startswith(_SYSTEM_GROUP_PREFIX)
    )


def _truth(value: bool) -> str:  # noqa: FBT001 - a label's value
    return "true" if value else "false"
