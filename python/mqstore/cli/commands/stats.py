"""``stats`` and ``metrics``: how many messages and bytes, by topic, hour and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore.cli import shared
from mqstore.cli.messages import note_skipped, note_stand_ins
from mqstore.cli.names import check_topics, note_nothing
from mqstore.cli.options import option, read_command, read_pairs, several, storage_options
from mqstore.cli.output import Column, Output, columns, note
from mqstore.cli.progress import progress
from mqstore.errors import expected_got, needs
from mqstore.text import count_text, day_text, escape, minute_text, size_text
from mqstore.text.zone import day_begin, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from mqstore import StoreStats
    from mqstore.cli.output import Row

GROUPINGS = ("topic", "queue_id", "minute", "hour", "day", "tags")
SORTS = ("messages", "bytes", "growth", "bytes_growth", "first", "last")
TIMES = ("minute", "hour", "day")
_SECONDS = {"minute": 60, "hour": 3_600, "day": 86_400}
_COUNTED: dict[str, Callable[[tuple[int, int]], int]] = {
    "messages": sum,
    "bytes": sum,
    "first_store_timestamp_ms": min,
    "last_store_timestamp_ms": max,
}
_SORT_FIELDS = {"first": "first_store_timestamp_ms", "last": "last_store_timestamp_ms"}
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
@several(
    "--by",
    "LIST",
    "Groupings: any of topic, queue_id, minute, hour, day, tags; separated by commas, or each "
    "with its own --by.",
    default=["topic,hour"],
    show_default="topic,hour",
    callback=_read_groupings,
)
@option("--sort", SORTS, "Sort by this, the largest or newest first; by group if left out.")
@option("--top", "COUNT", "Only the first rows; the most messages where no --sort is given.")
@shared.topics()
@shared.tags
@shared.begin_end
@shared.skip_damage
@shared.quiet_empty
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

    Examples:
        mqstore stats /data/store --by topic --sort bytes --top 10
        mqstore stats /data/store --by minute -t orders --from -1h
    """
    by_time = not set(TIMES).isdisjoint(by)
    if sort in {"growth", "bytes_growth"} and not by_time:
        times = ", ".join(TIMES)
        raise click.UsageError(
            f"--sort {sort} needs one of {times} in --by; found {','.join(by)!r}"
        )
    if topics and not allow_empty:
        with mqstore.open(store, config=options["config"]) as opened:
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


def _read_labels(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    labels = read_pairs(ctx, param, given)
    for name in labels:
        if not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise click.BadParameter(f"expected NAME=VALUE, got a name that is none: {name!r}")
    return labels


@read_command("metrics", short_help="Print metrics for Prometheus.")
@several(
    "--label labels",
    "NAME=VALUE",
    "A label for every metric, such as cluster=a; may be given several times.",
    callback=_read_labels,
)
@option("--backup", "TARGET", "A backup of the store, to measure it too.")
def metrics_command(output: Output, store: str, **options: Any) -> None:
    """Print the store's metrics in Prometheus' text format, named as a broker names them.

    Disk use, bytes behind in flushing and dispatching, age of the oldest message, messages by
    topic, and how far each consumer group is behind.

    Examples:
        mqstore metrics /data/store --label cluster=a > /var/lib/node_exporter/mqstore.prom
        mqstore metrics /data/store --json
    """
    with needs("metrics"):
        from prometheus_client import CollectorRegistry, generate_latest

        from mqstore.metrics import StoreCollector
    collector = StoreCollector(store, backup_options=storage_options(), **options)
    found = list(collector.collect())
    if output.form != "text":
        output.rows(
            {"name": sample.name, "labels": sample.labels, "value": sample.value}
            for metric in found
            for sample in metric.samples
        )
        return
    registry = CollectorRegistry()
    registry.register(_Escaped(found))
    for line in generate_latest(registry).decode().split("\n")[:-1]:
        output.line(line)


class _Escaped:
    """Metrics whose labels do nothing to a terminal; what is left to escape is the format's own."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            metric.samples = [
                sample._replace(labels={name: escape(text) for name, text in sample.labels.items()})
                for sample in metric.samples
            ]
            yield metric


def count(path: str, by: Sequence[str], **options: Any) -> tuple[list[Row], StoreStats]:
    """Counts messages by any of ``GROUPINGS``; days are those of the zone in force.

    Args:
        path: The store.
        by: The groupings.
        options: As for ``mqstore.stats``.

    Returns:
        A row for each group, and what else was counted.
    """
    # The extension knows days of UTC only: those of another zone are put together from hours.
    local = "day" in by and zone().name != "UTC"
    part = "hour" if zone().is_on_hours() else "quarter_hour"
    asked: list[Any] = [part if name == "day" and local else name for name in by]
    counted = mqstore.stats(path, by=list(dict.fromkeys(asked)), **options)
    rows: list[Row] = list(counted)
    if local:
        rows = _merged(({**row, "day_ms": day_begin(row[f"{part}_ms"])} for row in rows), by)
    return rows, counted


def _field(name: str) -> str:
    return f"{name}_ms" if name in TIMES else name


def _sorted(rows: Iterable[Row], by: Sequence[str]) -> list[Row]:
    names = sorted(by, key=("topic", "queue_id", *reversed(TIMES), "tags").index)
    return sorted(
        rows, key=lambda row: [(row[_field(name)] is not None, row[_field(name)]) for name in names]
    )


def _merged(rows: Iterable[Row], by: Sequence[str]) -> list[Row]:
    merged: dict[tuple[object, ...], Row] = {}
    fields = [_field(name) for name in by]
    for row in rows:
        key = tuple(row[name] for name in fields)
        total = merged.get(key)
        if total is None:
            merged[key] = {name: row[name] for name in (*fields, *_COUNTED)}
            continue
        for name, together in _COUNTED.items():
            total[name] = together((total[name], row[name]))
    return _sorted(merged.values(), by)


def with_rates(rows: Iterable[Row], by: Sequence[str]) -> list[Row]:
    """Adds to each row its messages in a second and, by time, how they grew.

    ``growth`` and ``bytes_growth`` are how many messages and bytes more there are than in the
    minute, hour or day before, ``None`` in a group's first.
    """
    finest = next((name for name in TIMES if name in by), None)
    rows = [row | {"messages_per_s": _rate(row, finest)} for row in rows]
    if finest is None:
        return rows
    others = [_field(name) for name in by if name not in TIMES]
    time_field = _field(finest)
    known = {(row[time_field], *(row[name] for name in others)): row for row in rows}
    firsts: dict[tuple[object, ...], int] = {}
    for row in rows:
        group = tuple(row[name] for name in others)
        firsts[group] = min(firsts.get(group, row[time_field]), row[time_field])
    for row in rows:
        group = tuple(row[name] for name in others)
        before = known.get((_before(row[time_field], finest), *group), {})
        first = row[time_field] == firsts[group]
        for name, counted in (("growth", "messages"), ("bytes_growth", "bytes")):
            row[name] = None if first else row[counted] - before.get(counted, 0)
    return rows


def _before(begin_ms: int, unit: str) -> int:
    """Where the unit of time before this one begins."""
    return day_begin(begin_ms - 1) if unit == "day" else begin_ms - 1000 * _SECONDS[unit]


def _rate(row: Row, unit: str | None) -> float | None:
    """Messages in a second: of the unit of time, else between the first and the last."""
    if unit is not None:
        seconds: float = _SECONDS[unit]
    else:
        seconds = (row["last_store_timestamp_ms"] - row["first_store_timestamp_ms"]) / 1000
    return float(round(row["messages"] / seconds, 3)) if seconds else None


def largest_first(rows: list[Row], sort: str) -> list[Row]:
    """Sorts rows by one of ``SORTS``, the largest or newest first."""
    field = _SORT_FIELDS.get(sort, sort)
    return sorted(
        rows, key=lambda row: (row.get(field) is not None, row.get(field) or 0), reverse=True
    )
