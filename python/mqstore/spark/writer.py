"""Writing new stores: one for each task, or one for each broker."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812 - as everybody writes it
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mqstore.errors import ConfigError, wrong_setting
from mqstore.spark.options import WriteOptions
from mqstore.spark.schema import columns_schema
from mqstore.spark.source import register_format
from mqstore.spark.staging import Rows, Staging, check_out, stores_in
from mqstore.spark.values import unknown_name
from mqstore.spark.worker_check import Shipped
from mqstore.store import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from mqstore.config import ConfigLike

_PART = re.compile(r"part-([0-9]+)")


def make_writer(
    options: Mapping[str, str], schema: T.StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer for some options and columns.

    Raises:
        ConfigError: An unknown option or column, no path, or a path that is a store itself.
        StoreLockedError: ``overwrite`` would replace a store that is being written.
    """
    parsed = WriteOptions.parse(options)
    if parsed.store_by == "broker" and "broker" not in schema.fieldNames():
        raise wrong_setting("broker", "a column that names each row's store", "no such column")
    out, config = target_of(parsed, schema)
    if overwrite:
        stores_in(out)
    return StoreWriter(Staging(str(out.absolute()), config), parsed, overwrite)


def target_of(options: WriteOptions, schema: T.StructType) -> tuple[Path, ConfigLike]:
    """The target, and the settings of new stores.

    Raises:
        ConfigError: An unknown column, no path, or a path that is a store itself.
    """
    if options.path is None:
        raise wrong_setting("path", "a directory", "none", "save(path) names it")
    check_columns(schema, options.properties_from)
    out = check_out(re.sub(r"^file:(//)?(?=/)", "", options.path))
    return out, _settings(options.config)


def _settings(config: str | None) -> ConfigLike:
    """A path, or settings as JSON."""
    if config is None or not config.lstrip().startswith("{"):
        return config
    try:
        return settings_of(json.loads(config))
    except ValueError as error:
        raise ConfigError(f"option config: {error}", "config") from None


def check_columns(schema: T.StructType, properties_from: Sequence[str] = ()) -> None:
    """Whether rows of a schema can be messages.

    Args:
        schema: The columns of the frame.
        properties_from: Columns that become properties.

    Raises:
        ConfigError: A column that no message has, one that is missing, or one of a type that cannot
            be stored without loss.
    """
    names = schema.fieldNames()
    for name in properties_from:
        if name not in names:
            text = f"option propertiesFrom: {unknown_name('column', name, names)}"
            raise ConfigError(text, "propertiesFrom")
        if not isinstance(schema[name].dataType, _AS_TEXT):
            raise ConfigError(
                f"option propertiesFrom: column {name} is {schema[name].dataType.simpleString()}; "
                "a property is a text: cast it",
                "propertiesFrom",
            )
    own = columns_schema(name for name in names if name not in properties_from)
    for wanted in own:
        found = schema[wanted.name].dataType
        expected, got = wanted.dataType.simpleString(), found.simpleString()
        if got != expected and not isinstance(found, _casts(wanted)):
            text = f"column {wanted.name}: expected {expected}, got {got}; cast it"
            raise ConfigError(text, "columns")
    if "topic" not in own.fieldNames():
        raise wrong_setting("columns", "a column topic", "none")
    if "body" not in names and "raw_body" not in names:
        raise wrong_setting("columns", "a column body or raw_body", "none")


_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_AS_TEXT = (T.StringType, T.BooleanType, *_INTEGERS)


def _casts(column: T.StructField) -> tuple[type[T.DataType], ...]:
    """Types that ``append_arrow`` takes for a column beside its own."""
    match column.dataType:
        case T.BinaryType() if column.name == "body":
            return (T.StringType,)
        case T.IntegerType() | T.LongType():
            return _INTEGERS
        case T.StringType():
            return (T.StringType,)
        case T.TimestampType():
            return (T.TimestampNTZType,)
    return ()


def _with_properties(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Moves columns into ``properties``; what is null is left out."""
    if not names:
        return batch
    texts = {name: pc.cast(batch.column(name), pa.string()).to_pylist() for name in names}
    has = "properties" in batch.schema.names
    before = batch.column("properties").to_pylist() if has else [None] * batch.num_rows
    rows = [
        [*(given or ()), *((name, texts[name][n]) for name in names if texts[name][n] is not None)]
        for n, given in enumerate(before)
    ]
    made = pa.array(rows, pa.map_(pa.string(), pa.string()))
    kept = [name for name in batch.schema.names if name not in (*names, "properties")]
    columns = [*(batch.column(name) for name in kept), made]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, "properties"])


@dataclass
class Written(WriterCommitMessage):
    """Output of one attempt of a task.

    Attributes:
        partition: The task's number.
        stores: Name and path of each staged store; none where the task had no row.
        bad: Path of the file of its bad rows, if it has one.
    """

    partition: int
    stores: list[tuple[str, str]]
    bad: str | None = None

    def kept(self, prefix: str) -> list[tuple[str, str]]:
        """Name and path of the file of bad rows."""
        name = f"{BAD_ROWS}/{prefix}-part-{self.partition:05}.parquet"
        return [] if self.bad is None else [(name, self.bad)]


BAD_ROWS = "_bad_rows"
"""Folder in the target of rows that are no messages."""


@dataclass(eq=False)
class StoreWriter(Shipped, DataSourceArrowWriter):
    """Writes the rows of each task as a store of its own, or as one for each broker.

    Args:
        staging: Where.
        options: The options of the write.
        overwrite: Whether the stores that are there are replaced.
    """

    staging: Staging
    options: WriteOptions
    overwrite: bool

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stages a store of the rows of one task, or one for each broker of rows sorted by it."""
        context = _task()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        batches = (_with_properties(batch, self.options.properties_from) for batch in iterator)
        by_broker = self.options.store_by == "broker"
        runs = _runs(batches) if by_broker else (("", batch) for batch in batches if batch.num_rows)
        stores = []
        rows = Rows(self.staging, self.options.bad_rows, partition, attempt)
        for broker, run in groupby(runs, itemgetter(0)):
            name = _directory(broker) if by_broker else f"part-{partition}"
            with self.staging.store(name, attempt) as (store, path):
                for _, batch in run:
                    rows.append(store, batch)
            stores.append((name, path))
        return Written(partition, stores, rows.close())

    def names(self, written: Sequence[Written], taken: Iterable[str]) -> list[tuple[str, str]]:
        """Names and paths of staged stores: their brokers', or by partition, none that is taken."""
        if self.options.store_by == "broker":
            return [store for one in written for store in one.stores]
        numbers = (int(match[1]) for name in taken if (match := _PART.fullmatch(name)))
        free = 1 + max(numbers, default=-1)
        return [
            (f"part-{free + one.partition:05}", path) for one in written for _, path in one.stores
        ]

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Gives the stores of a job their names."""
        out = Path(self.staging.out)
        replaced = stores_in(out) if self.overwrite else []
        taken = [path.name for path in out.iterdir() if path not in replaced]
        written = [one for one in messages if isinstance(one, Written)]
        bad = [file for one in written for file in one.kept(self.staging.job)]
        self.staging.publish([*self.names(written, taken), *bad], replace=replaced)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Removes whatever a job that failed has written."""
        self.staging.abort()


def write_store(
    frame: DataFrame,
    out: str | os.PathLike[str],
    *,
    config: ConfigLike = None,
    properties_from: Iterable[str] = (),
    bad_rows: Literal["fail", "drop", "quarantine"] = "fail",
) -> list[str]:
    """Writes one store for each value of ``broker``, in order of store time.

    Args:
        frame: Messages: columns of the source by name, ``broker`` among them. Rows with ``error``
            set are no messages and must be filtered out.
        out: The directory that the stores go to, which every worker reaches under this name; each
            is named after its broker.
        config: Settings of the new stores, as for ``mqstore.open``.
        properties_from: Columns that become properties, as texts; null is left out.
        bad_rows: At a row that is no message: ``fail`` with its number and field, ``drop`` leaves
            it out, ``quarantine`` keeps it in ``_bad_rows`` of `out`, as Parquet.

    Returns:
        The paths of the stores, sorted.

    Raises:
        ConfigError: A column that no message has, one that is missing, a broker that is null or
            whose name cannot be a directory's, or a directory that is a store itself.
        StoreIOError: There is something of a broker's name already; nothing was written then.
        pyspark.errors.PythonException: A row is no message; the text names its number in its
            task, its field and the reason.

    Examples:
        >>> write_store(frame.where("topic = 'orders'"), "/data/restored")  # doctest: +SKIP
    """
    given = {"path": os.fspath(out), "storeBy": "broker", "badRows": bad_rows}
    if config is not None:
        given["config"] = json.dumps(settings_of(config))
    if names := list(properties_from):
        given["propertiesFrom"] = json.dumps(names)
    # Here the user's own call is in the traceback.
    make_writer(given, frame.schema, overwrite=False)
    register_format(frame.sparkSession)
    path = Path(out).absolute()
    before = set(stores_in(path, written=True))
    order = [name for name in ("broker", "store_timestamp") if name in frame.columns]
    rows = frame.repartition("broker").sortWithinPartitions(*order)
    rows.write.format("mqstore").options(**given).mode("append").save()
    return [str(store) for store in stores_in(path, written=True) if store not in before]


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Slices of batches in which all rows have one broker."""
    for batch in batches:
        ends = pc.run_end_encode(batch.column("broker"))
        begin = 0
        for end, broker in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            yield broker, batch.slice(begin, end - begin)
            begin = end


def _directory(broker: str | None) -> str:
    if broker is None:
        raise wrong_setting("broker", "the broker whose store the row goes to", "null")
    if not broker or broker[0] in "._" or "/" in broker or "\0" in broker or len(broker) > 200:
        raise wrong_setting("broker", "a name that a directory can have", repr(broker[:64]))
    return broker


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs in a task of Spark's")
    return context
