"""``stats``: how many messages and bytes, by topic, hour and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.message_options import tags_option
from mqstore.cli.options import (
    begin_end_options,
    config_option,
    output_options,
    store_argument,
    topic_option,
)
from mqstore.cli.output import Column, note
from mqstore.cli.progress import progress
from mqstore.text import count_text, size_text, time_text

if TYPE_CHECKING:
    from typing import Any, Literal

    from mqstore.cli.output import Output

_GROUPINGS = ("topic", "queue_id", "hour", "day", "tags")
_GROUP_COLUMNS = {
    "topic": Column("topic"),
    "queue_id": Column("queue_id", right=True, title="QUEUE"),
    "hour": Column("hour_ms", lambda ms: time_text(ms).removesuffix(":00.000Z"), title="HOUR"),
    "day": Column("day_ms", lambda ms: time_text(ms).removesuffix("T00:00:00.000Z"), title="DAY"),
    "tags": Column("tags"),
}


def _read_groupings(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    value: str,
) -> tuple[str, ...]:
    names = tuple(filter(None, value.split(",")))
    for name in names:
        if name not in _GROUPINGS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(_GROUPINGS)}")
    if len(set(names)) < len(names):
        raise click.BadParameter("each at most once")
    return names


@click.command("stats", short_help="Count messages and bytes by topic, hour and more.")
@store_argument
@click.option(
    "--by",
    default="topic,hour",
    show_default=True,
    callback=_read_groupings,
    metavar="LIST",
    help="Groupings: any of topic, queue_id, hour, day, tags, separated by commas.",
)
@topic_option(required=False)
@tags_option
@begin_end_options
@click.option("--skip-damage", is_flag=True, help="Go on behind damage, count it, and exit with 1.")
@config_option
@output_options
def stats_command(
    output: Output,
    store: str,
    by: tuple[Literal["topic", "queue_id", "hour", "day", "tags"], ...],
    topic: str | None,
    tags: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    skip_damage: bool,  # noqa: FBT001
    config: str | None,
) -> int:
    """Count the messages of a store and their bytes, and from when to when they were stored.

    Hours and days are those of the store time in UTC.
    """
    with progress("counting") as tell:
        counted = mqstore.stats(
            store,
            by=by,
            topics=None if topic is None else [topic],
            tags=tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            on_error="skip" if skip_damage else "raise",
            progress=tell,
            config=config,
        )
    output.rows(
        (row | {"messages_per_s": _rate(row, by)} for row in counted),
        (
            *(_GROUP_COLUMNS[name] for name in by),
            Column("messages", count_text, right=True),
            Column("messages_per_s", "{:,.2f}".format, right=True, title="/S"),
            Column("bytes", size_text, right=True),
            Column("first_store_timestamp_ms", time_text, title="FIRST"),
            Column("last_store_timestamp_ms", time_text, title="LAST"),
        ),
    )
    if counted.others.messages:
        note(f"{count_text(counted.others.messages)} messages of further groups are not listed")
    if counted.deleted_messages or counted.deleted_bytes:
        note(
            f"the store no longer holds {count_text(counted.deleted_messages)} older messages; "
            f"{size_text(counted.deleted_bytes)} of its log were deleted"
        )
    if counted.skipped_ranges:
        note(
            f"skipped {counted.skipped_ranges} damaged ranges, {counted.skipped_bytes} bytes; "
            "`mqstore verify` lists them"
        )
        return 1
    return 0


def _rate(row: dict[str, Any], by: tuple[str, ...]) -> float | None:
    """Messages in a second: of the hour or the day, else between the first and the last."""
    if "hour" in by:
        seconds: float = 3_600
    elif "day" in by:
        seconds = 86_400
    else:
        span_ms = row["last_store_timestamp_ms"] - row["first_store_timestamp_ms"]
        if span_ms == 0:
            return None
        seconds = span_ms / 1000
    return float(round(row["messages"] / seconds, 3))
