"""A store as a lazy frame of polars, with pushdown: ``mqstore.polars.scan``.

Needs polars (``pip install polars``).
"""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqstore.polars needs polars, which is not installed: pip install polars", name=error.name
    ) from None

import mqstore

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from mqstore.config import ConfigLike

__all__ = ["scan"]

_BATCH_ROWS = 8192
_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLIPPED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
# An expression of tags is cut at ``||``, and trimmed as Java trims.
_PLAIN_TAG = re.compile(r"[^|*\x00-\x20](?:[^|*]*[^|*\x00-\x20])?", re.DOTALL)


class Filters(TypedDict, total=False):
    """Filters of ``Store.scan_arrow``."""

    start_physical_offset: int | None
    stop_physical_offset: int | None
    topics: Iterable[str] | None
    tags: str | None
    begin_ms: datetime | int | None
    end_ms: datetime | int | None
    on_error: Literal["raise", "skip"]
    verify_crc: bool


def scan(
    path: str | os.PathLike[str], *, config: ConfigLike = None, **filters: Unpack[Filters]
) -> pl.LazyFrame:
    """The messages of a store as a lazy frame, read when polars asks for them.

    Columns that a query does not use are not decoded, and ``head`` ends the read early. Of a
    filter, what ``topic``, ``tags``, ``store_timestamp`` and ``physical_offset`` must be
    (``==``, ``is_in``, ``<``, ``>=`` and so on, joined by ``&``) chooses what is read; polars
    checks every row again. Messages that are appended after a query began are not in it.

    Args:
        path: The store's root folder.
        config: As for ``mqstore.open``.
        filters: As for ``Store.scan_arrow``; they hold beside those of polars.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ValueError: An invalid filter.

    Examples:
        >>> import mqstore, mqstore.polars, tempfile
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
    with mqstore.open(path, config=config) as store:
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
        needed = set(wanted)
        asked: dict[str, Any] = dict(filters)
        if predicate is not None:
            needed |= set(predicate.meta.root_names())
            asked = _narrow(asked, predicate)
        rows = batch_size or _BATCH_ROWS
        if predicate is None and n_rows is not None:
            rows = max(min(rows, n_rows), 1)
        with mqstore.open(path, config=config) as store:
            found = store.scan_arrow(
                columns=[name for name in columns if name in needed], batch_rows=rows, **asked
            )
            for batch in found:
                frame = pl.DataFrame(batch)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if n_rows is not None:
                    frame = frame.head(n_rows)
                    n_rows -= frame.height
                yield frame.select(wanted)
                if n_rows == 0:
                    return

    return register_io_source(batches, schema=schema)


def _narrow(asked: dict[str, Any], predicate: pl.Expr) -> dict[str, Any]:
    """The filters with what the predicate rules out left out; they never exclude a row of it."""
    try:
        parts = list(_parts(json.loads(predicate.meta.serialize(format="json"))))
    except Exception:
        return asked
    for column, op, value in parts:
        _tighten(asked, column, op, value)
    return asked


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


def _value(literal: Any) -> Any:  # noqa: ANN401
    text = io.BytesIO(json.dumps(literal).encode())
    found = pl.select(pl.Expr.deserialize(text, format="json")).to_series()
    value = found[0] if len(found) == 1 else found
    return value.to_list() if isinstance(value, pl.Series) else value


def _tighten(asked: dict[str, Any], column: str, op: str, value: Any) -> None:  # noqa: ANN401
    texts = value if op == "In" else [value]
    are_texts = op in ("Eq", "In") and all(
        isinstance(text, str) and "\ufffd" not in text for text in texts
    )
    match column:
        case "topic" if are_texts:
            given = asked.get("topics")
            given = texts if given is None else [given] if isinstance(given, str) else given
            asked["topics"] = [topic for topic in given if topic in texts]
        case "tags" if are_texts and asked.get("tags") is None:
            if texts and all(map(_PLAIN_TAG.fullmatch, texts)):
                asked["tags"] = " || ".join(texts)
        case "physical_offset" if isinstance(value, int):
            if op in ("Gt", "GtEq", "Eq"):
                _raise(asked, "start_physical_offset", value)
            if op in ("Lt", "LtEq", "Eq"):
                _lower(asked, "stop_physical_offset", min(value + 1, _MOST))
        case "store_timestamp" if isinstance(value, datetime) and value.tzinfo is not None:
            if op in ("Gt", "GtEq", "Eq"):
                _raise(asked, "begin_ms", value)
            if op in ("Lt", "LtEq", "Eq"):
                _lower(asked, "end_ms", value)


def _raise(asked: dict[str, Any], name: str, bound: int | datetime) -> None:
    given = asked.get(name)
    if given is None or _number(given) < _number(bound):
        asked[name] = bound


def _lower(asked: dict[str, Any], name: str, bound: int | datetime) -> None:
    given = asked.get(name)
    if given is None or _number(given) > _number(bound):
        asked[name] = bound


def _number(value: Any) -> int:  # noqa: ANN401
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
