"""Pushes Spark's filters down to read options.

The options never exclude a row that the filters accept, and Spark evaluates all filters again. So
an unsupported filter costs only time.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from mqstore.exchange.narrowing import number_of, tighten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqstore.spark.options import ReadOptions

# Filters of a scan, and the fields of the options that say the same.
_FIELDS = {
    "topics": "topics",
    "tags": "tags",
    "keys": "keys",
    "start_physical_offset": "starting_physical_offset",
    "stop_physical_offset": "ending_physical_offset",
    "begin_ms": "starting_timestamp_ms",
    "end_ms": "ending_timestamp_ms",
}


def narrow(options: ReadOptions, filters: Sequence[Filter]) -> ReadOptions:
    """The options with what the filters rule out left out.

    Args:
        options: The options of the read.
        filters: Spark's filters, all of which a row must pass.
    """
    given = {name: getattr(options, field) for name, field in _FIELDS.items()}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for column, op, value in map(_part, filters):
        # Rows must have keys of the options too, at which Spark does not look.
        if column != "unique_key" or options.keys is None:
            tighten(asked, column, op, value)
    changed = {field: _plain(asked[name]) for name, field in _FIELDS.items() if name in asked}
    if "topics" in asked and options.topic_pattern is not None:
        topics = sorted(options.topics_of(asked["topics"]))
        changed |= {"topics": tuple(topics), "topic_pattern": None}
    return dataclasses.replace(options, **changed)


def _part(one: Filter) -> tuple[str, str, Any]:
    """Column, operator and value of a filter, as ``tighten`` takes them."""
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value) if value is not None:
            return column, "Eq", _aware(value)
        case In((column,), values):
            return column, "In", [_aware(value) for value in values if value is not None]
        case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
            return column, "GtEq", _aware(value)
        case LessThan((column,), value) | LessThanOrEqual((column,), value):
            return column, "LtEq", _aware(value)
    return "", "", None


def _aware(value: object) -> object:
    is_naive = isinstance(value, datetime) and value.tzinfo is None
    return value.replace(tzinfo=UTC) if is_naive else value  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A filter as the options have it."""
    if isinstance(value, list):
        return tuple(value)
    return number_of(value) if isinstance(value, datetime) else value
