"""Gives consumer groups a new place in their queues."""

from __future__ import annotations

import itertools
import json
import os
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import mqstore
from mqstore._names import is_system_group, is_system_topic, table_names
from mqstore._native import _keep_config
from mqstore.care.unread import OFFSET_TABLES
from mqstore.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import GroupOffset, QueueInfo, Store

Backup: TypeAlias = "dict[tuple[str, str, int], int]"
"""Offsets by group, topic and queue."""

_RETRY = "%RETRY%"


def known_groups(store: Store, committed: Iterable[str]) -> set[str]:
    """Returns the groups that offsets, the table of groups or retry topics name."""
    groups = set(committed) | table_names(store, "subscriptionGroup.json", "subscriptionGroupTable")
    topics = set(store.topics()) | table_names(store, "topics.json", "topicConfigTable")
    groups.update(topic.removeprefix(_RETRY) for topic in topics if topic.startswith(_RETRY))
    return {group for group in groups if not is_system_group(group)}


def backup_offsets(root: str) -> Backup:
    """Returns the offsets of the backups of the tables that can be read."""
    found: Backup = {}
    for name in OFFSET_TABLES:
        path = Path(root, "config", f"{name}.bak")
        try:
            table = json.loads(mqstore.read_config_json(path))["offsetTable"]
            for place, queues in table.items():
                topic, _, group = place.partition("@")
                for queue_id, queue_offset in queues.items():
                    found[group, topic, int(queue_id)] = int(queue_offset)
        except (mqstore.StoreError, AttributeError, KeyError, TypeError, ValueError):
            continue  # A broker does not use such a file either.
    return found


def keep(root: str) -> Iterator[Path]:
    """Copies each table of offsets to a numbered name; yields the copies."""
    for name in OFFSET_TABLES:
        copy = _keep_config(Path(root, "config", name))
        if copy is not None:
            yield Path(copy)


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
            there = [one for one in named if path.name in OFFSET_TABLES and one.is_file()]
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
    backup: Backup,
) -> Iterator[dict[str, Any]]:
    """Yields the old and the new place of each group in each queue; `commit` sets these.

    With "backup" these are the queues where the offset is wrong and that of the backup is right.

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
            if to == "backup":
                place = backup.get((group, queue.topic, queue.queue_id), -1)
                is_right = was is None or 0 <= was <= queue.max_offset
                if is_right or not queue.min_offset <= place <= queue.max_offset:
                    continue
            else:
                place = _place(store, queue, to)
            yield {
                "group": group,
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "was": was,
                "queue_offset": place,
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
