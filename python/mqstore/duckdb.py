"""A store as a relation of DuckDB, with pushdown: ``mqstore.duckdb.relation``.

Needs DuckDB and pyarrow (``pip install 'mqstore[duckdb]'``).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import mqstore
from mqstore.errors import needs
from mqstore.exchange.narrowing import tighten

with needs("duckdb", "mqstore.duckdb"):
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from mqstore import ArrowScan
    from mqstore.config import ConfigLike
    from mqstore.exchange.narrowing import Filters

__all__ = ["relation"]

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_RANGE = re.compile(r"\((store_timestamp|physical_offset) (>=|>|<=|<) ([^()]+)\)")
_OPS = {">=": "GtEq", ">": "Gt", "<=": "LtEq", "<": "Lt"}


def relation(
    path: str | os.PathLike[str],
    *,
    connection: duckdb.DuckDBPyConnection | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
    **filters: Unpack[Filters],
) -> duckdb.DuckDBPyRelation:
    """The messages of a store as a relation, read when DuckDB asks for them.

    Columns that a query does not use are not decoded. Of its conditions, what ``topic`` and
    ``tags`` equal, and the bounds of ``store_timestamp`` and ``physical_offset`` choose what is
    read, unless they stand beside ``OR``; DuckDB and Arrow check every row again. Messages that are
    appended after a query began are not in it.

    Args:
        path: The store's root folder, or its URL.
        connection: Where the relation lives; ``None`` is DuckDB's default connection.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.
        filters: As for ``Store.scan_arrow``; they hold beside those of the query.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ValueError: An invalid filter.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a") as store:
        ...     _ = store.append("orders", b"one", tags="paid")
        ...     _ = store.append("orders", b"two")
        >>> orders = mqstore.duckdb.relation(folder, topics=["orders"])
        >>> orders.filter("tags = 'paid'").project("body").fetchall()
        [(b'one',)]
    """
    topics = filters.get("topics")
    if topics is not None and not isinstance(topics, str):
        filters["topics"] = list(topics)
    messages = _Messages(
        lambda: mqstore.open(path, config=config, storage_options=storage_options), filters
    )
    return (duckdb if connection is None else connection).from_arrow(messages)


class _Messages(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """A dataset of pyarrow, as DuckDB asks for one: a schema, and scanners."""

    def __init__(self, opened: Callable[[], mqstore.Store], filters: Filters) -> None:
        self._opened, self._filters = opened, filters
        with opened() as store:
            self._schema = pa.schema(store.scan_arrow(**filters).schema)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,  # noqa: ANN401 - of pyarrow's scanners
    ) -> ds.Scanner:
        scan, _ = scan_of(self._opened(), self._filters, columns, filter)
        reader = pa.RecordBatchReader.from_stream(scan)
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)


def scan_of(
    store: mqstore.Store,
    filters: Filters,
    columns: list[str] | None,
    condition: ds.Expression | None,
    *more: str,
) -> tuple[ArrowScan, dict[str, Any]]:
    """The scan for a query's columns (and `more`) and condition, and the filters that reach it."""
    names = pa.schema(store.scan_arrow(**filters).schema).names
    wanted = {*more, *(names if columns is None else columns)}
    asked: dict[str, Any] = {**filters}
    if condition is not None:
        wanted |= {name for name in names if re.search(rf"\b{name}\b", str(condition))}
        asked = _narrow(asked, condition)
    # A scan without a column has no rows.
    columns_read = [name for name in names if name in wanted] or ["physical_offset"]
    return store.scan_arrow(columns=columns_read, **asked), asked


def _narrow(asked: dict[str, Any], condition: ds.Expression) -> dict[str, Any]:
    """The filters, with the parts of a condition that every row must fulfil."""
    for column, value in ds.get_partition_keys(condition).items():
        tighten(asked, column, "Eq", value)
    text = _QUOTED.sub('""', str(condition))
    if not re.search(r" or |invert|if_else|case_when", text):
        for column, op, bound in _RANGE.findall(text):
            value = int(bound) if column == "physical_offset" else datetime.fromisoformat(bound)
            tighten(asked, column, _OPS[op], value)
    return asked
