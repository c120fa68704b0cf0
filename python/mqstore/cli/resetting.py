"""Gives consumer groups a new place in their queues."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore._names import is_system_group, is_system_topic, table_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import QueueInfo, Store

__all__ = ["known_groups", "put_aside", "reset"]

_RETRY = "%RETRY%"


def known_groups(store: Store) -> set[str]:
    """Returns the groups that offsets, the table of groups or retry topics name."""
    groups = set(store.groups()) | table_names(
        store, "subscriptionGroup.json", "subscriptionGroupTable"
    )
    topics = set(store.topics()) | table_names(store, "topics.json", "topicConfigTable")
    groups.update(topic.removeprefix(_RETRY) for topic in topics if topic.startswith(_RETRY))
    return {group for group in groups if not is_system_group(group)}


def put_aside(root: str) -> Path | None:
    """Renames a table of offsets that cannot be read, and has no backup; returns its new name."""
    path = Path(root, "config", "consumerOffset.json")
    if not path.is_file() or path.with_name(f"{path.name}.bak").is_file():
        return None
    names = itertools.chain([".damaged"], (f".damaged-{number}" for number in itertools.count(2)))
    free = (path.with_name(path.name + name) for name in names)
    aside = next(name for name in free if not os.path.lexists(name))
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
        wanted = wanted or {queue.topic for queue in queues if not is_system_topic(queue.topic)}
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
