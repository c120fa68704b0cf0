"""The options of the format ``mqstore``: names, defaults, and what a value may be.

Everything is checked in the driver. What is parsed holds primitives only, so that it travels to
workers; nothing here needs Spark.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Self, TypeVar

from mqstore.errors import ConfigError
from mqstore.text import parse_size, parse_time

__all__ = [
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "TABLES",
    "QueueOffset",
    "ReadOptions",
    "as_texts",
    "check_names",
    "unknown_name",
]

EARLIEST: Final = -2
"""In ``startingOffsets`` and ``endingOffsets``: the first queue offset that is held."""
LATEST: Final = -1
"""The same: one past the last."""

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
    "keys",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "minPartitions",
    "onError",
    "path",
    "paths",
    "pushdown",
    "queues",
    "splitBytes",
    "startingOffsets",
    "startingPhysicalOffset",
    "startingTimestamp",
    "table",
    "tags",
    "topicPattern",
    "topics",
    "until",
    "verifyCrc",
)
"""Every option that a read or a stream can have."""
_T = TypeVar("_T")
_D = TypeVar("_D")

_ACCESS_PATHS: Final[tuple[Literal["auto", "scan", "consumequeue", "index"], ...]] = (
    "auto",
    "scan",
    "consumequeue",
    "index",
)
_ON_ERROR: Final[tuple[Literal["fail", "skip", "rows"], ...]] = ("fail", "skip", "rows")
_STREAM_ONLY = ("maxBytesPerTrigger", "maxRowsPerTrigger", "until")

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

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """From where, or up to where, a queue is read.

    Attributes:
        topic: The topic.
        queue_id: Its queue.
        queue_offset: An entry number, ``EARLIEST`` or ``LATEST``.
    """

    topic: str
    queue_id: int
    queue_offset: int


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
        until: Streams: ``flushed``, ``dispatched`` or ``end``.
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
    until: str = "flushed"
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
        given = _Given(check_names(options, OPTIONS))
        if not streaming:
            for name in _STREAM_ONLY:
                if name in given.texts:
                    raise ConfigError(f"option {name} is for streams (spark.readStream)", name)
        value = given.get
        starting = value("startingOffsets", _offsets, ())
        ending = value("endingOffsets", _offsets, ())
        parsed = cls(
            paths=_paths(given),
            topics=value("topics", _names, None),
            topic_pattern=value("topicPattern", _pattern, None),
            queues=value("queues", _queues, None),
            tags=value("tags", str.strip, None) or None,
            keys=value("keys", _names, None),
            starting_offsets=() if isinstance(starting, str) else starting,
            starting_from_latest=starting == "latest",
            ending_offsets=() if isinstance(ending, str) else ending,
            ending_at_earliest=ending == "earliest",
            starting_physical_offset=value("startingPhysicalOffset", _long, None),
            ending_physical_offset=value("endingPhysicalOffset", _long, None),
            starting_timestamp_ms=value("startingTimestamp", parse_time, None),
            ending_timestamp_ms=value("endingTimestamp", parse_time, None),
            access_path=value("accessPath", _one_of(_ACCESS_PATHS), "auto"),
            split_bytes=value("splitBytes", _some_bytes, 128 << 20),
            min_partitions=value("minPartitions", _count, 1),
            pushdown=value("pushdown", _boolean, False),  # noqa: FBT003 - a default
            on_error=value("onError", _one_of(_ON_ERROR), "fail"),
            verify_crc=value("verifyCrc", _boolean, True),  # noqa: FBT003
            decompress=value("decompress", _boolean, True),  # noqa: FBT003
            fail_on_data_loss=value("failOnDataLoss", _boolean, True),  # noqa: FBT003
            until=value("until", _one_of(("flushed", "dispatched", "end")), "flushed"),
            max_bytes_per_trigger=value("maxBytesPerTrigger", _some_bytes, None),
            max_rows_per_trigger=value("maxRowsPerTrigger", _count, None),
            broker_name=value("brokerName", str, None),
            config=value("config", str, None),
            table=value("table", _one_of(TABLES), "messages"),
            columns=value("columns", _names, None),
        )
        parsed._check_together()
        if not streaming:
            parsed._check_batch()
        return parsed

    @property
    def selects_tags(self) -> bool:
        """Whether the tags leave messages out."""
        return self.tags not in (None, "", "*")

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


def check_names(options: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The options by their proper names.

    Args:
        options: Texts by name, in any case.
        known: The proper names.

    Raises:
        ConfigError: No such option; the nearest names are offered.
    """
    proper = {name.lower(): name for name in known}
    given = {}
    for name, text in options.items():
        if name.lower() not in proper:
            raise ConfigError(unknown_name("option", name, proper.values()), name)
        given[proper[name.lower()]] = text
    return given


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Hint for an unknown name: the nearest ones, or all."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    shown = name[:64]
    if near:
        return f"no {what} {shown!r}; did you mean {' or '.join(by_lower[one] for one in near)}?"
    return f"no {what} {shown!r}; there are {', '.join(by_lower.values())}"


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


@dataclass(frozen=True, slots=True)
class _Given:
    """The options that were given, by their proper names."""

    texts: Mapping[str, str]

    def get(self, name: str, read: Callable[[str], _T], default: _D) -> _T | _D:
        """An option parsed by `read`, or its default."""
        if name not in self.texts:
            return default
        try:
            return read(self.texts[name])
        except ValueError as error:
            raise ConfigError(f"option {name}: {error}", name) from None


def _paths(given: _Given) -> tuple[str, ...]:
    paths = [*given.get("path", lambda text: [text], []), *given.get("paths", _texts, [])]
    if not paths:
        raise ConfigError("no path was given; load(path) names a store's directory", "path")
    for path in paths:
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
        if scheme and scheme[1] != "file":
            raise ConfigError(
                f"path {path!r}: stores are read through the file system of each worker; "
                f"mount {scheme[1]} there or copy the store",
                "path",
            )
    return tuple(re.sub(r"^file:(//)?(?=/)", "", path) for path in paths)


def _texts(text: str) -> list[str]:
    many = _json(text)
    if not isinstance(many, list) or not all(isinstance(one, str) for one in many):
        raise ValueError(f"{_shown(text)} is no JSON array of texts")
    return many


def _names(text: str) -> tuple[str, ...]:
    """``a,b`` or a JSON array."""
    if text.lstrip().startswith("["):
        names = tuple(_texts(text))
    else:
        names = tuple(name.strip() for name in text.split(","))
    if not names or not all(names):
        raise ValueError(f"{_shown(text)} has an empty name in it")
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{_shown(text)} is no regular expression: {error}") from None
    return text


def _queues(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    wanted = '{"topic": [0, 1]}'
    found = _object(text, wanted)
    queues = []
    for topic, ids in found.items():
        if not isinstance(ids, list) or not all(_is_int(one) for one in ids):
            raise ValueError(f"topic {topic!r} has {_shown(json.dumps(ids))}; say {wanted}")
        if not all(0 <= one <= _INT32_MAX for one in ids):
            raise ValueError(f"topic {topic!r}: a queue is a number from 0 to {_INT32_MAX}")
        queues.append((topic, tuple(sorted(set(ids)))))
    return tuple(queues)


def _offsets(text: str) -> str | tuple[QueueOffset, ...]:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    wanted = 'earliest, latest or {"topic": {"0": 23, "1": -2}}'
    offsets = []
    for topic, by_queue in _object(text, wanted).items():
        if not isinstance(by_queue, dict):
            raise ValueError(  # noqa: TRY004 - it is the value of an option
                f"topic {topic!r} has {_shown(json.dumps(by_queue))}; say {wanted}"
            )
        for queue_id, offset in by_queue.items():
            if not re.fullmatch("[0-9]{1,10}", queue_id) or int(queue_id) > _INT32_MAX:
                raise ValueError(f"topic {topic!r}: {queue_id!r} is no queue")
            if not _is_int(offset) or not EARLIEST <= offset <= _INT64_MAX:
                raise ValueError(
                    f"topic {topic!r}, queue {queue_id}: {_shown(json.dumps(offset))} is no "
                    "offset; say a number from 0, -2 for the earliest or -1 for the latest"
                )
            offsets.append(QueueOffset(topic, int(queue_id), offset))
    return tuple(offsets)


def _object(text: str, wanted: str) -> dict[str, object]:
    found = _json(text)
    if not isinstance(found, dict):
        raise ValueError(f"{_shown(text)} is not what is asked for; say {wanted}")  # noqa: TRY004
    return found


def _json(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_shown(text)} is no JSON: {error}") from None
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _long(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,19}\s*", text) or int(text) > _INT64_MAX:
        raise ValueError(f"{_shown(text)} is no number from 0 to {_INT64_MAX}")
    return int(text)


def _count(text: str) -> int:
    number = _long(text)
    if number == 0:
        raise ValueError("must be at least 1")
    return number


def _some_bytes(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise ValueError("must be at least 1 byte")
    return size


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{_shown(text)} is neither true nor false")


def _one_of(known: Sequence[_T]) -> Callable[[str], _T]:
    def read(text: str) -> _T:
        for one in known:
            if text.strip().lower() == one:
                return one
        raise ValueError(unknown_name("value", text, map(str, known)))

    return read


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
