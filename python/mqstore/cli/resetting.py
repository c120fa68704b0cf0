"""Gives consumer groups a new place in their queues."""

from __future__ import annotations

import itertools
import os
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore._names import is_system_group, is_system_topic, table_names
from mqstore.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import GroupOffset, QueueInfo, Store

__all__ = ["commit", "known_groups", "put_aside", "reset"]

_RETRY = "%RETRY%"
_TABLES = ("consumerOffset.json", "lmqConsumerOffset.json")


def known_groups(store: Store, committed: Iterable[str]) -> set[str]:
    """Returns the groups that offsets, the table of groups or retry topics name."""
    groups = set(committed) | table_names(store, "subscriptionGroup.json", "subscriptionGroupTable")
    topics = set(store.topics()) | table_names(store, "topics.json", "topicConfigTable")
    groups.update(topic.removeprefix(_RETRY) for topic in topics if topic.startswith(_RETRY))
    return {group for group in groups if not is_system_group(group)}


def put_aside(store: Store) -> Iterator[Path]:
    """Renames each table of offsets that cannot be read, and its backup; yields the new names.

    Raises:
        CorruptionError: What cannot be read is another file.
    """
    while True:
        try:
            store.groups()
        except CorruptionError as error:
            path = Path(error.path or "")
            path = path.with_name(path.name.removesuffix(".bak"))
            named = [path, path.with_name(f"{path.name}.bak")]
            there = [one for one in named if path.name in _TABLES and one.is_file()]
            if not there:
                raise
            yield from map(_renamed, there)
        else:
            return


def _renamed(path: Path) -> Path:
    names = itertools.chain([".damaged"], (f".damaged-{number}" for number in itertools.count(2)))
    free = (path.with_name(path.name + name) for name in names)
    aside = next(name for name in free if not os.path.lexists(name))
    path.rename(aside)
    return aside


def reset(
    store: Store,
    committed: dict[str, list[GroupOffset]],
    groups: set[str],
    to: str | int,
    topics: tuple[str, ...],
    *,
    only_negative: bool,
) -> Iterator[dict[str, Any]]:
    """Yields the old and the new place of each group in each queue; `commit` sets these.

    Without `topics` these are the topics that a group has offsets of, and where it has none all
    topics that are not a broker's own.
    """
    queues = store.queues()
    for group in sorted(groups):
        known = {(at.topic, at.queue_id): at.queue_offset for at in committed.get(group, ())}
        wanted = set(topics) or {topic for topic, _ in known}
        wanted = wanted or {queue.topic for queue in queues if not is_system_topic(queue.topic)}
        if not topics:
            wanted.add(_RETRY + group)
        for queue in queues:
            was = known.get((queue.topic, queue.queue_id))
            if queue.topic not in wanted or (only_negative and (was is None or was >= 0)):
                continue
            yield {
                "group": group,
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "was": was,
                "queue_offset": _place(store, queue, to),
            }


def commit(store: Store, rows: list[dict[str, Any]]) -> None:
    """Gives the groups the places that `reset` named."""
    for group, of_group in itertools.groupby(rows, itemgetter("group")):
        with store.group(group) as consumer:
            for row in of_group:
                consumer.seek(row["topic"], row["queue_id"], row["queue_offset"])
            consumer.commit()


def _place(store: Store, queue: QueueInfo, to: str | int) -> int:
    if to == "earliest":
        return queue.min_offset
    if to == "latest":
        return queue.max_offset
    return store.offset_at(queue.topic, queue.queue_id, int(to))
