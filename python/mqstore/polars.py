"""A store as a lazy frame of polars, with pushdown: ``mqstore.polars.scan``.

Needs polars (``pip install 'mqstore[polars]'``).
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Unpack

import mqstore
from mqstore.errors import checked, needs
from mqstore.exchange.narrowing import narrowed, tightened

with needs("polars", "mqstore.polars"):
    import polars as pl
    from polars.io.plugins import register_io_source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from mqstore.config import ConfigLike
    from mqstore.exchange.narrowing import Filters

__all__ = ["scan"]

_BATCH_ROWS = 8192
_FLIPPED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


@checked
def scan(
    path: str | os.PathLike[str],
    *,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
    **filters: Unpack[Filters],
) -> pl.LazyFrame:
    """The messages of a store as a lazy frame, read when polars asks for them.

    Columns that a query does not use are not decoded, and ``head`` ends the read early. Of a
    filter, what ``topic``, ``tags``, ``store_timestamp`` and ``physical_offset`` must be
    (``==``, ``is_in``, ``is_between``, ``<``, ``>=`` and so on, joined by ``&``) chooses what is
    read; polars checks every row again. Of ``queue_id``, ``queue_offset``, ``unique_key`` and
    ``keys`` (``list.contains``) the queues and the index give the messages, as ``Store.read`` and
    ``Store.query`` find them: a prepared or rolled back one is in no queue, nor is the second of
    two with one number, so ``queue_id == 0`` may give fewer rows than the table has with that
    number; ``mqstore sql`` leaves them out always. The log is read instead with ``on_error`` other
    than ``"raise"``, where a queue is missing of those that ``topics.json`` counts, where entries
    lead to no message or to one of another number, and where they name too many messages.
    Messages that are appended after a query began are not in it.

    Args:
        path: The store's root folder, or its URL.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.
        filters: As for ``Store.scan_arrow``; they hold beside those of polars.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ValueError: An invalid filter.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a") as store:
        ...     _ = store.append("orders", b"one", tags="paid")
        ...     _ = store.append("orders", b"two")
        >>> import polars as pl
        >>> paid = mqstore.polars.scan(folder).filter(pl.col("tags") == "paid")
        >>> paid.select("body").collect().rows()
        [(b'one',)]
    """
    topics = filters.get("topics")
    if topics is not None and not isinstance(topics, str):
        filters["topics"] = list(topics)
    with mqstore.open(path, config=config, storage_options=storage_options) as store:
        columns = list(store.scan_arrow(**filters).schema.names)
        none = store.scan_arrow(columns=columns, stop_physical_offset=0)
        schema = pl.DataFrame(none).schema

    def batches(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        wanted = columns if with_columns is None else with_columns
        # A query that only numbers or counts rows names no column; a scan needs one.
        needed = set(wanted or ["physical_offset"])
        asked: dict[str, Any] = dict(filters)
        rows = batch_size or _BATCH_ROWS
        if n_rows is not None:
            # The limit counts rows before the predicate, so the predicate may not narrow the read.
            rows = max(min(rows, n_rows), 1)
        if predicate is not None:
            needed |= set(predicate.meta.root_names())
            asked = _narrow(asked, predicate) if n_rows is None else asked
        with mqstore.open(path, config=config, storage_options=storage_options) as store:
            found = narrowed(
                store, asked, columns=[name for name in columns if name in needed], batch_rows=rows
            )
            for batch in found:
                frame = pl.DataFrame(batch)
                if n_rows is not None:
                    frame = frame.head(n_rows)
                    n_rows -= frame.height
                if predicate is not None:
                    frame = frame.filter(predicate)
                # `select` of nothing gives no rows, `drop` keeps their number.
                yield frame.select(wanted) if wanted else frame.drop(frame.columns)
                if n_rows == 0:
                    return

    return register_io_source(batches, schema=schema)


def _narrow(asked: dict[str, Any], predicate: pl.Expr) -> dict[str, Any]:
    return tightened(
        asked, predicate, lambda one: _parts(json.loads(one.meta.serialize(format="json")))
    )


def _parts(node: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401
    """Column, operator and value of each comparison that must hold."""
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _parts(left)
            yield from _parts(right)
        case {"BinaryExpr": {"left": {"Column": column}, "op": op, "right": {"Literal": _} as one}}:
            yield column, op, _value(one)
        case {"BinaryExpr": {"left": {"Literal": _} as one, "op": op, "right": {"Column": column}}}:
            yield column, _FLIPPED.get(op, ""), _value(one)
        case {
            "Function": {
                "input": [{"Column": column}, {"Literal": _} as many],
                "function": {"Boolean": {"IsIn": _}},
            }
        }:
            yield column, "In", _value(many)
        case {
            "Function": {
                "input": [{"Column": column}, {"Literal": _} as low, {"Literal": _} as high],
                "function": {"Boolean": {"IsBetween": _}},
            }
        }:
            yield column, "GtEq", _value(low)
            yield column, "LtEq", _value(high)
        case {
            "Function": {
                "input": [{"Column": column}, {"Literal": _} as one],
                "function": {"ListExpr": {"Contains": _}},
            }
        }:
            yield column, "Has", _value(one)


def _value(literal: Any) -> Any:  # noqa: ANN401
    text = io.BytesIO(json.dumps(literal).encode())
    found = pl.select(pl.Expr.deserialize(text, format="json")).to_series()
    value = found[0] if len(found) == 1 else found
    return value.to_list() if isinstance(value, pl.Series) else value
