"""``stats``: how many messages and bytes, by topic, hour and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqstore.cli.counting import GROUPINGS, SORTS, TIMES, count, largest_first, with_rates
from mqstore.cli.message_options import tags_option
from mqstore.cli.messages import note_stand_ins
from mqstore.cli.names import check_topics, note_nothing
from mqstore.cli.options import (
    begin_end_options,
    config_option,
    open_store,
    output_options,
    quiet_empty_option,
    read_argument,
    topics_option,
)
from mqstore.cli.output import Column, note
from mqstore.cli.progress import progress
from mqstore.errors import expected_got
from mqstore.text import count_text, day_text, minute_text, size_text, time_text

if TYPE_CHECKING:
    from mqstore.cli.output import Output

_GROUP_COLUMNS = {
    "topic": Column("topic"),
    "queue_id": Column("queue_id", right=True, title="QUEUE"),
    "minute": Column("minute_ms", minute_text, title="MINUTE"),
    "hour": Column("hour_ms", minute_text, title="HOUR"),
    "day": Column("day_ms", day_text, title="DAY"),
    "tags": Column("tags"),
}


def _read_groupings(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    value: tuple[str, ...],
) -> tuple[str, ...]:
    names = tuple(filter(None, ",".join(value).split(",")))
    for name in names:
        if name not in GROUPINGS:
            raise click.BadParameter(expected_got(", ".join(GROUPINGS), repr(name)))
    if len(set(names)) < len(names):
        raise click.BadParameter(expected_got("each at most once", ",".join(names)))
    return names


def _grown(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{size_text(abs(size))}"


@click.command("stats", short_help="Count messages and bytes by topic, hour and more.")
@read_argument()
@click.option(
    "--by",
    multiple=True,
    default=["topic,hour"],
    show_default="topic,hour",
    callback=_read_groupings,
    metavar="LIST",
    help="Groupings: any of topic, queue_id, minute, hour, day, tags; separated by commas, or each "
    "with its own --by.",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="Sort by this, the largest or newest first; by group if left out.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Only the first rows; the most messages where no --sort is given.",
)
@topics_option()
@tags_option
@begin_end_options
@click.option("--skip-damage", is_flag=True, help="Go on behind damage, count it, and exit with 1.")
@quiet_empty_option
@config_option
@output_options
def stats_command(
    output: Output,
    store: str,
    by: tuple[str, ...],
    sort: str | None,
    top: int | None,
    topics: tuple[str, ...],
    tags: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    skip_damage: bool,  # noqa: FBT001
    allow_empty: bool,  # noqa: FBT001
    config: str | None,
) -> int:
    """Count the messages of a store and their bytes, and from when to when they were stored.

    Times are those of the store time; days begin in the zone of --tz. By minute, hour or day,
    GROWTH and +BYTES are how many messages and bytes more there are than in the one before.
    """
    by_time = not set(TIMES).isdisjoint(by)
    if sort in {"growth", "bytes_growth"} and not by_time:
        times = ", ".join(TIMES)
        raise click.UsageError(
            f"--sort {sort} needs one of {times} in --by; found {','.join(by)!r}"
        )
    if topics and not allow_empty:
        with open_store(store, config) as opened:
            check_topics(opened, topics)
    with progress("counting") as advance:
        counted = count(
            store,
            by,
            topics=topics or None,
            tags=tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            on_error="skip" if skip_damage else "raise",
            progress=advance,
            config=config,
        )
    rows = with_rates(counted.rows, by)
    if sort or top:
        rows = largest_first(rows, sort or "messages")
    output.rows(
        rows[:top],
        (
            *(_GROUP_COLUMNS[name] for name in by),
            Column("messages", count_text, right=True),
            Column("messages_per_s", "{:,.2f}".format, right=True, title="/S"),
            *((Column("growth", "{:+,}".format, right=True),) if by_time else ()),
            Column("bytes", size_text, right=True),
            *((Column("bytes_growth", _grown, right=True, title="+BYTES"),) if by_time else ()),
            Column("first_store_timestamp_ms", time_text, title="FIRST"),
            Column("last_store_timestamp_ms", time_text, title="LAST"),
        ),
    )
    if top is not None and len(rows) > top:
        note(f"{count_text(len(rows) - top)} more rows; --top {top} was the limit")
    if counted.other_messages:
        note(f"{count_text(counted.other_messages)} messages of further groups are not listed")
    note_stand_ins(counted.stand_ins)
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
    if not rows and not allow_empty:
        return note_nothing(store, tags=tags, **{"from": begin_ms, "to": end_ms})
    return 0
