"""Pushes Spark's filters down to read options.

The options never exclude a row that the filters accept, and Spark evaluates all filters again. So
an unsupported filter costs only time.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

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

from mqstore.spark.values import topics_matching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqstore.spark.options import ReadOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# An expression is cut at ``||``, and trimmed as Java trims.
_PLAIN_TAG = re.compile(r"[^|*\x00-\x20](?:[^|*]*[^|*\x00-\x20])?", re.DOTALL)


def narrow(options: ReadOptions, filters: Sequence[Filter]) -> ReadOptions:
    """The options with what the filters rule out left out.

    Args:
        options: The options of the read.
        filters: Spark's filters, all of which a row must pass.
    """
    for one in filters:
        options = _narrow(options, one)
    return options


def _narrow(options: ReadOptions, one: Filter) -> ReadOptions:
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value) if value is not None:
            return _one_of(options, column, [value])
        case In((column,), values):
            return _one_of(options, column, [value for value in values if value is not None])
        case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
            return _at_least(options, column, value)
        case LessThan((column,), value) | LessThanOrEqual((column,), value):
            return _at_most(options, column, value)
    return options


def _one_of(options: ReadOptions, column: str, values: Sequence[object]) -> ReadOptions:
    texts = tuple(value for value in values if isinstance(value, str))
    if any("\ufffd" in text for text in texts):
        # Invalid UTF-8 is shown differently from what is stored.
        return options
    match column:
        case "topic":
            if options.topics is not None:
                texts = tuple(topic for topic in options.topics if topic in texts)
            if options.topic_pattern is not None:
                matching = topics_matching(options.topic_pattern, texts)
                texts = tuple(topic for topic in texts if topic in matching)
            return dataclasses.replace(options, topics=texts, topic_pattern=None)
        case "unique_key" if options.keys is None:
            return dataclasses.replace(options, keys=texts)
        case "tags" if options.tags is None and texts and all(map(_PLAIN_TAG.fullmatch, texts)):
            return dataclasses.replace(options, tags=" || ".join(texts))
        case "physical_offset" | "store_timestamp" if values:
            comparable = [value for value in values if isinstance(value, int | datetime)]
            if len(comparable) == len(values):
                least, most = min(comparable), max(comparable)
                return _at_most(_at_least(options, column, least), column, most)
    return options


def _at_least(options: ReadOptions, column: str, value: object) -> ReadOptions:
    match column, value:
        case "physical_offset", int():
            begin = max(options.starting_physical_offset or 0, value)
            return dataclasses.replace(options, starting_physical_offset=begin)
        case "store_timestamp", datetime():
            begin_ms = _milliseconds(value)
            if options.starting_timestamp_ms is not None:
                begin_ms = max(begin_ms, options.starting_timestamp_ms)
            return dataclasses.replace(options, starting_timestamp_ms=begin_ms)
    return options


def _at_most(options: ReadOptions, column: str, value: object) -> ReadOptions:
    match column, value:
        case "physical_offset", int():
            end = max(value + 1, 0)
            if options.ending_physical_offset is not None:
                end = min(end, options.ending_physical_offset)
            return dataclasses.replace(options, ending_physical_offset=end)
        case "store_timestamp", datetime():
            end_ms = _milliseconds(value)
            if options.ending_timestamp_ms is not None:
                end_ms = min(end_ms, options.ending_timestamp_ms)
            return dataclasses.replace(options, ending_timestamp_ms=end_ms)
    return options


def _milliseconds(value: datetime) -> int:
    """Unix milliseconds, rounded down: store times have no finer ones."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND
