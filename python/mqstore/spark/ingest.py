"""Continuous ingest of stores into tables: messages, what was damaged, and how it went.

One streaming query reads all stores. Each of its batches goes to three sinks, and each sink can
take the same batch again without doubling it: Parquet overwrites the directory of the batch, Delta
skips a transaction that it knows. So a driver that is killed at any moment and started again brings
each message to each sink once.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.storagelevel import StorageLevel

from mqstore.errors import ConfigError
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.progress import Progress
from mqstore.spark.schema import columns_schema, message_schema
from mqstore.spark.source import register_format
from mqstore.spark.stream import check_limits
from mqstore.spark.values import unknown_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineConfig", "pipeline"]

_log = logging.getLogger("mqstore.spark")

_DAY = "date_from_unix_date(cast(floor(unix_micros(store_timestamp) / 86400000000) AS int))"
"""The day in UTC, whatever zone the session has: a batch must come out the same everywhere."""


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """Input and output of a pipeline.

    Attributes:
        source: Options of the format by name; ``paths`` says which stores.
        path: The table of messages, partitioned by broker, topic and date.
        checkpoint: Where Spark keeps how far it is; ``<path>/_checkpoint`` where left out.
        quarantine: The table of damaged ranges; ``<path>_quarantine`` where left out.
        metrics: The table of counts, bytes and lag; ``<path>_metrics`` where left out.
        format: ``parquet``, or ``delta`` where the session has it.
        available_now: Whether the pipeline ends when it has read what there is now.
        interval: How often a batch begins, such as ``"30 seconds"``; ``None`` is at once.
        spark: Settings of a session that the command starts.
    """

    source: Mapping[str, object]
    path: str
    checkpoint: str
    quarantine: str
    metrics: str
    format: str = "parquet"
    available_now: bool = False
    interval: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, config: str | os.PathLike[str] | Mapping[str, object]) -> PipelineConfig:
        """Reads a TOML file, or a mapping of the same form.

        Raises:
            ConfigError: No such section or name, one that is missing, or not TOML.
            FileNotFoundError: No such file.
        """
        if not isinstance(config, Mapping):
            file = Path(config)
            try:
                config = tomllib.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"{file}: {error}", "config") from None
        sections = {"source": None, "sink": _SINK, "trigger": _TRIGGER, "spark": None}
        given: dict[str, Mapping[str, object]] = {name: {} for name in sections}
        for name, section in config.items():
            if name not in sections:
                raise ConfigError(unknown_name("section", name, sections), name)
            if not isinstance(section, Mapping):
                raise ConfigError(f"section [{name}] is a table, not {section!r}", name)
            _check(name, section, sections[name])
            given[name] = section
        source, sink, trigger = given["source"], given["sink"], given["trigger"]
        if not (source.get("paths") or source.get("path")):
            raise ConfigError("[source] paths says which stores are read; it is missing", "paths")
        if "path" not in sink:
            raise ConfigError("[sink] path says where messages go; it is missing", "path")
        path = str(sink["path"]).rstrip("/")
        kind = str(sink.get("format", "parquet"))
        if kind not in ("parquet", "delta"):
            raise ConfigError(f"[sink] format is parquet or delta, not {kind!r}", "format")
        return cls(
            source=source,
            path=path,
            checkpoint=str(sink.get("checkpoint", f"{path}/_checkpoint")),
            quarantine=str(sink.get("quarantine", f"{path}_quarantine")),
            metrics=str(sink.get("metrics", f"{path}_metrics")),
            format=kind,
            available_now=_boolean("trigger", "available_now", trigger),
            interval=str(trigger["interval"]) if "interval" in trigger else None,
            spark={name: str(value) for name, value in given["spark"].items()},
        )

    def options(self) -> dict[str, str]:
        """The options of the source, as texts."""
        options = dict(self.source)
        paths = options.pop("paths", None) or options.pop("path", None)
        usual = [name for name in message_schema().fieldNames() if name != "raw_body"]
        options.setdefault("columns", usual)
        options.setdefault("onError", "rows")
        options.setdefault("include", "business")
        many = [paths] if isinstance(paths, str) else [str(path) for path in _list(paths)]
        texts = as_texts(many, options)
        parsed = ReadOptions.parse(texts, streaming=True)
        missing = _NEEDED.difference(columns_schema(parsed.columns or ()).fieldNames())
        if missing:
            raise ConfigError(
                f"[source] columns: a pipeline needs {', '.join(sorted(missing))} too", "columns"
            )
        return texts


_SINK = ("path", "checkpoint", "quarantine", "metrics", "format")
_TRIGGER = ("available_now", "interval")
_NEEDED = {"broker", "topic", "physical_offset", "store_size", "store_timestamp", "error"}


def _check(section: str, given: Mapping[str, object], known: Iterable[str] | None) -> None:
    for name in given if known is not None else ():
        if name not in (known := tuple(known or ())):
            raise ConfigError(f"[{section}] {unknown_name('name', name, known)}", name)


def _boolean(section: str, name: str, given: Mapping[str, object]) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        text = f"[{section}] {name} is true or false without quotes, not {value!r}"
        raise ConfigError(text, name)
    return value


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def pipeline(
    spark: SparkSession,
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    retire: Iterable[str] = (),
    progress: Callable[[Mapping[str, object]], object] | None = None,
) -> StreamingQuery:
    """Starts continuous ingest of stores into tables.

    Three tables are written, in the order quarantine, messages, metrics; of Parquet each batch has
    a directory of its own, ``query=<id>/batch=<number>``, below the table's path.

    Args:
        spark: The session.
        config: A TOML file or a mapping of the same form: ``[source]`` has the options of the
            format, ``paths`` among them; ``[sink]`` ``path``, ``checkpoint``, ``quarantine``,
            ``metrics``, ``format``; ``[trigger]`` ``available_now``, ``interval``; ``[spark]``
            settings of a session that the command starts.
        retire: Brokers whose stores are gone for good: they are taken out of the checkpoint.
        progress: Called in the driver when a batch begins (``{"batch": n, "state": "begun"}``),
            after each sink, and with its metrics when it is done.

    Returns:
        The running query: ``awaitTermination()`` waits for it, ``stop()`` ends it.

    Raises:
        ConfigError: A name or value in `config` that cannot be.
        NotAStoreError: A path that is no store, or a glob that no store matches, unless
            ``missingStores`` says otherwise.
        UnsupportedError: A limit of a batch's size where Spark is older than 4.2.

    Examples:
        >>> query = pipeline(spark, "ingest.toml")  # doctest: +SKIP
        >>> query.awaitTermination()  # doctest: +SKIP
    """
    settings = PipelineConfig.load(config)
    texts = settings.options()
    texts |= {"retire": json.dumps(sorted(retire))} if (retire := set(retire)) else {}
    options = ReadOptions.parse(texts, streaming=True)
    # In the user's own call, and not where the query has begun.
    check_limits(options)
    source = Progress(options)
    source.reaches()
    register_format(spark)
    sinks = Sinks(settings, source, progress or (lambda _: None))
    stream = spark.readStream.format("mqstore").options(**texts).load()
    writer = (
        stream.writeStream.queryName(f"mqstore pipeline {settings.path}")
        .option("checkpointLocation", settings.checkpoint)
        .foreachBatch(sinks.write)
    )
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    elif settings.interval is not None:
        writer = writer.trigger(processingTime=settings.interval)
    return writer.start()


class Sinks:
    """Where the batches of a pipeline go.

    Args:
        settings: Destinations.
        source: Progress of the stores.
        progress: Called with the report of each batch.
    """

    def __init__(
        self,
        settings: PipelineConfig,
        source: Progress,
        progress: Callable[[Mapping[str, object]], object],
    ) -> None:
        self.settings = settings
        self.source = source
        self.progress = progress

    def write(self, batch: DataFrame, number: int) -> None:
        """Brings a batch to all sinks; the same batch any number of times."""
        query = _query_id(batch)
        self.progress({"batch": number, "state": "begun"})
        batch = batch.withColumn("date", F.expr(_DAY)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            damaged = batch.where("error IS NOT NULL").select(
                "broker", "physical_offset", "store_size", "error"
            )
            self._write("quarantine", damaged, query, number, [])
            good = batch.where("error IS NULL").drop("error")
            self._write("messages", good, query, number, ["broker", "topic", "date"])
            metrics = self._metrics(batch, self._batch_end(number))
            self._write("metrics", metrics, query, number, [])
            rows = [row.asDict() for row in metrics.collect()]
        finally:
            batch.unpersist()
        self.progress({"batch": number, "state": "done", "brokers": rows})

    def _batch_end(self, number: int) -> Mapping[str, int]:
        """Where a batch ends, by broker, if the checkpoint lies in a folder of this machine."""
        try:
            log = Path(self.settings.checkpoint.removeprefix("file:"), "offsets", str(number))
            end = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return {}
        return end if isinstance(end, dict) else {}

    def _metrics(self, batch: DataFrame, batch_end: Mapping[str, int]) -> DataFrame:
        """A row for each broker of a batch, with its lag as of now.

        The lag counts from the batch's end: behind the last message may be records of other kinds.
        """
        now = dt.datetime.now(dt.UTC)
        ends = {broker: reach.log_end for broker, reach in self.source.reaches().items()}
        counted = batch.groupBy("broker").agg(
            F.count_if(F.col("error").isNull()).alias("messages"),
            F.sum(F.when(F.col("error").isNull(), F.col("store_size"))).alias("bytes"),
            F.count("error").alias("damaged_ranges"),
            F.min("physical_offset").alias("first_physical_offset"),
            F.max(F.col("physical_offset") + F.col("store_size")).alias("end_physical_offset"),
            F.max("store_timestamp").alias("last_store_timestamp"),
        )
        rows = [
            (
                *row,
                max(0, ends.get(row["broker"], 0) - self._read_up_to(row, batch_end)),
                now,
            )
            for row in counted.collect()
        ]
        fields = (
            "broker string, messages bigint, bytes bigint, damaged_ranges bigint, "
            "first_physical_offset bigint, end_physical_offset bigint, "
            "last_store_timestamp timestamp, lag_bytes bigint, written_at timestamp"
        )
        return batch.sparkSession.createDataFrame(rows, fields)

    @staticmethod
    def _read_up_to(row: Row, batch_end: Mapping[str, int]) -> int:
        return max(row["end_physical_offset"] or 0, batch_end.get(row["broker"], 0))

    def _write(self, table: str, frame: DataFrame, query: str, number: int, by: list[str]) -> None:
        path = {
            "messages": self.settings.path,
            "quarantine": self.settings.quarantine,
            "metrics": self.settings.metrics,
        }[table]
        writer = frame.write.partitionBy(*by) if by else frame.write
        if self.settings.format == "delta":
            writer = writer.option("txnAppId", f"{query}-{table}").option("txnVersion", number)
            writer.format("delta").mode("append").save(path)
        else:
            writer.mode("overwrite").parquet(f"{path}/query={query}/batch={number:08}")
        self.progress({"batch": number, "state": table})


def _query_id(batch: DataFrame) -> str:
    """The id that a query keeps over restarts from its checkpoint."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise RuntimeError("Spark does not tell which query this batch belongs to")
    return query
