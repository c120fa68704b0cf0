"""``stats``: how many messages and bytes, by topic, hour and more."""

from __future__ import annotations

from typing import Any

import click

from mqstore.cli.counting import GROUPINGS, SORTS, TIMES, count, largest_first, with_rates
from mqstore.cli.message_options import tags_option
from mqstore.cli.messages import note_skipped, note_stand_ins
from mqstore.cli.names import check_topics, note_nothing
from mqstore.cli.options import (
    begin_end_options,
    open_store,
    option,
    quiet_empty_option,
    read_command,
    skip_damage_option,
    topics_option,
)
from mqstore.cli.output import Column, Output, columns, note
from mqstore.cli.progress import progress
from mqstore.cli.units import COUNT
from mqstore.errors import expected_got
from mqstore.text import count_text, day_text, minute_text, size_text

_TIME_COLUMNS = {
    "minute": Column("minute_ms", minute_text, title="MINUTE"),
    "hour": Column("hour_ms", minute_text, title="HOUR"),
    "day": Column("day_ms", day_text, title="DAY"),
}


def _read_groupings(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
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


@read_command("stats", short_help="Count messages and bytes by topic, hour and more.")
@option(
    "--by",
    "LIST",
    "Groupings: any of topic, queue_id, minute, hour, day, tags; separated by commas, or each "
    "with its own --by.",
    multiple=True,
    default=["topic,hour"],
    show_default="topic,hour",
    callback=_read_groupings,
)
@option(
    "--sort",
    None,
    "Sort by this, the largest or newest first; by group if left out.",
    type=click.Choice(SORTS),
)
@option(
    "--top",
    "COUNT",
    "Only the first rows; the most messages where no --sort is given.",
    type=COUNT,
)
@topics_option()
@tags_option
@begin_end_options
@skip_damage_option
@quiet_empty_option
def stats_command(
    output: Output,
    store: str,
    by: tuple[str, ...],
    sort: str | None,
    top: int | None,
    topics: tuple[str, ...],
    skip_damage: bool,
    allow_empty: bool,
    **options: Any,
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
        with open_store(store, options["config"]) as opened:
            check_topics(opened, topics)
    with progress("counting") as advance:
        rows, counted = count(
            store,
            by,
            topics=topics or None,
            on_error="skip" if skip_damage else "raise",
            progress=advance,
            **options,
        )
    rows = with_rates(rows, by)
    if sort or top:
        rows = largest_first(rows, sort or "messages")
    growth = Column("growth", "{:+,}".format, right=True)
    bytes_growth = Column("bytes_growth", _grown, right=True, title="+BYTES")
    shown = columns(
        *(_TIME_COLUMNS.get(name, name) for name in by),
        "messages",
        Column("messages_per_s", "{:,.2f}".format, right=True, title="/S"),
        *((growth,) if by_time else ()),
        "bytes",
        *((bytes_growth,) if by_time else ()),
        "first_store_timestamp_ms",
        "last_store_timestamp_ms",
    )
    output.rows(rows[:top], shown)
    if top is not None and len(rows) > top:
        note(f"{count_text(len(rows) - top)} more rows; --top {top} was the limit")
    if counted.others.messages:
        note(f"{count_text(counted.others.messages)} messages of further groups are not listed")
    note_stand_ins(counted.stand_ins)
    if counted.deleted_messages or counted.deleted_bytes:
        note(
            f"the store no longer holds {count_text(counted.deleted_messages)} older messages; "
            f"{size_text(counted.deleted_bytes)} of its log were deleted"
        )
    if counted.skipped_ranges:
        return note_skipped(counted.skipped_ranges, counted.skipped_bytes)
    if not rows and not allow_empty:
        bounds = {"from": options["begin_ms"], "to": options["end_ms"]}
        return note_nothing(store, tags=options["tags"], **bounds)
    return 0
