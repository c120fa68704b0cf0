"""Continuous ingest of stores into tables: messages, what was damaged, and how it went.

One streaming query reads all stores. Each of its batches goes to three sinks, and each sink can
take the same batch again without doubling it: Parquet overwrites the directories of the batch,
Delta and Iceberg skip a batch that they know. So a driver that is killed at any moment and started
again brings each message to each sink once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from mqstore.errors import ConfigError, UnsupportedError, wrong_setting
from mqstore.spark.books import Books, check_books, migrated, purpose_of, query_id
from mqstore.spark.compat import is_connect
from mqstore.spark.failures import reason
from mqstore.spark.options import ReadOptions, as_texts, given_values, in_zone_of
from mqstore.spark.progress import Progress
from mqstore.spark.schema import columns_schema, message_schema, read_schema
from mqstore.spark.sinks import Place, Sinks, counts
from mqstore.spark.source import register_format
from mqstore.spark.stream import ID, check_limits, places
from mqstore.spark.target import TargetLock, check_target
from mqstore.spark.values import read_names, read_size, read_zone, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mqstore.spark.progress import Offset


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """Input and output of a pipeline.

    Attributes:
        source: Options of the format by name; ``paths`` says which stores.
        path: The table of messages: a path, or a name in the catalog.
        is_table: Whether the tables are names in the session's catalog.
        checkpoint: Where Spark keeps how far it is; ``<path>/_checkpoint`` where left out.
        books: Where the pipeline keeps its last batch, in case the checkpoint is lost;
            ``<path>_books`` where left out.
        quarantine: The table of damaged ranges; ``<path>_quarantine`` where left out.
        metrics: The table of counts, bytes and lag; ``<path>_metrics`` where left out.
        format: ``parquet``, or ``delta`` or ``iceberg`` where the session has it.
        partition_by: Columns that partition the table of messages; ``date`` is the day.
        date_zone: Zone of ``date``; ``session`` is that of the session.
        file_bytes: Bytes of the log that go to one file.
        available_now: Whether the pipeline ends when it has read what there is now.
        interval: How often a batch begins, such as ``"30 seconds"``; ``None`` is at once.
        spark: Settings of a session that the command starts.
    """

    source: Mapping[str, object]
    path: str
    checkpoint: str
    books: str
    quarantine: str
    metrics: str
    format: str = "parquet"
    is_table: bool = False
    partition_by: tuple[str, ...] = ("date", "topic", "broker")
    date_zone: str = "UTC"
    file_bytes: int = 256 << 20
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
                raise wrong_setting(f"section {name}", f"a table [{name}]", repr(section))
            for one in section:
                if (known := sections[name]) is not None and one not in known:
                    raise ConfigError(f"[{name}] {unknown_name('name', one, known)}", one)
            given[name] = section
        source, sink, trigger = given_values(given["source"]), given["sink"], given["trigger"]
        if trigger.get("available_now") and "interval" in trigger:
            raise wrong_setting(
                "[trigger] interval",
                "none beside available_now",
                "both; available_now ends when all is read, interval begins batches for ever",
            )
        if "interval" in trigger and not _INTERVAL.fullmatch(str(trigger["interval"]).strip()):
            wanted = 'a duration such as "30 seconds" or "1 minute"'
            raise wrong_setting("[trigger] interval", wanted, repr(trigger["interval"]))
        if not (source.get("paths") or source.get("path")):
            raise wrong_setting("[source] paths", "directories of stores", "none")
        at_once = trigger.get("available_now", False)
        if not isinstance(at_once, bool):
            wanted = "true or false without quotes"
            raise wrong_setting("[trigger] available_now", wanted, repr(at_once))
        return cls(
            source=source,
            available_now=at_once,
            interval=str(trigger["interval"]) if "interval" in trigger else None,
            spark={name: str(value) for name, value in given["spark"].items()},
            **_sink(sink),
        )

    def place(self, table: str) -> Place:
        """Where a table lies: ``messages``, ``quarantine`` or ``metrics``."""
        names = {"messages": self.path, "quarantine": self.quarantine, "metrics": self.metrics}
        return Place(names[table], self.is_table)

    def in_zone(self, session: str | None) -> PipelineConfig:
        """The same with the zone of a session for ``date``."""
        zone = _parsed("date_zone", read_zone, session or "UTC")
        return dataclasses.replace(self, date_zone=zone)

    def layout(self, options: ReadOptions) -> dict[str, Any]:
        """Layout of the tables, which stands in the checkpoint."""
        columns = read_schema(options).fieldNames()
        return {
            "columns": sorted(columns),
            "date_zone": self.date_zone,
            "format": self.format,
            "partition_by": list(self.partition_by),
            "table" if self.is_table else "path": self.path,
        }

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
        columns = columns_schema(parsed.columns or ()).fieldNames()
        missing = _NEEDED.difference(columns)
        if missing:
            wanted = f"{', '.join(sorted(missing))} too, which a pipeline needs"
            raise wrong_setting("[source] columns", wanted, ", ".join(columns))
        for name in set(self.partition_by) - {"date"}:
            if name not in _PARTS or name not in columns:
                known = ["date", *(one for one in _PARTS if one in columns)]
                text = f"[sink] partition_by: {unknown_name('column', name, known)}"
                raise ConfigError(text, "partition_by")
        return texts


_SESSION_ZONE = "spark.sql.session.timeZone"
_SINK = (
    *("path", "table", "checkpoint", "books", "quarantine", "metrics", "format"),
    *("partition_by", "date_zone", "file_bytes"),
)
_ONE = r"(\d{1,7}\s+(second|minute|hour|day)s?|\d{1,12}\s+(milli|micro)seconds?)"
_INTERVAL = re.compile(rf"{_ONE}(\s+{_ONE})*", re.IGNORECASE)
_PARTS = ("broker", "topic", "queue_id", "tags", "flag", "sys_flag")
_TRIGGER = ("available_now", "interval")
_NEEDED = {"broker", "topic", "physical_offset", "store_size", "store_timestamp", "error"}


def _sink(sink: Mapping[str, object]) -> dict[str, Any]:
    """The attributes that the section ``[sink]`` gives."""
    if ("path" in sink) == ("table" in sink):
        wanted = "a folder, or table with a name in the catalog"
        raise wrong_setting("[sink] path", wanted, "both" if "path" in sink else "neither")
    kind = str(sink.get("format", "parquet"))
    if kind not in ("parquet", "delta", "iceberg"):
        raise wrong_setting("[sink] format", "parquet, delta or iceberg", repr(kind))
    if kind == "iceberg" and "table" not in sink:
        wanted = "a name in a catalog of Iceberg's, as format=iceberg needs one"
        raise wrong_setting("[sink] table", wanted, "none")
    if "table" in sink and "checkpoint" not in sink:
        raise wrong_setting("[sink] checkpoint", "a folder that lasts, beside table", "none")
    path = str(sink.get("path", sink.get("table"))).rstrip("/")
    checkpoint = str(sink.get("checkpoint", f"{path}/_checkpoint")).rstrip("/")
    by = sink.get("partition_by", ["date", "topic", "broker"])
    zone = str(sink.get("date_zone", "UTC"))
    if zone != "session":
        zone = _parsed("date_zone", read_zone, zone)
    places = {
        "books": str(sink.get("books", f"{checkpoint if 'table' in sink else path}_books")),
        "quarantine": str(sink.get("quarantine", f"{path}_quarantine")),
        "metrics": str(sink.get("metrics", f"{path}_metrics")),
        "table" if "table" in sink else "path": path,
        "checkpoint": checkpoint,
    }
    _check_apart(places, kind)
    return {
        **{name: text for name, text in places.items() if name != "table"},
        "path": path,
        "is_table": "table" in sink,
        "format": kind,
        "partition_by": _parsed("partition_by", read_names, by)
        if isinstance(by, str)
        else tuple(map(str, _list(by))),
        "date_zone": zone,
        "file_bytes": _parsed("file_bytes", read_size, str(sink.get("file_bytes", "256m"))),
    }


def _check_apart(places: Mapping[str, str], kind: str) -> None:
    """Refuses places of which one lies in another: a batch would replace the other's files."""
    # Its readers take the files of its log only.
    beside = {("checkpoint", "path")} if kind == "delta" else set()
    names = {"quarantine", "metrics", "table"} if "table" in places else set()
    real = {
        # A name in the catalog is no folder.
        name: PurePath(text if name in names else os.path.realpath(text.removeprefix("file:")))
        for name, text in places.items()
    }
    for name in (name for name, text in places.items() if not text):
        raise wrong_setting(f"[sink] {name}", "a folder or a table", "''")
    for one, other in permutations(places, 2):
        if real[one].is_relative_to(real[other]):
            below = real[one].relative_to(real[other]).parts
            # Spark passes over such names in a table, and has none in a checkpoint.
            is_hidden = other in {"path", "checkpoint"} and below and below[0][0] in "._"
            if not (is_hidden or (below and (one, other) in beside)):
                wanted = f"a place apart from {other}, {places[other]}"
                raise wrong_setting(f"[sink] {one}", wanted, places[one])


def _parsed(name: str, read: Callable[[str], Any], text: str) -> Any:  # noqa: ANN401
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(f"[sink] {name}: {error}", name) from None


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def pipeline(
    spark: SparkSession,
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    retire: Iterable[str] = (),
    migrate: bool = False,
    progress: Callable[[Mapping[str, object]], object] | None = None,
) -> StreamingQuery:
    """Starts continuous ingest of stores into tables.

    Three tables are written, in the order quarantine, messages, metrics; of Parquet each batch has
    directories of its own, ``batch=<number>``. Without its checkpoint a pipeline repeats the last
    batch of the tables and goes on behind it.

    Args:
        spark: The session.
        config: A TOML file or a mapping of the same form: ``[source]`` has the options of the
            format, ``paths`` among them; ``[sink]`` ``path`` or ``table``, ``format``,
            ``partition_by``, ``date_zone``, ``file_bytes``, ``checkpoint``, ``books``,
            ``quarantine``, ``metrics``; ``[trigger]`` ``available_now``, ``interval``; ``[spark]``
            settings of a session that the command starts.
        retire: Brokers whose stores are gone for good: they are taken out of the checkpoint.
        migrate: Takes over changes of the options that narrow the read, of columns of a table of
            Parquet files, and of the table's place, from the next batch on.
        progress: Called in the driver when a batch begins (``{"batch": n, "state": "begun"}``),
            after each sink, and with its metrics when it is done. Not in a Connect session, whose
            server writes the batches.

    Returns:
        The running query: ``awaitTermination()`` waits for it, ``stop()`` ends it.

    Raises:
        ConfigError: A name or value in `config` that cannot be, a change that the checkpoint does
            not allow, or tables that the session cannot reach.
        StoreLockedError: Another pipeline writes to the target.
        NotAStoreError: A path that is no store, or a glob that no store matches, unless
            ``missingStores`` says otherwise.
        UnsupportedError: A limit of a batch's size where Spark is older than 4.2, or `progress` in
            a Connect session.

    Examples:
        >>> query = pipeline(spark, "ingest.toml")  # doctest: +SKIP
        >>> query.awaitTermination()  # doctest: +SKIP
    """
    settings = PipelineConfig.load(config)
    if progress is not None and is_connect(spark):
        # A copy of the callback would be called there, unseen.
        raise UnsupportedError(
            "progress: a Connect session cannot call it, as its server writes the batches; nothing "
            "was started. Leave it out, and read the table of metrics, "
            f"{settings.metrics}, or lastProgress of the query",
            "progress",
            settings.path,
        )
    texts = settings.options()
    texts |= {"retire": json.dumps(sorted(retire))} if (retire := set(retire)) else {}
    texts = in_zone_of(spark, texts)
    if settings.date_zone == "session":
        settings = settings.in_zone(spark.conf.get(_SESSION_ZONE, None))
    options = ReadOptions.parse(texts, streaming=True)
    layout = settings.layout(options)
    purpose = purpose_of(options, layout)
    # In the user's own call, and not where the query has begun.
    check_limits(options)
    # Only the stream's own process flushes: of a disk's error the system tells one process.
    source = Progress(dataclasses.replace(options, until="end"))
    source.reaches()
    check_target(settings, spark)
    lock = TargetLock(settings.books)
    lock.take(spark)
    try:
        sinks = Sinks(settings, source, progress or (lambda _: None), purpose, lock.previous_end)
        query = _start(spark, settings, texts, sinks, migrate=migrate)
    except BaseException as error:
        lock.release(lock.previous_end or reason(error))
        raise
    lock.hold(query, spark)
    return query


def preview(
    config: str | os.PathLike[str] | Mapping[str, object], spark: SparkSession | None = None
) -> dict[str, Any]:
    """Tells what ``pipeline`` would read and where it would write it.

    Args:
        config: As for ``pipeline``.
        spark: A session, to check what only it knows: jars, catalogs, tables elsewhere.

    Returns:
        ``stores``: broker, directory, physical offsets ``from`` and ``to``, ``bytes`` between them;
        ``begins``: ``checkpoint``, ``books`` (the checkpoint is lost), ``beginning``, or
        ``unknown`` where the checkpoint is not in a folder of this machine; ``tables``, ``format``,
        ``partition_by``, ``options`` and ``trigger``.

    Raises:
        ConfigError, StoreLockedError: As ``pipeline``.
        NotAStoreError: A path that is no store.
    """
    settings = PipelineConfig.load(config)
    if settings.date_zone == "session":
        settings = settings.in_zone(settings.spark.get(_SESSION_ZONE))
    options = settings.options()
    parsed = ReadOptions.parse(options, streaming=True)
    check_limits(parsed)
    source = Progress(parsed)
    check_target(settings, spark)
    if (spark is not None or "://" not in settings.books) and (
        last := Books(settings.books).last(spark)
    ):
        check_books(last, purpose_of(parsed, settings.layout(parsed)), settings)
    reaches = source.reaches()
    begins, start = _begins(settings, source)
    stores = []
    for broker, reach in reaches.items():
        at = None if start is None else start.get(broker, reach.begin)
        stores.append(
            {
                "broker": broker,
                "store": reach.store.path,
                "from": at,
                "to": reach.end,
                "bytes": None if at is None else max(reach.end - at, 0),
            }
        )
    names = ("messages", "quarantine", "metrics")
    trigger = settings.interval or "at once"
    return {
        "begins": begins,
        "stores": stores,
        "gone": sorted((start or {}).keys() - reaches.keys()),
        "tables": {name: settings.place(name).name for name in names},
        "format": settings.format,
        "partition_by": list(settings.partition_by),
        "checkpoint": settings.checkpoint,
        "books": settings.books,
        "trigger": "available now" if settings.available_now else trigger,
        "options": {name: text for name, text in options.items() if name != "columns"},
    }


def _start(
    spark: SparkSession,
    settings: PipelineConfig,
    texts: dict[str, str],
    sinks: Sinks,
    *,
    migrate: bool,
) -> StreamingQuery:
    register_format(spark)
    books, purpose = sinks.books, sinks.purpose
    last = books.last(spark)
    if last is not None and migrate:
        books.write(spark, migrated(last, purpose, settings, spark), last)
        last = books.last(spark)
    kept: dict[str, Any] = {"layout": purpose["layout"]}
    if last is not None:
        check_books(last, purpose, settings)
        kept |= {"earlier": last.earlier, "queues": last.queues}
        resume = {"start": last.start, "end": last.end, "marks": last.marks}
        texts["resume"] = json.dumps(resume)
    elif query_id(spark, settings.checkpoint) is None and (full := _with_rows(spark, settings)):
        raise ConfigError(
            f"[sink] {full} has rows, and neither the checkpoint {settings.checkpoint} "
            f"nor the books {settings.books} are there: each message would come again, or "
            "replace another pipeline's rows; nothing was written. Bring one of them back, or name "
            "a new table",
            "path",
        )
    texts["kept"] = json.dumps(kept)
    stream = spark.readStream.format("mqstore").options(**texts).load()
    # `lastProgress` has them: Spark gives a Python source no place for metrics of its own.
    stream = stream.observe("mqstore", *counts(), sinks.previous_end_column())
    writer = (
        stream.writeStream.queryName(f"mqstore pipeline {settings.path}")
        .option("checkpointLocation", settings.checkpoint)
        .foreachBatch(sinks)
    )
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    elif settings.interval is not None:
        writer = writer.trigger(processingTime=settings.interval)
    return writer.start()


def _with_rows(spark: SparkSession, settings: PipelineConfig) -> str | None:
    """A table that has rows; of other formats than Parquet the others may be shared."""
    others = ("quarantine", "metrics") if settings.format == "parquet" else ()
    for name in (settings.place(table).name for table in ("messages", *others)):
        with contextlib.suppress(AnalysisException):
            if settings.is_table:
                rows = spark.table(name)
            else:
                rows = spark.read.format(settings.format).load(name)
            if rows.limit(1).count():
                return name
    return None


def _begins(settings: PipelineConfig, source: Progress) -> tuple[str, Offset | None]:
    """Where the pipeline would go on, and who says so."""
    if "://" in settings.checkpoint:
        return "unknown", None
    folder = Path(settings.checkpoint.removeprefix("file:"))
    if (folder / "metadata").exists():
        done = [int(path.name) for path in (folder / "commits").glob("[0-9]*")]
        if not done:
            return "checkpoint", source.first()
        text = (folder / "offsets" / str(max(done))).read_text(encoding="utf-8")
        mark = json.loads(text.splitlines()[-1])
        return "checkpoint", source.same_stores(places(mark), mark.get(ID, {}))
    last = Books(settings.books).last()
    if last is None:
        return "beginning", source.first()
    source.same_stores(last.end, last.marks or {})
    return "books", last.start
