"""The options of the format ``mqstore``: names, defaults, and what a value may be.

Everything is checked in the driver. What is parsed holds primitives only, so that it travels to
workers; nothing here needs Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from mqstore.errors import ConfigError
from mqstore.spark.values import (
    EARLIEST,
    Given,
    QueueOffset,
    check_names,
    read_boolean,
    read_count,
    read_flushed_after,
    read_long,
    read_names,
    read_offsets,
    read_one_of,
    read_paths,
    read_pattern,
    read_queues,
    read_resume,
    read_some_bytes,
    read_some_of,
    read_time_in,
)
from mqstore.text import parse_time
from mqstore.text.zone import parse_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS: Final = (
    "accessPath",
    "brokerName",
    "columns",
    "config",
    "decompress",
    "endingOffsets",
    "endingPhysicalOffset",
    "endingTimestamp",
    "failOnDataLoss",
    "flushedAfter",
    "include",
    "keys",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "minPartitions",
    "missingStores",
    "onError",
    "path",
    "paths",
    "pushdown",
    "queues",
    "resume",
    "retire",
    "splitBytes",
    "startingOffsets",
    "startingPhysicalOffset",
    "startingTimestamp",
    "strict",
    "table",
    "tags",
    "timeZone",
    "topicPattern",
    "topics",
    "until",
    "verifyCrc",
)
"""Every option that a read or a stream can have."""

_ACCESS_PATHS: Final[tuple[Literal["auto", "scan", "consumequeue", "index"], ...]] = (
    "auto",
    "scan",
    "consumequeue",
    "index",
)
_INCLUDE: Final = ("business", "system", "half", "all")
_ON_ERROR: Final[tuple[Literal["fail", "skip", "rows"], ...]] = ("fail", "skip", "rows")
_STREAM_ONLY = (
    *("flushedAfter", "maxBytesPerTrigger", "maxRowsPerTrigger"),
    *("resume", "retire", "until"),
)
_MISSING: Final[tuple[Literal["fail", "wait", "drop"], ...]] = ("fail", "wait", "drop")

TABLES: Final = (
    "messages",
    "raw",
    "dispatch",
    "consumequeue",
    "index",
    "files",
    "checkpoint",
    "offsets",
    "damage",
)
"""Values of ``table``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read, parsed; names in snake_case, units at their end.

    Attributes:
        paths: Directories and globs, as they were given.
        topics: Only these; ``None`` is every topic.
        topic_pattern: Only topics that this regular expression matches from end to end.
        queues: Only these queues, by topic.
        tags: A tag expression.
        keys: Only messages with one of these keys, ``KEYS`` or ``UNIQ_KEY``.
        include: Kinds of messages: ``business``, and ``system``, ``half`` or ``all`` beside it.
        starting_offsets: By queue, where it says; others are read from their first.
        ending_offsets: By queue, one past the last; others are read to their end.
        starting_from_latest: Whether ``startingOffsets`` is the word ``latest``.
        ending_at_earliest: Whether ``endingOffsets`` is the word ``earliest``.
        starting_physical_offset: First byte of the log at which a record counts.
        ending_physical_offset: One past the last.
        starting_timestamp_ms: First store time.
        ending_timestamp_ms: Last store time.
        access_path: ``auto``, ``scan``, ``consumequeue`` or ``index``.
        split_bytes: Most bytes of the log in one partition.
        min_partitions: Fewest partitions, where there is enough to share.
        pushdown: Whether Spark's filters choose what is read.
        on_error: ``fail``, ``skip`` or ``rows``.
        verify_crc: Whether each body is compared with its checksum.
        decompress: Whether ``body`` is what the producer sent.
        fail_on_data_loss: Whether it is an error when what was planned is gone.
        strict: Whether a topic that no store has is an error, and not a warning.
        missing_stores: ``fail``, ``wait`` or ``drop``, where a store is gone.
        retire: Streams: brokers to be taken out of the checkpoint.
        resume: Streams: where the first batch begins and ends, by broker, without a checkpoint, and
            the marks of its end.
        until: Streams: ``flushed``, ``dispatched`` or ``end``.
        flushed_after_s: Streams: how long the end of a log on a shared file system has to stay
            where it is until it counts as flushed; ``None`` is for ever.
        max_bytes_per_trigger: Streams: most bytes of the log in a batch.
        max_rows_per_trigger: Streams: most messages in a batch.
        broker_name: Value of the column ``broker``; ``None`` for the directory's name.
        config: A ``broker.conf`` that every worker can read.
        table: ``messages``, or which structure is read instead.
        columns: Names of columns; ``None`` are the usual ones.
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    queues: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    tags: str | None = None
    keys: tuple[str, ...] | None = None
    include: tuple[str, ...] = ("system",)
    starting_offsets: tuple[QueueOffset, ...] = ()
    ending_offsets: tuple[QueueOffset, ...] = ()
    starting_from_latest: bool = False
    ending_at_earliest: bool = False
    starting_physical_offset: int | None = None
    ending_physical_offset: int | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    access_path: Literal["auto", "scan", "consumequeue", "index"] = "auto"
    split_bytes: int = 128 << 20
    min_partitions: int = 1
    pushdown: bool = False
    on_error: Literal["fail", "skip", "rows"] = "fail"
    verify_crc: bool = True
    decompress: bool = True
    fail_on_data_loss: bool = True
    strict: bool = False
    missing_stores: Literal["fail", "wait", "drop"] = "fail"
    retire: tuple[str, ...] = ()
    resume: tuple[dict[str, int], dict[str, int], dict[str, Any] | None] | None = None
    until: str = "flushed"
    flushed_after_s: float | None = None
    max_bytes_per_trigger: int | None = None
    max_rows_per_trigger: int | None = None
    broker_name: str | None = None
    config: str | None = None
    table: str = "messages"
    columns: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> Self:
        """The options as Spark hands them over; names in any case.

        Args:
            options: Texts by name.
            streaming: Whether they are those of a stream.

        Raises:
            ConfigError: No such option, a value that it cannot have, or two that contradict each
                other; ``field`` names the option.
        """
        given = Given(check_names(options, OPTIONS))
        if not streaming:
            for name in _STREAM_ONLY:
                if name in given.texts:
                    raise ConfigError(f"option {name} is for streams (spark.readStream)", name)
        value = given.get
        starting = value("startingOffsets", read_offsets, ())
        ending = value("endingOffsets", read_offsets, ())
        table = value("table", read_one_of(TABLES), "messages")
        zone = value("timeZone", parse_zone, None)
        read_time = parse_time if zone is None else read_time_in(zone)
        lossy = streaming and not value("failOnDataLoss", read_boolean, True)  # noqa: FBT003
        parsed = cls(
            paths=read_paths(given),
            topics=value("topics", read_names, None),
            topic_pattern=value("topicPattern", read_pattern, None),
            queues=value("queues", read_queues, None),
            tags=value("tags", str.strip, None) or None,
            keys=value("keys", read_names, None),
            # The other tables show the log as it is.
            include=value(
                "include", read_some_of(_INCLUDE), ("system",) if table == "messages" else ("all",)
            ),
            starting_offsets=() if isinstance(starting, str) else starting,
            starting_from_latest=starting == "latest",
            ending_offsets=() if isinstance(ending, str) else ending,
            ending_at_earliest=ending == "earliest",
            starting_physical_offset=value("startingPhysicalOffset", read_long, None),
            ending_physical_offset=value("endingPhysicalOffset", read_long, None),
            starting_timestamp_ms=value("startingTimestamp", read_time, None),
            ending_timestamp_ms=value("endingTimestamp", read_time, None),
            access_path=value("accessPath", read_one_of(_ACCESS_PATHS), "auto"),
            split_bytes=value("splitBytes", read_some_bytes, 128 << 20),
            min_partitions=value("minPartitions", read_count, 1),
            pushdown=value("pushdown", read_boolean, False),  # noqa: FBT003 - a default
            on_error=value("onError", read_one_of(_ON_ERROR), "fail"),
            verify_crc=value("verifyCrc", read_boolean, True),  # noqa: FBT003
            decompress=value("decompress", read_boolean, True),  # noqa: FBT003
            fail_on_data_loss=value("failOnDataLoss", read_boolean, True),  # noqa: FBT003
            strict=value("strict", read_boolean, False),  # noqa: FBT003
            missing_stores=value(
                "missingStores", read_one_of(_MISSING), "wait" if lossy else "fail"
            ),
            retire=value("retire", read_names, ()),
            resume=value("resume", read_resume, None),
            until=value("until", read_one_of(("flushed", "dispatched", "end")), "flushed"),
            flushed_after_s=value("flushedAfter", read_flushed_after, None),
            max_bytes_per_trigger=value("maxBytesPerTrigger", read_some_bytes, None),
            max_rows_per_trigger=value("maxRowsPerTrigger", read_count, None),
            broker_name=value("brokerName", str, None),
            config=value("config", str, None),
            table=table,
            columns=value("columns", read_names, None),
        )
        parsed._check_together()
        if "include" in given.texts and parsed.shows_undelivered and parsed.access_path != "auto":
            parsed._check_scan()
        if not streaming:
            parsed._check_batch()
        return parsed

    @property
    def selects_tags(self) -> bool:
        """Whether the tags leave messages out."""
        return self.tags not in (None, "", "*")

    @property
    def shows_undelivered(self) -> bool:
        """Whether messages count that no queue names: half messages of RocketMQ before 4.3."""
        return "half" in self.include or "all" in self.include

    @property
    def hides_system(self) -> bool:
        """Whether a broker's own topics are left out; a topic that is named is not."""
        named = self.topics is not None or self.queues is not None
        return not named and "system" not in self.include and "all" not in self.include

    def _check_scan(self) -> None:
        if self.access_path != "scan":
            raise ConfigError(
                f"accessPath={self.access_path} does not find half messages, which "
                f"include={','.join(self.include)} asks for; leave accessPath out",
                "accessPath",
            )

    def _check_together(self) -> None:
        for topic, _ in self.queues or ():
            if self.topics is not None and topic not in self.topics:
                raise ConfigError(
                    f"option queues has topic {topic!r}, which option topics leaves out", "queues"
                )
        if self.topics is not None and self.topic_pattern is not None:
            raise ConfigError(
                "options topics and topicPattern are two ways to say which topics; give one",
                "topicPattern",
            )
        if self.table == "dispatch" and self.on_error == "rows":
            raise ConfigError(
                "table=dispatch has no column for damage; take onError=skip, or table=raw",
                "onError",
            )
        if self.flushed_after_s is not None and self.until != "flushed":
            raise ConfigError(
                f"flushedAfter is for until=flushed, not {self.until}", "flushedAfter"
            )
        if self.access_path == "index" and self.keys is None:
            raise ConfigError("accessPath=index looks up keys; option keys names none", "keys")
        for name, first, last in (
            ("PhysicalOffset", self.starting_physical_offset, self.ending_physical_offset),
            ("Timestamp", self.starting_timestamp_ms, self.ending_timestamp_ms),
        ):
            if first is not None and last is not None and first > last:
                raise ConfigError(
                    f"option starting{name} ({first}) lies behind ending{name} ({last})",
                    f"starting{name}",
                )

    def _check_batch(self) -> None:
        if self.missing_stores == "wait":
            raise ConfigError(
                "missingStores=wait is for streams (spark.readStream); say fail or drop",
                "missingStores",
            )
        if self.starting_from_latest:
            raise ConfigError(
                "startingOffsets=latest leaves nothing to a batch; it is for streams",
                "startingOffsets",
            )
        if self.ending_at_earliest or any(o.queue_offset == EARLIEST for o in self.ending_offsets):
            raise ConfigError(
                "endingOffsets: earliest leaves nothing to read; say latest or an offset",
                "endingOffsets",
            )


def session_zone(spark: SparkSession) -> str | None:
    """The zone of a session, for times without an offset."""
    return spark.conf.get("spark.sql.session.timeZone", None)


def as_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], options: Mapping[str, object]
) -> dict[str, str]:
    """Python values as the texts that Spark's options are; what is ``None`` is left out."""
    many = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    texts = {"paths": json.dumps([os.fspath(path) for path in many])}
    for name, value in options.items():
        if value is not None:
            texts[name] = _text(value)
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
            return json.dumps(value)
        case Iterable():
            return json.dumps(list(value))
    return str(value)
