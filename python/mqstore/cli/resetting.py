"""Gives consumer groups a new place in their queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import QueueInfo, Store

__all__ = ["known_groups", "put_aside", "reset"]

_RETRY = "%RETRY%"
_OF_BROKER = (
    "CID_RMQ_SYS_",
    "CID_SYS_",
    "CID_ONS",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_",
    "DEFAULT_",
    "__MONITOR",
)
_SYSTEM_TOPICS = ("%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_XXXX", "TBW102", "SELF_TEST_TOPIC")


def known_groups(store: Store) -> set[str]:
    """Returns the groups that offsets, the table of groups or retry topics name."""
    groups = set(store.groups())
    groups.update(t.removeprefix(_RETRY) for t in store.topics() if t.startswith(_RETRY))
    groups.update(
        _names(Path(store.path, "config", "subscriptionGroup.json"), "subscriptionGroupTable")
    )
    topics = _names(Path(store.path, "config", "topics.json"), "topicConfigTable")
    groups.update(t.removeprefix(_RETRY) for t in topics if t.startswith(_RETRY))
    return {group for group in groups if not group.startswith(_OF_BROKER)}


def _names(path: Path, table: str) -> set[str]:
    try:
        return set(json.loads(path.read_text(encoding="utf-8"))[table])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def put_aside(root: str) -> Path | None:
    """Renames a table of offsets that cannot be read, and has no backup; returns its new name."""
    path = Path(root, "config", "consumerOffset.json")
    if not path.is_file() or path.with_name(f"{path.name}.bak").is_file():
        return None
    aside = path.with_name(f"{path.name}.damaged")
    path.rename(aside)
    return aside


def reset(
    store: Store,
    groups: set[str],
    to: str | int,
    topics: tuple[str, ...],
    *,
    apply: bool,
) -> Iterator[dict[str, Any]]:
    """Yields the old and the new place of each group in each queue, and commits the new ones.

    Without `topics` these are the topics that a group has offsets of, and where it has none all
    topics that are not a broker's own.
    """
    queues = store.queues()
    committed = store.groups()
    for group in sorted(groups):
        known = {(at.topic, at.queue_id): at.queue_offset for at in committed.get(group, ())}
        wanted = set(topics) or {topic for topic, _ in known}
        wanted = wanted or {q.topic for q in queues if not q.topic.startswith(_SYSTEM_TOPICS)}
        retry = {_RETRY + group} if not topics else set()
        places = [
            (queue.topic, queue.queue_id, _place(store, queue, to))
            for queue in queues
            if queue.topic in wanted | retry
        ]
        if apply and places:
            with store.group(group) as consumer:
                for topic, queue_id, place in places:
                    consumer.seek(topic, queue_id, place)
                consumer.commit()
        for topic, queue_id, place in places:
            yield {
                "group": group,
                "topic": topic,
                "queue_id": queue_id,
                "was": known.get((topic, queue_id)),
                "queue_offset": place,
            }


def _place(store: Store, queue: QueueInfo, to: str | int) -> int:
    if to == "earliest":
        return queue.min_offset
    if to == "latest":
        return queue.max_offset
    return store.offset_at(queue.topic, queue.queue_id, int(to))
