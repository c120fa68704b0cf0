"""The options of the format ``mqstore``: one row each, and the checks across them.

A row drives an option's name, parsing, default and errors. With the text below it, it is a line of
``docs/spark.md`` or ``docs/spark-jobs.md``, which `make reference` writes. Everything is checked in
the driver. Parsed options hold primitives only, so that they travel to workers; nothing here needs
Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from mqstore.errors import ConfigError, UnsupportedError, wrong_setting
from mqstore.spark import values
from mqstore.spark.roots import root_at
from mqstore.spark.values import BATCH, EARLIEST, LOG, STREAM, QueueOffset, option, options_of
from mqstore.text import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: Final = (*LOG, "consumequeue", "index", "files", "checkpoint", "offsets", "damage")
"""Values of ``table``."""


_narrowing = partial(option, narrows=True)
_of_queues = partial(_narrowing, kept=True, tables=(*LOG, "consumequeue", "offsets"))
_of_times = partial(_narrowing, read=parse_time, tables=(*LOG, "consumequeue", "index"))
_of_batches = partial(option, where=BATCH)
_of_streams = partial(option, where=STREAM)


def _switch(name: str, *, default: bool, **row: Any) -> Any:  # noqa: ANN401
    """An option that is true or false, with the other one as its example."""
    example = str(not default).lower()
    return option(name, values.read_boolean, default=default, example=example, **row)


def _one_of(name: str, *known: str, **row: Any) -> Any:  # noqa: ANN401
    """An option that is one of some words, the first if it is not given."""
    return option(name, values.read_one_of(known), default=known[0], **row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read, parsed: a field each, with its row.

    Attributes:
        starting_from_latest: Whether ``startingOffsets`` is the word ``latest``.
        ending_at_earliest: Whether ``endingOffsets`` is the word ``earliest``.
    """

    path: str | None = option("path", str, example="/data/broker-a/store")
    """set by `load(path)`"""
    paths: tuple[str, ...] = option(
        "paths", values.read_texts, default=(), example='["/data/a/store", "/data/b/store"]'
    )
    """set by `load([path, path])`: a JSON array"""
    topics: tuple[str, ...] | None = _of_queues(
        "topics", values.read_names, also=("subscribe",), example="orders,payments"
    )
    """only these topics"""
    topic_pattern: str | None = _of_queues(
        "topicPattern", values.read_pattern, also=("subscribePattern",), example="orders-.*"
    )
    """only topics that the regular expression (RE2 syntax: no look-around, no back-references)
    matches from end to end
    """
    queues: tuple[tuple[str, tuple[int, ...]], ...] | None = _of_queues(
        "queues", values.read_queues, also=("assign",), example='{"orders": [0, 1]}'
    )
    """only these queues"""
    tags: str | None = _narrowing("tags", values.read_tags, kept=True, example="paid || refunded")
    """a tag expression, as consumers write it, or a list: any of these tags"""
    keys: tuple[str, ...] | None = _narrowing(
        "keys", values.read_names, kept=True, example="order-17,order-18"
    )
    """only messages with one of these as key or unique key"""
    include: tuple[str, ...] = option(
        "include",
        values.read_some_of(("business", "system", "half", "all")),
        kept=True,
        default=("system",),
        shown_default="`system`, in a pipeline `business`",
        example="system,half",
    )
    """kinds of messages: see [transactions and delays](#transactions-and-delays)"""
    starting_offsets: tuple[QueueOffset, ...] = _narrowing(
        "startingOffsets",
        values.read_offsets,
        default=(),
        shown_default="`earliest`",
        example='{"orders": {"0": 23, "1": -2}}',
    )
    """first queue offset; -2 is the earliest, -1 the latest, `{"orders": "latest"}` that of each
    queue of a topic; other queues are read from their first

    In streams: `latest`, `earliest`, or by queue (by queue from Spark 4.2 on, and in
    `micro_batch`); only without a checkpoint
    """
    starting_times: tuple[QueueOffset, ...] = _narrowing(
        "startingOffsetsByTimestamp",
        values.read_queue_times,
        default=(),
        example='{"orders": {"0": 1700000000000}}',
    )
    """first store time of a queue, in milliseconds, instead of its offset

    In streams: as `startingOffsets` by queue
    """
    ending_offsets: tuple[QueueOffset, ...] = _narrowing(
        "endingOffsets",
        values.read_offsets,
        default=(),
        where=BATCH,
        shown_default="`latest`",
        example='{"orders": {"0": 50, "1": -1}}',
    )
    """end queue offset, exclusive"""
    root = root_at
    starting_from_latest: bool = False
    ending_at_earliest: bool = False
    starting_physical_offset: int | None = _narrowing(
        "startingPhysicalOffset", values.read_long, example="1073741824"
    )
    """only records that begin at or behind this offset

    In streams: first physical offset; only without a checkpoint
    """
    ending_physical_offset: int | None = _narrowing(
        "endingPhysicalOffset", values.read_long, where=BATCH, example="2147483648"
    )
    """only records that begin before this offset"""
    starting_timestamp_ms: int | None = _of_times(
        "startingTimestamp", example="2026-11-21T00:00:00Z"
    )
    """first store time

    In streams: begins with the first message of each store that was stored then or later; only
    without a checkpoint
    """
    before_timestamp_ms: int | None = _of_times(
        "beforeTimestamp", where=BATCH, example="2026-11-22T00:00:00Z"
    )
    """instead of `endingTimestamp`: the first store time that is not read; a day is
    `startingTimestamp` at its midnight and `beforeTimestamp` at the next
    """
    ending_timestamp_ms: int | None = _of_times("endingTimestamp", where=BATCH, example="-2h")
    """last store time"""
    time_zone: str | None = option(
        "timeZone", values.read_zone, shown_default="the session's", example="Europe/Berlin"
    )
    """zone of times without an offset, by a name of Spark's (`GMT+8`, `PST`) too. The default is
    `spark.sql.session.timeZone` in `mqstore.spark.read`, `micro_batch` and a pipeline, and the zone
    of the driver's system in the format itself: Spark does not pass its session's zone to a source
    """
    access_path: Literal["auto", "scan", "consumequeue", "index"] = _one_of(
        "accessPath", "auto", "scan", "consumequeue", "index", example="consumequeue"
    )
    """`auto`, `scan`, `consumequeue`, `index`: see [access paths](#access-paths)"""
    split_bytes: int = option(
        "splitBytes", values.read_size, default=128 << 20, shown_default="`128m`", example="64m"
    )
    """maximum bytes of the log in one partition"""
    min_partitions: int = option("minPartitions", values.read_count, default=1, example="200")
    """minimum number of partitions, if there is enough data"""
    pushdown: bool = _switch("pushdown", default=False)
    """whether Spark's own filters reduce what is read"""
    on_error: Literal["fail", "skip", "rows"] = _one_of(
        "onError", "fail", "skip", "rows", kept=True, example="rows"
    )
    """at damage: `fail`, `skip`, or `rows`: a row for each damaged range with `error` set"""
    verify_crc: bool = _switch("verifyCrc", default=True)
    """whether each body is checked against its checksum"""
    decompress: bool = _switch("decompress", default=True, kept=True)
    """whether `body` is decompressed"""
    fail_on_data_loss: bool = _switch("failOnDataLoss", default=True)
    """whether it is an error if an offset is out of range, or retention deleted a file after
    planning

    In streams: whether it is an error if retention deleted unread messages, a crash cut the log
    before the stream's offset (not with `until=flushed`), or another log lies there; `false` warns
    and goes on
    """
    strict: bool = _switch("strict", default=False)
    """whether a topic that no store has is an error with the nearest names, and not a warning"""
    missing_stores: Literal["fail", "wait", "drop"] = _one_of(
        "missingStores", "fail", "wait", "drop", example="drop"
    )
    """where a path is no store: `fail`; `drop` goes on without it; streams also `wait`: see
    [spark-jobs.md](spark-jobs.md#streams)

    In streams: where a store is gone: `fail`; `wait` reads the others until it is back (default
    with `failOnDataLoss=false`); `drop` takes its broker out of the checkpoint
    """
    broker_name: str | None = option(
        "brokerName", str, kept=True, shown_default="the directory's name", example="broker-a"
    )
    """value of the column `broker`; the directory's name is `broker-a` for `/data/broker-a/store`
    """
    config: str | None = option(
        "config", lambda text: text or None, example="/etc/rocketmq/broker.conf"
    )
    """settings of the stores, in a file that every worker can read"""
    storage_options: Mapping[str, Any] | None = option(
        "storageOptions",
        values.read_storage_options,
        hidden=True,
        example='{"region": "eu-central-1"}',
    )
    """for URLs: a JSON object with [options of the object store](cloud.md#spark)"""
    at: int | None = _of_batches("at", parse_time, example="-2h")
    """for [backups](backup.md): the store as it was then"""
    snapshot: str | None = _of_batches(
        "snapshot", str, example="20261127T120000000Z-0123456789abcdef"
    )
    """for [backups](backup.md): the store as of this snapshot"""
    columns: tuple[str, ...] | None = option(
        "columns",
        values.read_names,
        shown_default="all but `raw_body` and `error`",
        example="topic,body",
    )
    """the columns, in this order"""
    table: str = _one_of("table", *TABLES, where=BATCH, example="damage")
    """`messages`, or a structure: see [structures as tables](#structures-as-tables)"""
    until: str = _one_of("until", "flushed", "dispatched", "end", where=STREAM, example="end")
    """`flushed`: messages that survive a power cut; `dispatched`: messages in the queues; `end`:
    all messages
    """
    flushed_after_s: float | None = _of_streams(
        "flushedAfter", values.read_flushed_after, example="30s"
    )
    """with `until=flushed` on a shared file system: the end of the log counts as flushed if it
    stays the same for so long; at least `30s`
    """
    max_bytes_per_trigger: int | None = _of_streams(
        "maxBytesPerTrigger", values.read_size, example="1g"
    )
    """maximum bytes of the log in a batch, shared by the brokers; costs nothing to plan"""
    max_rows_per_trigger: int | None = _of_streams(
        "maxRowsPerTrigger", values.read_count, also=("maxOffsetsPerTrigger",), example="100000"
    )
    """maximum messages in a batch; the driver reads the log once more to count them"""
    retire: tuple[str, ...] = _of_streams(
        "retire", values.read_names, default=(), example="broker-a"
    )
    """brokers whose stores are gone for good: taken out of the checkpoint; refused while such a
    store is there
    """
    resume: tuple[dict[str, int], dict[str, int], dict[str, Any] | None] | None = _of_streams(
        "resume",
        values.read_resume,
        example='{"start": {"broker-a": 0}, "end": {"broker-a": 4096}}',
    )
    """first batch where there is no checkpoint; a pipeline sets it"""
    kept: Mapping[str, Any] | None = _of_streams(
        "kept", values.read_object, example='{"layout": {}, "earlier": {}}'
    )
    """layout of a pipeline's tables, and the options that `--migrate` changed; a pipeline sets it
    """

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> Self:
        """The options as Spark hands them over; names in any case.

        Args:
            options: Texts by name.
            streaming: Whether they are those of a stream.

        Raises:
            ConfigError: No such option, a value that it cannot have, two that contradict each
                other, or one for streams without a stream; ``field`` names the option.
        """
        given = values.read_given(options, OPTIONS)
        if not streaming:
            for name in given:
                if OPTIONS[name].where == STREAM:
                    raise ConfigError(f"option {name} is for streams (spark.readStream)", name)
        zone = OPTIONS["timeZone"].parse(given["timeZone"]) if "timeZone" in given else None
        fields = {
            row.field: row.parse(
                given[name], values.read_time_in(zone) if zone and row.read is parse_time else None
            )
            for name, row in OPTIONS.items()
            if name in given
        }
        fields["paths"] = values.read_paths(fields.get("path"), fields.get("paths", ()))
        # The other tables show the log as it is.
        if fields.get("table", "messages") != "messages":
            fields.setdefault("include", ("all",))
        if streaming and not fields.get("fail_on_data_loss", True):
            fields.setdefault("missing_stores", "wait")
        for field, word, flag in (
            ("starting_offsets", "latest", "starting_from_latest"),
            ("ending_offsets", "earliest", "ending_at_earliest"),
        ):
            if isinstance(fields.get(field), str):
                fields[flag] = fields.pop(field) == word
        if (before_ms := fields.get("before_timestamp_ms")) is not None:
            if "ending_timestamp_ms" in fields:
                raise wrong_setting("option beforeTimestamp", "none beside endingTimestamp", "both")
            fields["ending_timestamp_ms"] = before_ms - 1
        parsed = cls(**fields)
        parsed._check_together()
        is_scan = parsed.access_path in ("auto", "scan")
        if "include" in given and parsed.shows_undelivered and not is_scan:
            wanted = f"auto or scan with include={','.join(parsed.include)}"
            advice = "only a scan finds half messages"
            raise wrong_setting("option accessPath", wanted, parsed.access_path, advice)
        if not streaming:
            parsed._check_batch()
        return parsed

    @property
    def selects_tags(self) -> bool:
        """Whether the tags leave messages out."""
        return self.tags not in (None, "", "*")

    @property
    def narrowing(self) -> list[str]:
        """The fields that leave messages out."""
        narrow = [row.field for row in OPTIONS.values() if row.narrows]
        return [name for name in narrow if getattr(self, name) not in (None, ())]

    @property
    def starts(self) -> tuple[QueueOffset, ...]:
        """Where queues begin."""
        return (*self.starting_offsets, *self.starting_times)

    @property
    def limits(self) -> tuple[tuple[str, tuple[QueueOffset, ...]], ...]:
        """Where queues begin and end, by the option that says so."""
        return ("startingOffsets", self.starts), ("endingOffsets", self.ending_offsets)

    def topics_of(self, known: Collection[str]) -> set[str]:
        """Those of some topics that ``topics`` and ``topicPattern`` choose."""
        chosen = set(known if self.topics is None else self.topics).intersection(known)
        pattern = self.topic_pattern
        return chosen if pattern is None else values.topics_matching(pattern, chosen)

    @property
    def shows_undelivered(self) -> bool:
        """Whether messages count that no queue names: half messages of RocketMQ before 4.3."""
        return "half" in self.include or "all" in self.include

    @property
    def hides_system(self) -> bool:
        """Whether a broker's own topics are left out; a topic that is named is not."""
        named = self.topics is not None or self.queues is not None
        return not named and "system" not in self.include and "all" not in self.include

    def check_stream(self) -> None:
        """Refuses options that a stream cannot have.

        Raises:
            UnsupportedError: An option that says where a stream ends, or reads no messages.
        """
        names = [
            name
            for name, row in OPTIONS.items()
            if row.where == BATCH and getattr(self, row.field) != row.default
        ]
        for name in (["endingOffsets"] * self.ending_at_earliest + names)[:1]:
            raise UnsupportedError(
                f"option {name} is for batch reads; a stream reads messages, and has no end; it "
                "begins at startingOffsets, startingPhysicalOffset or startingTimestamp",
                name,
                self.paths[0],
            )

    def _check_together(self) -> None:
        for name in self.narrowing:
            (row,) = (row for row in OPTIONS.values() if row.field == name)
            if self.table not in row.tables:
                raise ConfigError(
                    f"option {row.name} cannot narrow table={self.table}; leave it out, and filter "
                    f"the rows; it is for {', '.join(row.tables)}",
                    row.name,
                )
        for topic, _ in self.queues or ():
            if self.topics is not None and topic not in self.topics:
                raise wrong_setting("option queues", "topics that option topics names", repr(topic))
        for name, other in (("topicPattern", "topics"), ("snapshot", "at")):
            if all(getattr(self, OPTIONS[one].field) is not None for one in (name, other)):
                raise wrong_setting(f"option {name}", f"none beside {other}", "both")
        if self.table == "dispatch" and self.on_error == "rows":
            wanted = "skip or fail with table=dispatch, which has no column for damage"
            raise wrong_setting("option onError", wanted, "rows", "table=raw has one")
        if self.flushed_after_s is not None and self.until != "flushed":
            wanted = f"none with until={self.until}"
            raise wrong_setting("option flushedAfter", wanted, "one", "it is for until=flushed")
        if self.access_path == "index" and self.keys is None:
            raise wrong_setting("option keys", "keys, which accessPath=index looks up", "none")
        for name, first, last in (
            ("PhysicalOffset", self.starting_physical_offset, self.ending_physical_offset),
            ("Timestamp", self.starting_timestamp_ms, self.ending_timestamp_ms),
        ):
            if first is not None and last is not None and first > last:
                wanted = f"at most ending{name}, {last}"
                raise wrong_setting(f"option starting{name}", wanted, first)

    def _check_batch(self) -> None:
        if self.missing_stores == "wait":
            wanted = "fail or drop in a batch"
            raise wrong_setting("option missingStores", wanted, "wait", "that is for streams")
        if self.starting_from_latest:
            wanted = "earliest or offsets in a batch"
            raise wrong_setting("option startingOffsets", wanted, "latest", "that is for streams")
        if self.ending_at_earliest or any(o.queue_offset == EARLIEST for o in self.ending_offsets):
            wanted = "latest or offsets above the earliest"
            raise wrong_setting("option endingOffsets", wanted, "earliest", "nothing would be read")


OPTIONS: Final = options_of(ReadOptions)
"""Each option of a read or a stream, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write, parsed: a field each, with its row."""

    path: str | None = option("path", str)
    """target directory of the stores; every worker must reach it under this name"""
    config: str | None = option("config", str)
    """a `broker.conf`, or settings as JSON: `{"mapped_file_size_commit_log": 1073741824}`"""
    properties_from: tuple[str, ...] = option("propertiesFrom", values.read_names, default=())
    """columns that become properties, as texts: `region,amount`; null is left out;
    `properties_from=` of `write_store`
    """
    store_by: Literal["task", "broker"] = _one_of("storeBy", "task", "broker", where=BATCH)
    """`task`: a store `part-<number>` for each task that has rows; `broker`: a store for each
    broker, of rows that come sorted by `broker` (`write_store` sorts them, by store time too)
    """
    bad_rows: Literal["fail", "drop", "quarantine"] = _one_of(
        "badRows", "fail", "drop", "quarantine"
    )
    """a row that is no message: `fail` names its number and field; `drop` leaves it out and warns;
    `quarantine` keeps it with both in `_bad_rows` of the target, as Parquet; `bad_rows=` of
    `write_store`
    """

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options as Spark hands them over; names in any case.

        Raises:
            ConfigError: No such option, or a value that it cannot have.
        """
        given = values.read_given(options, WRITE_OPTIONS)
        rows = [(WRITE_OPTIONS[name], text) for name, text in given.items()]
        return cls(**{row.field: row.parse(text) for row, text in rows})


WRITE_OPTIONS: Final = options_of(WriteOptions)
"""Each option of a write, by its name."""


def as_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], options: Mapping[str, object]
) -> dict[str, str]:
    """Python values as the texts that Spark's options are; what is ``None`` is left out.

    Raises:
        ConfigError: No such option, one that is given twice, or a value that no text can be.
    """
    try:
        many = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        texts = {"paths": json.dumps([os.fspath(path) for path in many])}
    except TypeError:
        raise wrong_setting("path", "a store's directory, or several", repr(paths)) from None
    for name, value in given_values(options).items():
        if name in texts:
            raise wrong_setting(f"option {name}", "it once", "it beside the paths")
        try:
            texts[name] = _text(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"option {name}: {error}", name) from None
    return texts


def given_values(options: Mapping[str, object]) -> dict[str, object]:
    """Python values by the proper names of their options, without those that are ``None``."""
    given = {name: value for name, value in options.items() if value is not None}
    return values.read_given(given, OPTIONS)


def in_zone_of(spark: SparkSession, texts: dict[str, str]) -> dict[str, str]:
    """The options with the session's zone, where none is given.

    Raises:
        ConfigError: A time needs it, and it is not known.
    """
    rows = [row for name, row in OPTIONS.items() if row.read is parse_time and name in texts]
    if "timeZone" not in texts and (
        zone := values.session_zone(spark, [texts[row.name] for row in rows])
    ):
        return {**texts, "timeZone": zone}
    return texts


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case datetime():
            return value.isoformat()
        case os.PathLike():
            return str(os.fspath(value))
        case Mapping():
            return json.dumps({key: _listed(one) for key, one in value.items()})
        case Iterable():
            return json.dumps(list(value))
    return str(value)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, range | set | frozenset) else value
