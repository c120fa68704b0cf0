"""Tables of a pipeline: each takes a batch any number of times and has it once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.storagelevel import StorageLevel

from mqstore.errors import ConfigError, wrong_setting
from mqstore.spark.books import Books, Entry, query_id, read_lines
from mqstore.spark.stream import FROM, ID, QUEUES, places
from mqstore.spark.worker_check import Shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from mqstore.spark.books import Purpose
    from mqstore.spark.ingest import PipelineConfig
    from mqstore.spark.progress import Progress
    from mqstore.spark.stream import Mark

_DAY = "date_from_unix_date(cast(floor(unix_micros({}) / 86400000000) AS int))"
"""The day in one zone, whichever the session has: a batch must come out the same everywhere."""
_METRICS = (
    "broker string, messages bigint, bytes bigint, damaged_ranges bigint, "
    "first_physical_offset bigint, end_physical_offset bigint, "
    "last_store_timestamp timestamp, lag_bytes bigint, written_at timestamp, previous_end string"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a table lies.

    Attributes:
        name: A path, or a name in the session's catalog.
        is_table: Whether it is a name.
    """

    name: str
    is_table: bool


_Rows = list[tuple[Any, ...]]
"""Rows of the table of metrics."""


def counts() -> list[Column]:
    """Messages, their bytes, and damaged ranges, of rows with the column ``error``."""
    good = F.col("error").isNull()
    return [
        F.count_if(good).alias("messages"),
        F.coalesce(F.sum(F.when(good, F.col("store_size"))), F.lit(0)).alias("bytes"),
        F.count("error").alias("damaged_ranges"),
    ]


@dataclasses.dataclass(eq=False)
class Sinks(Shipped):
    """Writes the batches of a pipeline; from a Connect session it travels to the server.

    Args:
        settings: Destinations.
        source: Progress of the stores.
        progress: Called with the report of each batch.
        purpose: Purpose of the pipeline, for its books.
        previous_end: Why the run before ended, for the metrics.
    """

    settings: PipelineConfig
    source: Progress
    progress: Callable[[Mapping[str, object]], object]
    purpose: Purpose
    previous_end: str | None = None

    def __post_init__(self) -> None:
        self.books = Books(self.settings.books)
        self._query = ""

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Brings a batch to all sinks; the same batch any number of times."""
        began = time.monotonic()
        self.progress({"batch": number, "state": "begun"})
        spark = batch.sparkSession
        batch = batch.withColumn("date", F.expr(self._day())).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            planned = self._planned(spark, number)
            rows, idle = self._count(batch, places(planned))
            # Also for a run's first batch without rows: a lost checkpoint begins again with one.
            entry = self._enter(spark, number, rows, planned) if rows or not self._query else None
            if rows and entry:
                damaged = batch.where("error IS NOT NULL").select(
                    "broker", "physical_offset", "store_size", "error"
                )
                self._write("quarantine", damaged, entry, ())
                good = batch.where("error IS NULL").drop("error")
                by = self.settings.partition_by
                sized = self._sized(good, sum(row[2] for row in rows))
                self._write("messages", sized, entry, by)
                metrics = spark.createDataFrame([*rows, *idle], _METRICS)
                self._write("metrics", metrics, entry, ())
        finally:
            batch.unpersist()
        names = [field.split()[0] for field in _METRICS.split(", ")]
        brokers = [dict(zip(names, row, strict=True)) for row in [*rows, *idle]]
        seconds = round(time.monotonic() - began, 3)
        self.progress({"batch": number, "state": "done", "seconds": seconds, "brokers": brokers})

    def previous_end_column(self) -> Column:
        """Why the run before ended, as an aggregate for ``lastProgress``."""
        end = F.lit(self.previous_end).cast("string")
        return F.coalesce(F.max(end), end).alias("previous_end")

    def _day(self) -> str:
        zone = self.settings.date_zone
        time = "store_timestamp"
        return _DAY.format(time if zone == "UTC" else f"from_utc_timestamp({time}, '{zone}')")

    def _planned(self, spark: SparkSession, number: int) -> Mark:
        """The end of a batch as the checkpoint has it; empty where it is of another form."""
        log = f"{self.settings.checkpoint}/offsets/{number}"
        try:
            lines = Path(log.removeprefix("file:")).read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = read_lines(spark, log)
        try:
            mark = json.loads(lines[-1])
        except (ValueError, IndexError):
            return {}
        return mark if isinstance(mark, dict) else {}

    def _count(self, batch: DataFrame, batch_end: Mapping[str, int]) -> tuple[_Rows, _Rows]:
        """A row for each broker of a batch, and for each other one; with its lag as of now.

        The lag counts from the batch's end: behind the last message may be records of other kinds.
        """
        now = dt.datetime.now(dt.UTC)
        ends = {broker: reach.log_end for broker, reach in self.source.reaches().items()}
        place = F.col("physical_offset")
        counted = batch.groupBy("broker").agg(
            *counts(),
            F.min(place).alias("first_physical_offset"),
            # A damaged range past 2 GiB has no size.
            F.max(place + F.coalesce("store_size", F.lit(1))).alias("end_physical_offset"),
            F.max("store_timestamp").alias("last_store_timestamp"),
        )
        last = (now, self.previous_end)
        rows: _Rows = []
        for row in counted.collect():
            read = max(row["end_physical_offset"] or 0, batch_end.get(row["broker"], 0))
            rows.append((*row, max(0, ends.get(row["broker"], 0) - read), *last))
        others = ends.keys() & batch_end.keys() - {row[0] for row in rows}
        idle: _Rows = [
            (one, 0, 0, 0, None, batch_end[one], None, max(0, ends[one] - batch_end[one]), *last)
            for one in sorted(others)
        ]
        return rows, idle

    def _enter(
        self, spark: SparkSession, batch: int, rows: Sequence[tuple[Any, ...]], planned: Mark
    ) -> Entry | None:
        """Writes a batch into the books before its rows are written.

        Raises:
            ConfigError: The checkpoint is not the one that the tables were written with.
        """
        query = self._query = self._query or query_id(spark, self.settings.checkpoint) or ""
        if not query:
            found = f"none in {self.settings.checkpoint}/metadata"
            raise wrong_setting("checkpoint", "the id of the query", found)
        rows_end = {row[0]: row[5] for row in rows}
        end = rows_end | places(planned)
        last = self.books.last(spark)
        if last is not None and last.query != query:
            # `pipeline` has made this query's first batch the tables' last one.
            if batch:
                raise self._is_foreign(f"is of another pipeline, and has batch {batch}", last)
            entry = dataclasses.replace(last, query=query, batch=batch)
        elif last is not None and batch < last.batch:
            raise self._is_foreign(f"goes on at batch {batch}", last)
        elif last is not None and batch == last.batch:
            # Books had the end of the rows before they had queues.
            again = rows_end if last.queues is None else end
            if any(last.end.get(broker) != at for broker, at in again.items()):
                raise self._is_foreign(f"has another batch {batch}", last)
            return last
        elif not rows and (last or not planned):
            return last
        else:
            # A log that was replaced may begin before the end of the one that was read.
            first = {row[0]: row[4] for row in rows}
            begins = (places(planned.get(FROM, {})), first, {} if last is None else last.end)
            start = {
                broker: min([at, *(one[broker] for one in begins if broker in one)])
                for broker, at in end.items()
            }
            number = batch if last is None else last.number + batch - last.batch
            name = uuid.uuid4().hex if last is None else last.pipeline
            marks = planned.get(ID) or self.source.marks(end)
            earlier = None if last is None else last.earlier
            queues = planned.get(QUEUES, {})
            entry = Entry(
                name, number, query, batch, start, end, marks, self.purpose, earlier, queues
            )
        self.books.write(spark, entry, last)
        return entry

    def _is_foreign(self, what: str, last: Entry) -> ConfigError:
        return ConfigError(
            f"[sink] checkpoint: {self.settings.checkpoint} {what}; the tables have batch "
            f"{last.batch} of query {last.query}; nothing was written. Remove the checkpoint's "
            "folder: without one the pipeline goes on where the tables end",
            "checkpoint",
        )

    def _sized(self, frame: DataFrame, size: int) -> DataFrame:
        """Rows in as many tasks as there are to be files, neighbours together."""
        files = max(1, -(-size // self.settings.file_bytes))
        order = (*self.settings.partition_by, "physical_offset")
        return frame.repartitionByRange(files, *order).sortWithinPartitions(*order)

    def _write(self, table: str, frame: DataFrame, entry: Entry, by: Sequence[str]) -> None:
        kind = self.settings.format
        write = {"parquet": _to_parquet, "delta": _to_delta, "iceberg": _to_iceberg}[kind]
        write(frame, self.settings.place(table), f"{entry.pipeline}-{table}", entry.number, by)
        self.progress({"batch": entry.batch, "state": table})


def _to_parquet(frame: DataFrame, place: Place, _: str, number: int, by: Sequence[str]) -> None:
    """Replaces what the batch's own directories have."""
    name, batch = place.name, f"{number:08}"
    if not (place.is_table or by):
        frame.write.mode("overwrite").parquet(f"{name}/batch={batch}")
        return
    spark = frame.sparkSession
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    numbered = frame.withColumn("batch", F.lit(batch))
    if not place.is_table:
        numbered.write.mode("overwrite").partitionBy(*by, "batch").parquet(name)
        return
    if not spark.catalog.tableExists(name):
        empty = numbered.limit(0).write.format("parquet").partitionBy(*by, "batch")
        empty.saveAsTable(name)
    columns = spark.table(name).columns
    numbered.select(*columns).write.mode("overwrite").insertInto(name)


def _to_delta(frame: DataFrame, place: Place, app: str, number: int, by: Sequence[str]) -> None:
    """Appends in a transaction that Delta knows when it comes again."""
    writer = frame.write.partitionBy(*by) if by else frame.write
    writer = writer.option("txnAppId", app).option("txnVersion", number)
    writer = writer.format("delta").mode("append")
    if place.is_table:
        writer.saveAsTable(place.name)
    else:
        writer.save(place.name)


def _to_iceberg(frame: DataFrame, place: Place, app: str, number: int, by: Sequence[str]) -> None:
    """Appends a snapshot that is named after the batch, unless there is one."""
    spark, batch = frame.sparkSession, f"{app}-{number:08}"
    if not spark.catalog.tableExists(place.name):
        made = frame.limit(0).writeTo(place.name).using("iceberg")
        (made.partitionedBy(*map(F.col, by)) if by else made).create()
    named = F.col("summary")[_SNAPSHOT] == batch
    if not spark.table(f"{place.name}.snapshots").where(named).limit(1).count():
        frame.writeTo(place.name).option(f"snapshot-property.{_SNAPSHOT}", batch).append()


_SNAPSHOT = "mqstore-batch"
