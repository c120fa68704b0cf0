"""``groups``: how far the consumer groups have read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore.care.unread import GroupReader
from mqstore.cli.names import check_group, check_topics
from mqstore.cli.options import (
    flag,
    open_store,
    open_to_change,
    option,
    read_command,
    topics_option,
)
from mqstore.cli.output import Column, Output, Row, columns, note
from mqstore.cli.resetting import (
    backup_offsets,
    commit,
    keep,
    known_groups,
    put_aside,
    reset,
)
from mqstore.cli.units import Parsed
from mqstore.text import age_text, count_text, escape, parse_time, time_text

if TYPE_CHECKING:
    from mqstore import GroupOffset, Store

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
@topics_option("Reset only these.")
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
    it has none in all topics. "backup" sets the offsets that are negative or beyond their queue's
    end to those of the .bak file, where these are within the queue. The table of offsets is kept
    under a numbered name, such as consumerOffset.json.mqstore-1. The broker must be stopped.
    """
    if reset_to is not None:
        return _reset(output, store, group, reset_to, config=config, **resetting)
    if any(resetting.values()):
        raise click.UsageError("--apply, --topic and --only-negative belong to --reset-to.")
    with open_store(store, config) as opened:
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
    with open_store(root, config) as store:
        unreadable, committed = None, {}
        try:
            committed = store.groups()
        except mqstore.CorruptionError as error:
            unreadable = error
        groups = known_groups(store, committed)
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
    output.rows(rows, _PLACES)
    if not apply:
        note("nothing was changed; --apply does it")
    return 0
