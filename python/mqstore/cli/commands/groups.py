"""``groups``: how far the consumer groups have read, and new places for them."""

from __future__ import annotations

import itertools
import json
import os
import time
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

import mqstore
from mqstore._names import is_system_group, is_system_topic, table_names
from mqstore._native import _keep_config
from mqstore.care.unread import OFFSET_TABLES, GroupReader
from mqstore.care.upkeep import beyond_ends
from mqstore.cli import shared
from mqstore.cli.names import check_group, check_topics
from mqstore.cli.options import Parsed, flag, open_to_change, option, read_command
from mqstore.cli.output import Column, Output, Row, columns, note
from mqstore.errors import CorruptionError
from mqstore.text import age_text, count_text, escape, parse_time, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import GroupOffset, QueueInfo, Store


_PLACE_NAMES = ("group", "topic", "queue_id", "was", "queue_offset")
_PLACES = columns("group", "topic", "queue_id", Column("was", right=True), "queue_offset")


def _columns(*, by_queue: bool) -> tuple[Column, ...]:
    now_ms = time.time_ns() // 1_000_000
    return columns(
        "group",
        "topic",
        *(("queue_id", "queue_offset", "max_offset") if by_queue else ("queues",)),
        Column("lag", count_text, right=True),
        Column(
            "oldest_unread_timestamp_ms",
            lambda stored_ms: age_text(now_ms - stored_ms),
            right=True,
            title="OLDEST UNREAD",
        ),
        Column("deleted_unread", count_text, right=True, title="DELETED UNREAD"),
        Column("offsets_timestamp_ms", time_text, title="OFFSETS AS OF"),
        Column("negative", lambda value: "yes" if value else ""),
        Column(
            "beyond_end",
            lambda count: count_text(count) if count else "",
            right=True,
            title="BEYOND END",
        ),
    )


def _read_place(text: str) -> str | int:
    return text if text in {"earliest", "latest", "backup"} else parse_time(text)


@read_command("groups")
@option("-g --group", "GROUP", "Only this consumer group.")
@flag("-v --verbose", "A line for each queue.")
@option(
    "--reset-to",
    "earliest|latest|backup|TIME",
    "Say where the groups would be set to; with --apply set them.",
    type=Parsed("place", _read_place),
)
@shared.topics("Reset only these.")
@flag("--only-negative", "Reset only queues with a negative offset.")
@flag("--apply", "Set the groups to the place of --reset-to.")
def groups_command(
    output: Output,
    store: str,
    group: str | None,
    verbose: bool,
    reset_to: str | int | None,
    config: str | None,
    **resetting: Any,
) -> int:
    """List the consumer groups: offsets and lag of each queue.

    LAG counts the messages that a group has not taken. OLDEST UNREAD is the age of the first of
    them that is still there. DELETED UNREAD counts those that retention deleted. BEYOND END is how
    far offsets lie beyond the ends of their queues: such a group gets nothing until the queues have
    grown so far. Offsets are those
    of config/consumerOffset.json, of a broker with light queues of config/lmqConsumerOffset.json
    too; OFFSETS AS OF is that file's modification time, which a copy of
    the file may not keep.

    --reset-to gives each group, or that of -g, a new place: in the topics of its offsets, and where
    it has none in all topics. "backup" sets the offsets that are missing, negative or beyond their
    queue's end to those of the .bak file, where these are within the queue. The table and its .bak
    file are kept under numbered names, such as consumerOffset.json.mqstore-1. The broker must be
    stopped.

    Examples:
        mqstore groups /data/store
        mqstore groups /data/store -g billing -v
    """
    if reset_to is not None:
        return _reset(output, store, group, reset_to, config=config, **resetting)
    if any(resetting.values()):
        raise click.UsageError("--apply, --topic and --only-negative belong to --reset-to.")
    with mqstore.open(store, config=config) as opened:
        for warning in opened.warnings:
            if "Offset.json" in warning:
                note(f"mqstore: {escape(warning)}")
        if group is not None:
            check_group(opened, group, opened.groups())
        reader = GroupReader(opened)
        rows = reader.queues(group) if verbose else reader.topics(group)
        output.rows(rows, _columns(by_queue=verbose))
    if not reader.found:
        note(f"mqstore: no group has committed an offset in {escape(store)}")
    for text in reader.unreadable:
        note(f"mqstore: {text}")
    return int(bool(reader.unreadable))


def _reset(
    output: Output,
    root: str,
    group: str | None,
    to: str | int,
    *,
    topics: tuple[str, ...],
    apply: bool,
    only_negative: bool,
    config: str | None,
) -> int:
    """Shows the new places of the groups, or sets them to these."""
    backup = backup_offsets(root) if to == "backup" else {}

    def places(store: Store, committed: dict[str, list[GroupOffset]]) -> list[Row]:
        given = (groups, to, topics)
        return list(reset(store, committed, *given, only_negative=only_negative, backup=backup))

    # Opening for writing sets offsets beyond the end back: they would no longer count as wrong.
    with mqstore.open(root, config=config) as store:
        unreadable, committed = None, {}
        try:
            committed = store.groups()
        except mqstore.CorruptionError as error:
            unreadable = error
        groups = known_groups(store, {*committed, *(name for name, _, _ in backup)})
        if group is not None and groups:
            check_group(store, group, groups)
        check_topics(store, topics)
        groups = groups if group is None else {group}
        if not groups:
            note("mqstore: no consumer group is known; -g names one")
            return 1
        rows = places(store, committed)
        if not rows:
            note("mqstore: nothing to reset: no group has such a queue")
            return 1
        if unreadable is not None and not apply:
            raise unreadable
        set_back = list(_set_back(committed, rows))
    if apply:
        with open_to_change(root, config) as store:
            if unreadable is not None:
                for aside in put_aside(store):
                    name = escape(str(aside))
                    note(f"mqstore: the offsets cannot be read; the file is {name} now")
                # Another table may be sound.
                committed = store.groups()
            if to != "backup":
                rows = places(store, committed)
            for copy in keep(root):
                note(f"mqstore: the offsets as they were are in {escape(str(copy))}")
            commit(store, rows)
    output.rows([*rows, *set_back], _PLACES)
    if set_back:
        note(
            f"{count_text(len(set_back))} of these lie beyond their queues' ends: opening the store"
            " for writing sets them back to there, whichever groups were asked for"
        )
    if not apply:
        note("nothing was changed; --apply does it")
    return 0


def _set_back(committed: dict[str, list[GroupOffset]], rows: list[Row]) -> Iterator[Row]:
    """Yields the other offsets that opening for writing changes, in the form of `reset`."""
    reset_places = {(row["group"], row["topic"], row["queue_id"]) for row in rows}
    for group, at in beyond_ends(committed):
        place = (group, at.topic, at.queue_id)
        if place not in reset_places:
            places = (*place, at.queue_offset, at.max_offset)
            yield dict(zip(_PLACE_NAMES, places, strict=True))


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

    With "backup" these are the queues where the offset is wrong or gone and that of the backup is
    right.

    Without `topics` these are the topics that a group has offsets of, and where it has none all
    topics that are not a broker's own.
    """
    queues = store.queues()
    for group in sorted(groups):
        known = {(at.topic, at.queue_id): at.queue_offset for at in committed.get(group, ())}
        kept = {topic for name, topic, _ in backup if name == group}
        wanted = set(topics) or {topic for topic, _ in known} | kept
        wanted = wanted or {queue.topic for queue in queues if not is_system_topic(queue.topic)}
        if not topics:
            wanted.add(_RETRY + group)
        for queue in queues:
            was = known.get((queue.topic, queue.queue_id))
            if queue.topic not in wanted or (only_negative and (was is None or was >= 0)):
                continue
            if to == "backup":
                place = backup.get((group, queue.topic, queue.queue_id), -1)
                is_right = was is not None and 0 <= was <= queue.max_offset
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
