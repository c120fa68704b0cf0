"""A store as a relation of DuckDB, with pushdown: ``mqstore.duckdb.relation``.

Needs DuckDB and pyarrow (``pip install 'mqstore[duckdb]'``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Unpack

import mqstore
from mqstore.errors import checked, needs
from mqstore.exchange.narrowing import narrowed, tightened

with needs("duckdb", "mqstore.duckdb"):
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from mqstore import ArrowScan
    from mqstore.config import ConfigLike
    from mqstore.exchange.narrowing import Filters

__all__ = ["relation"]

_TOKEN = re.compile(r"^(\w+): '(.*)'$", re.MULTILINE)
_OPS = {
    "equal": "Eq",
    "greater_equal": "GtEq",
    "greater": "Gt",
    "less_equal": "LtEq",
    "less": "Lt",
}


@checked
def relation(
    path: str | os.PathLike[str],
    *,
    connection: duckdb.DuckDBPyConnection | None = None,
    key: str | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
    **filters: Unpack[Filters],
) -> duckdb.DuckDBPyRelation:
    """The messages of a store as a relation, read when DuckDB asks for them.

    Columns that a query does not use are not decoded. Of its conditions, what ``topic``, ``tags``,
    ``queue_id`` and ``unique_key`` equal (``=``, ``in``), and the bounds of ``store_timestamp``,
    ``physical_offset`` and ``queue_offset`` choose what is read, unless they stand beside ``OR``;
    Arrow checks every row again. Queues and index are asked as by ``mqstore.polars.scan``. DuckDB
    keeps conditions on lists to itself, so a key of ``keys`` is asked for by `key`. Messages that
    are appended after a query began are not in it.

    Args:
        path: The store's root folder, or its URL.
        connection: Where the relation lives; ``None`` is DuckDB's default connection.
        key: Only messages with this key, in ``keys`` or as ``unique_key``; found by the index.
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
        lambda: mqstore.open(path, config=config, storage_options=storage_options), filters, key
    )
    return (duckdb if connection is None else connection).from_arrow(messages)


class _Messages(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """A dataset of pyarrow, as DuckDB asks for one: a schema, and scanners."""

    def __init__(
        self, opened: Callable[[], mqstore.Store], filters: Filters, key: str | None
    ) -> None:
        self._opened, self._filters, self._key = opened, filters, key
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
        scan, _ = scan_of(self._opened(), self._filters, columns, filter, key=self._key)
        reader = pa.RecordBatchReader.from_stream(scan)
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)


def scan_of(
    store: mqstore.Store,
    filters: Filters,
    columns: list[str] | None,
    condition: ds.Expression | None,
    *more: str,
    key: str | None = None,
) -> tuple[ArrowScan, dict[str, Any]]:
    """The scan for a query's columns (and `more`), condition and key, and its filters."""
    names = pa.schema(store.scan_arrow(**filters).schema).names
    wanted = {*more, *(names if columns is None else columns)}
    asked: dict[str, Any] = {**filters}
    if key is not None:
        asked["keys"] = [key]
    if condition is not None:
        wanted |= {name for name in names if re.search(rf"\b{name}\b", str(condition))}
        asked = _narrow(asked, condition)
    # A scan without a column has no rows.
    columns_read = [name for name in names if name in wanted] or ["physical_offset"]
    return narrowed(store, asked, columns=columns_read), asked


def _narrow(asked: dict[str, Any], condition: ds.Expression) -> dict[str, Any]:
    return tightened(asked, condition, lambda one: _parts(_tree(one)))


class _Column(str):
    """The name of a column in a condition."""

    __slots__ = ()


def _tree(condition: ds.Expression) -> Any:  # noqa: ANN401
    """A condition as nested tuples: a function, and its arguments."""
    # A pickled expression is a batch: literals as columns, functions and names as metadata.
    (pickled,) = condition.__reduce__()[1]
    batch = pa.ipc.open_file(pickled).get_batch(0)
    _, _, metadata = batch.schema.to_string(truncate_metadata=False).partition("-- schema metadata")
    tokens = iter(_TOKEN.findall(metadata))

    def node(kind: str, value: str) -> Any:  # noqa: ANN401
        match kind:
            case "literal" | "options":
                return batch.column(int(value))[0].as_py()
            case "field_ref":
                return _Column(value)
        inner = []
        for kind_of_inner, value_of_inner in tokens:
            if kind_of_inner == "end":
                break
            inner.append(node(kind_of_inner, value_of_inner))
        return value, *inner

    return node(*next(tokens))


def _parts(node: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401
    """Column, operator and value of each comparison that must hold."""
    match node:
        case ("and_kleene", left, right):
            yield from _parts(left)
            yield from _parts(right)
        case ("if_else", ("is_valid", _), (_, *_) as then, None):
            yield from _parts(then)
        case ("is_in", _Column() as column, {"value_set": list(values)}):
            yield column, "In", values
        case (str() as name, _Column() as column, value) if name in _OPS:
            if not isinstance(value, _Column):
                yield column, _OPS[name], value
