"""The columns that Spark sees; those of a message are made from ``mqstore.ARROW_SCHEMA``."""

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
    from collections.abc import Iterable, Mapping

    from mqstore.spark.options import ReadOptions

ON_REQUEST = ("raw_body", "error")
"""Columns of a message that are there only when they are asked for."""


_MESSAGE = pa.schema(mqstore.ARROW_SCHEMA)
_TIME = pa.timestamp("us", tz="UTC")


def _schema(columns: str) -> pa.Schema:
    """A schema of columns of a message by name, and of others as ``name:type`` of Arrow."""
    fields = (column.partition(":") for column in columns.split())
    return pa.schema(
        pa.field(name, _TIME if kind == "time" else kind) if kind else _MESSAGE.field(name)
        for name, _, kind in fields
    )


_PLACE = "broker topic queue_id queue_offset physical_offset store_size"
ARROW_SCHEMAS: Mapping[str, pa.Schema] = {
    "messages": _MESSAGE,
    "raw": _schema(f"{_PLACE} record:binary error"),
    "dispatch": _schema(f"{_PLACE} tags_code:int64 store_timestamp sys_flag keys unique_key"),
    "consumequeue": _schema(f"{_PLACE} tags_code:int64 message_count:int16 store_timestamp"),
    "index": _schema(
        "broker file:string number:int32 key_hash:int32 physical_offset store_timestamp "
        "prev_entry:int32"
    ),
    "files": _schema(
        "broker path:string structure:string size:int64 allocated:int64 modified:time"
    ),
    "checkpoint": _schema(
        "broker physic_msg_timestamp:time logics_msg_timestamp:time index_msg_timestamp:time "
        "master_flushed_offset:int64 confirm_physical_offset:int64 logics_physical_offset:int64 "
        "min_physical_offset:int64 max_physical_offset:int64 dispatched_offset:int64 abort:bool"
    ),
    "offsets": _schema(
        "broker consumer_group:string topic queue_id queue_offset max_offset:int64 lag:int64"
    ),
    "damage": _schema(
        "broker code:string severity:string path:string offset:int64 expected:string found:string "
        "message:string fix:string"
    ),
}
"""The columns of each value of ``table``."""


@functools.cache
def table_schema(table: str) -> StructType:
    """Every column of a table."""
    return from_arrow_schema(ARROW_SCHEMAS[table])


def message_schema() -> StructType:
    """Every column of a message."""
    return table_schema("messages")


def usual_columns() -> list[str]:
    """The columns of a message unless others are asked for."""
    return [name for name in message_schema().fieldNames() if name not in ON_REQUEST]


def read_schema(options: ReadOptions) -> StructType:
    """The columns of a read: those that were asked for, and `error` where rows report damage.

    Args:
        options: The options.

    Raises:
        ConfigError: No such column, or one that is named twice.
    """
    is_messages, every = options.table == "messages", table_schema(options.table)
    names = list(options.columns or (usual_columns() if is_messages else every.fieldNames()))
    if options.on_error == "rows" and "error" not in names and "error" in every.fieldNames():
        names.append("error")
    return columns_schema(names, every)


def check_read_schema(schema: StructType, options: ReadOptions) -> list[str]:
    """The names in a schema that a user gave, which is how Spark hands over a projection.

    Args:
        schema: What was given to ``.schema(...)``.
        options: The options.

    Raises:
        ConfigError: No such column, one of another type, or no `error` where rows report damage.
    """
    names, every = schema.fieldNames(), table_schema(options.table)
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
