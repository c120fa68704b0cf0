"""The columns that Spark sees, made from ``mqstore.ARROW_SCHEMA`` and never written twice."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import mqstore
from mqstore.errors import ConfigError, wrong_setting
from mqstore.spark.values import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqstore.spark.options import ReadOptions

ON_REQUEST = ("raw_body", "error")
"""Columns of a message that are there only when they are asked for."""


@functools.cache
def message_schema() -> StructType:
    """Every column of a message."""
    return from_arrow_schema(pa.schema(mqstore.ARROW_SCHEMA))


def usual_columns() -> list[str]:
    """The columns of a message unless others are asked for."""
    return [name for name in message_schema().fieldNames() if name not in ON_REQUEST]


def read_schema(options: ReadOptions, every: StructType) -> StructType:
    """The columns of a read: those that were asked for, and `error` where rows report damage.

    Args:
        options: The options.
        every: All columns of the table.

    Raises:
        ConfigError: No such column, or one that is named twice.
    """
    is_messages = options.table == "messages"
    names = list(options.columns or (usual_columns() if is_messages else every.fieldNames()))
    if options.on_error == "rows" and "error" not in names and "error" in every.fieldNames():
        names.append("error")
    return columns_schema(names, every)


def check_read_schema(schema: StructType, every: StructType, options: ReadOptions) -> list[str]:
    """The names in a schema that a user gave, which is how Spark hands over a projection.

    Args:
        schema: What was given to ``.schema(...)``.
        every: All columns of the table.
        options: The options.

    Raises:
        ConfigError: No such column, one of another type, or no `error` where rows report damage.
    """
    names = schema.fieldNames()
    for wanted, own in zip(schema, columns_schema(names, every), strict=True):
        if wanted.dataType != own.dataType or wanted.nullable != own.nullable:
            may = "" if own.nullable else " not null"
            found = "" if wanted.nullable else " not null"
            raise ConfigError(
                f"column {own.name} is {own.dataType.simpleString()}{may}, "
                f"the schema has {wanted.dataType.simpleString()}{found}",
                "columns",
            )
    if options.on_error == "rows" and "error" not in names and "error" in every.fieldNames():
        raise ConfigError(
            "onError=rows gives a row for each damaged range, and the schema has no column to tell "
            "it from a message; add `error string`, or take onError=skip",
            "onError",
        )
    return names


def columns_schema(names: Iterable[str], every: StructType | None = None) -> StructType:
    """The schema of some columns, in their order.

    Args:
        names: The columns.
        every: All that there are; those of a message where left out.

    Raises:
        ConfigError: No such column, or one that is named twice.
    """
    every = message_schema() if every is None else every
    known = every.fieldNames()
    fields = []
    for name in names:
        if name not in known:
            raise ConfigError(unknown_name("column", name, known), "columns")
        field = every[name]
        if field in fields:
            raise wrong_setting("columns", "each column once", f"{name} twice")
        fields.append(field)
    return StructType(fields)
