"""Messages as Arrow batches of an export: a scan's columns, and the exact bytes beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqstore._native import _export_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore.exchange.rows import Row

_TIMES = {"store_timestamp": "store_timestamp_ms", "born_timestamp": "born_timestamp_ms"}


def schema() -> pa.Schema:
    """The columns. ``raw_body`` and ``raw_properties`` are what is stored, byte for byte."""
    time = pa.timestamp("ms", tz="UTC")
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("queue_id", pa.int32(), nullable=False),
            pa.field("queue_offset", pa.int64(), nullable=False),
            pa.field("physical_offset", pa.int64(), nullable=False),
            pa.field("store_timestamp", time, nullable=False),
            pa.field("born_timestamp", time, nullable=False),
            pa.field("tags", pa.string()),
            pa.field("keys", pa.list_(pa.string())),
            pa.field("unique_key", pa.string()),
            pa.field("properties", pa.map_(pa.string(), pa.string())),
            pa.field("raw_properties", pa.binary(), nullable=False),
            pa.field("raw_body", pa.binary(), nullable=False),
            pa.field("flag", pa.int32(), nullable=False),
            pa.field("sys_flag", pa.int32(), nullable=False),
            pa.field("born_host", pa.string(), nullable=False),
            pa.field("store_host", pa.string(), nullable=False),
            pa.field("reconsume_times", pa.int32(), nullable=False),
            pa.field("prepared_transaction_offset", pa.int64(), nullable=False),
            pa.field("record", pa.binary()),
        ]
    )


# Made of whole records: a scan's times end with the year 9999, and its fields are not exact.
_OF_RECORD = ("store_timestamp", "born_timestamp", "raw_properties", "record")


def scanned() -> list[str]:
    """The columns of a scan that the schema is made of."""
    return [*(name for name in schema().names if name not in _OF_RECORD), "store_size", "record"]


def exported(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of an export from one of a scan."""
    exact = _export_columns(batch.column("record"))
    wanted = schema()
    arrays = [
        (exact if field.name in _OF_RECORD else batch).column(field.name).cast(field.type)
        for field in wanted
    ]
    return pa.record_batch(arrays, schema=wanted)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch, by the names that messages have."""
    lists: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_time = pa.types.is_timestamp(column.type)
        if is_time and name in {*_TIMES, *_TIMES.values()}:
            lists[_TIMES.get(name, name)] = _milliseconds(column)
        else:
            # A time in the place of another value shall be named, whatever year it is in.
            lists[name] = (column.cast(pa.string()) if is_time else column).to_pylist()
    for at in range(batch.num_rows):
        yield {name: values[at] for name, values in lists.items()}


def _milliseconds(times: pa.Array) -> list[int | None]:
    """Times as numbers, whatever year they are in."""
    numbers = times.cast(pa.int64()).to_pylist()
    units = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[times.type.unit]
    return [None if time is None else time * 1000 // units for time in numbers]
