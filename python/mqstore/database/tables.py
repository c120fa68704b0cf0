"""The tables of a store in SQL, each read when a query asks for it, and only as far as it asks."""

from __future__ import annotations

import re
import tomllib
import warnings
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import mqstore
from mqstore.errors import ConfigError, needs
from mqstore.exchange.narrowing import Filters, number_of
from mqstore.store import root_of

with needs("sql", "mqstore.sql"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from mqstore.duckdb import scan_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from mqstore import ArrowScan
    from mqstore.config import ConfigLike

    Row = Mapping[str, Any]

_COLUMNS = tomllib.loads(files("mqstore.database").joinpath("tables.toml").read_text("utf-8"))
_OF_THE_LOG = ("messages", "unqueued")
_COLUMNS["unqueued"] = _COLUMNS["messages"]
_TYPES = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
}
_TIME = pa.timestamp("ms", tz="UTC")
# Times that every consumer can show; others are null beside their number.
_LAST_MS = 253_402_300_799_999
_MOST = 2**63 - 1
_BATCH_ROWS = 8192
# Commands that list a table, where they have another name.
_COMMANDS = {
    "files": "info",
    "findings": "verify",
    "group_queues": "groups -v",
    "index_entries": "index --entries",
}
# SQL reserves these names of the commands' JSON.
_RENAMED = {"group": "consumer_group", "offset": "byte_offset"}


def columns_of(table: str) -> dict[str, tuple[str, str]]:
    """Type and meaning of each column of a table."""
    found = {name: (kind, meaning) for name, (kind, meaning) in _COLUMNS[table].items()}
    times = [name for name in found if name.endswith("_ms") and name not in {"age_ms", "late_ms"}]
    moments = {name.removesuffix("_ms"): ("TIMESTAMPTZ", f"{name} as a time") for name in times}
    return found | moments


TABLES = tuple(_COLUMNS)


@dataclass
class Stores:
    """The stores of a connection, and what a query reports while it runs.

    Attributes:
        paths: Their root folders by broker.
        config: As for ``mqstore.open``.
        on_error: Whether damage of the log is skipped.
        advance: Called with bytes read and bytes in all of the log that is scanned.
        failure: The first error of a store in the last query.
        warned: Whether the rows of the last query lack something that could not be read.
        scans: The scans of the last query, as lines of text.
        plans_only: Whether tables are empty, and only note their scans.
        stopped: Whether scans are to end.
    """

    paths: dict[str, str]
    config: ConfigLike = None
    on_error: Literal["raise", "skip"] = "raise"
    advance: Callable[[int, int], object] = lambda _done, _total: None
    failure: Exception | None = None
    warned: bool = False
    scans: list[str] = field(default_factory=list)
    plans_only: bool = False
    stopped: bool = False

    def begin(self) -> None:
        """Forgets the last query."""
        self.failure, self.warned, self.stopped = None, False, False
        self.scans.clear()

    def opened(self, path: str) -> mqstore.Store:
        """One of the stores, open for reading."""
        return mqstore.open(path, config=self.config)

    def check_outside(
        self, name: str, path: str | os.PathLike[str], *, with_parents: bool = False
    ) -> None:
        """Refuses a path to write that lies in a store, or also one that has a store in it."""
        target = Path(path).resolve()
        for root in self.paths.values():
            store = Path(root).resolve()
            if target.is_relative_to(store):
                raise ConfigError(f"{name}: {path} lies inside of the store {root}", name)
            if with_parents and store.is_relative_to(target):
                raise ConfigError(f"{name}: {path} holds the store {root}", name)

    def warn(self, texts: Iterable[str]) -> None:
        """Reports that something could not be read."""
        for text in texts:
            self.warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class Table(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """One table of all stores: a dataset of pyarrow, as DuckDB asks for one."""

    def __init__(self, name: str, stores: Stores) -> None:
        self._name, self._stores = name, stores
        if name in _OF_THE_LOG:
            names = columns_of(name)
            shown = [one for one in pa.schema(mqstore.ARROW_SCHEMA) if one.name in names]
            # The key that a query asks the index for.
            self._schema = pa.schema([*shown, ("key", pa.string())])
        else:
            kinds = {**_TYPES, "TIMESTAMPTZ": _TIME}
            columns = columns_of(name).items()
            self._schema = pa.schema([(column, kinds[kind]) for column, (kind, _) in columns])

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,  # noqa: ANN401 - of pyarrow's scanners
    ) -> ds.Scanner:
        """Rows of the columns that fulfil a condition."""
        names = self._schema.names
        text = "" if filter is None else str(filter)
        fixed = {} if filter is None else ds.get_partition_keys(filter)
        wanted = {name for name in names if re.search(rf"\b{name}\b", text)} - {"key"}
        wanted |= set(names if columns is None else columns) | (fixed.keys() & {"key"})
        read = [name for name in names if name in wanted] or [names[-1]]
        schema = pa.schema([self._schema.field(name) for name in read])
        if "key" in read and not isinstance(fixed.get("key"), str):
            raise ValueError(f"messages_by_key: expected a text without a column, got {text}")
        paths = self._stores.paths.items()
        brokers = [(name, path) for name, path in paths if name == fixed.get("broker", name)]
        key = fixed.get("key")
        each = [self._store_batches(*store, schema, filter, key) for store in brokers]
        batches = self._caught(chain.from_iterable(each))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)

    def _caught(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; notes an error of a store, of which DuckDB keeps the text only."""
        try:
            for batch in batches:
                if self._stores.stopped:
                    return
                yield batch
        except Exception as error:
            self._stores.failure = self._stores.failure or error
            raise

    def _store_batches(
        self,
        broker: str,
        path: str,
        schema: pa.Schema,
        condition: ds.Expression | None,
        key: str | None,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of one store, none where plans are asked for; notes the scan at once."""
        stores = self._stores
        if self._name in _OF_THE_LOG:
            # Queues and index do not have what no queue has.
            condition = condition if self._name == "messages" else None
            store, filters, more = stores.opened(path), Filters(), ["physical_offset"]
            if stores.on_error == "skip":
                filters, more = {"on_error": "report"}, [*more, "store_size", "error"]
            scan, asked = scan_of(store, filters, schema.names, condition, *more, key=key)
            asked.pop("on_error", None)
            span = range(
                max(store.min_physical_offset, asked.get("start_physical_offset") or 0),
                min(store.max_physical_offset, asked.get("stop_physical_offset") or _MOST),
            )
            reads = f"at most the log from {span.start} to {span.stop}, {len(span)} bytes"
            if (records := asked.pop("records", None)) is not None:
                reads = f"{records} records of the log, which queues or index name"
            given = (f"{name}={value}" for name, value in sorted(asked.items()))
            pushed = ", ".join(given) or "nothing"
            batches = self._messages({"broker": broker, "key": key}, scan, schema, span)
            if asked.get("stop_physical_offset", _MOST) > store.max_physical_offset:
                lost = self._beyond_end(store, asked.get("topics"), asked.get("end_ms"))
                batches = chain(batches, lost)
        else:
            pushed, command = "nothing", _COMMANDS.get(self._name, self._name)
            reads = f"what `mqstore {command}` reads"
            rows = self._rows(path, set(schema.names))
            chunks = iter(lambda: list(islice(rows, _BATCH_ROWS)), [])
            batches = (_batch(schema, broker, some) for some in chunks)
        columns = ", ".join(schema.names)
        text = f"{path}: {self._name}: pushed {pushed}; columns {columns}; reads {reads}"
        stores.scans.append(text)
        return iter(()) if stores.plans_only else batches

    def _messages(
        self, given: dict[str, str | None], scan: ArrowScan, schema: pa.Schema, span: range
    ) -> Iterator[pa.RecordBatch]:
        ranges = lost_bytes = 0
        for whole in scan:
            batch = whole
            if "error" in whole.schema.names:
                good = whole.column("error").is_null()
                damage = whole.filter(pc.invert(good)).column("store_size")
                ranges += len(damage)
                lost_bytes += pc.sum(damage).as_py() or 0
                batch = whole.filter(good)
            offsets = batch.column("physical_offset")
            if len(offsets):
                self._stores.advance(max(offsets[-1].as_py() - span.start, 0), max(len(span), 1))
            each = {**dict(zip(batch.schema.names, batch.columns, strict=True))}
            each |= {name: pa.repeat(text, batch.num_rows) for name, text in given.items()}
            yield pa.record_batch([each[one.name] for one in schema], schema=schema)
        if ranges:
            text = f"skipped {ranges} damaged ranges, {lost_bytes} bytes"
            self._stores.warn([f"{text}; `mqstore verify` lists them"])

    def _beyond_end(
        self, store: mqstore.Store, topics: list[str] | None, end_ms: datetime | None
    ) -> Iterator[Any]:
        """No batch; reports messages that queues know beyond the log's end."""
        try:
            store._check_end(topics)  # noqa: SLF001 - our own
        except mqstore.CorruptionError as error:
            # Lost messages were stored after all that are left.
            later = store.scan(begin_ms=end_ms, on_error="skip", decompress=False)
            if end_ms is None or not any(
                message.store_timestamp_ms > number_of(end_ms) for message in later
            ):
                self._stores.warn([str(error)])
        yield from ()

    def _rows(self, path: str, wanted: set[str]) -> Iterator[Row]:
        """The rows of one store, as the command of the table's name lists them."""
        from mqstore.care.unread import GroupReader
        from mqstore.cli.commands.queues import queue_rows, topic_rows
        from mqstore.cli.commands.structures import entry_rows
        from mqstore.files.layout import index_files, list_files
        from mqstore.results import as_document

        stores = self._stores
        if self._name == "findings":
            yield from map(as_document, mqstore.verify(path, config=stores.config).findings)
            return
        if self._name == "pending":
            report = mqstore.pending(path, config=stores.config)
            lists = msgspec.to_builtins(report)
            for state in ("half", "overdue", "dead_letters", "retries"):
                yield from (row | {"state": state} for row in lists[state])
            stores.warn(report.unread)
            counts = {"half": report.half_messages, "overdue": report.overdue_messages}
            for state, count in counts.items():
                if count > len(lists[state]):
                    stores.warn([f"{path}: pending has {len(lists[state])} of {count} {state}"])
            return
        problems: list[str] = []
        with stores.opened(path) as store:
            if self._name == "files":
                yield from map(as_document, list_files(root_of(store)).groups)
            elif self._name == "index_entries":
                paths = index_files(root_of(store))
                if not paths or store.index_usable:
                    yield from entry_rows(store, paths, None)
                else:
                    problems.append(f"{path}: the index files do not fit these settings")
            elif self._name in {"groups", "group_queues"}:
                reader = GroupReader(store)
                each = reader.topics if self._name == "groups" else reader.queues
                yield from each(None)
                problems += [text for text in store.warnings if "Offset.json" in text]
                problems += reader.unreadable
            elif self._name == "topics":
                yield from topic_rows(store, problems, with_bytes="bytes" in wanted)
            else:
                yield from queue_rows(store, (), problems, with_bytes="bytes" in wanted)
        stores.warn(problems)


def _batch(schema: pa.Schema, broker: str, rows: list[Row]) -> pa.RecordBatch:
    return pa.record_batch([_array(one, broker, rows) for one in schema], schema=schema)


def _array(column: pa.Field, broker: str, rows: list[Row]) -> pa.Array:
    """One column of rows."""
    if column.name == "broker":
        return pa.repeat(broker, len(rows))
    name = next((own for own, new in _RENAMED.items() if new == column.name), column.name)
    if column.type != _TIME:
        return pa.array([row.get(name) for row in rows], column.type)
    times = (row.get(f"{name}_ms") for row in rows)
    shown = [time if time is not None and abs(time) <= _LAST_MS else None for time in times]
    return pa.array(shown, pa.int64()).cast(_TIME)
