"""Counts of messages for ``stats``: by local day too, with growth, sorted and cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mqstore
from mqstore.text.zone import day_begin, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
