"""Values of options: reads each from its text, and names what it cannot be."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from mqstore.errors import ConfigError, expected_got, wrong_setting
from mqstore.store import has_scheme
from mqstore.text import parse_duration, parse_size, parse_time
from mqstore.text.zone import parse_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

_T = TypeVar("_T")
EARLIEST: Final = -2
"""In ``startingOffsets`` and ``endingOffsets``: the first queue offset that is held."""
LATEST: Final = -1
"""In both options: one past the last queue offset."""
EVERY_QUEUE: Final = -1
"""In place of a queue: each of its topic."""
_WORDS = {"earliest": EARLIEST, "latest": LATEST}

_INT32_MAX = 2**31 - 1
_VIEW = (
    "in SQL CREATE TEMPORARY VIEW x USING mqstore OPTIONS (path '...') does, and CREATE TABLE "
    "loses its options"
)
_OF_TABLES = ("location", "owner", "provider")
_INT64_MAX = 2**63 - 1
_SHORTEST_S = 30
_ZONE_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d?))?")
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "UT": "UTC",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Names of ``ZoneId.SHORT_IDS`` of Java, which Spark knows, and Python's zones lack."""


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """From where, or up to where, a queue is read.

    Attributes:
        topic: The topic.
        queue_id: Its queue, or ``EVERY_QUEUE``.
        queue_offset: An entry number, ``EARLIEST`` or ``LATEST``.
        timestamp_ms: A store time in its place.
    """

    topic: str
    queue_id: int
    queue_offset: int
    timestamp_ms: int | None = None

    def names(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is meant."""
        return self.topic == topic and self.queue_id in (queue_id, EVERY_QUEUE)


BATCH: Final = ("batch",)
STREAM: Final = ("stream",)
LOG: Final = ("messages", "raw", "dispatch")
"""Values of ``table`` that are read from the log."""
_OF_KAFKA = {
    "endingoffsetsbytimestamp": "give endingTimestamp, or endingOffsets by queue",
    "groupidprefix": "a read belongs to no group and moves no offset: leave it out",
    "includeheaders": "column properties has a message's headers: name it in columns",
    "maxtriggerdelay": "give interval of the trigger",
    "minoffsetspertrigger": "give interval of the trigger, and maxRowsPerTrigger",
    "startingoffsetsbytimestampstrategy": "a time behind a queue's newest message is its end",
    "maxrecordsperpartition": "give splitBytes",
}
"""Options of Spark's Kafka source, in lower case, that have another name here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A row of a table of options.

    Its meaning stands below its field as Markdown, for the pages; that in a stream behind
    ``In streams:``, if it is another one.

    Attributes:
        name: Its name in Spark.
        read: Reads its value from a text; a ``ValueError`` says what the text cannot be.
        default: The value if the option is not given.
        where: Kinds of queries that take it.
        narrows: Whether it leaves messages out.
        shown_default: The default on the pages, if it is no plain value.
        example: A value, for the pages.
        also: Its names in Spark's Kafka source.
        kept: Whether a checkpoint belongs to its value, as it decides which rows come.
        tables: Values of ``table`` that can be narrowed by it.
        field: The attribute that holds the value.
        hidden: Whether the value may be secret, and no text has it.
    """

    name: str
    read: Callable[[str], Any]
    default: Any = None
    where: tuple[str, ...] = (*BATCH, *STREAM)
    narrows: bool = False
    shown_default: str = ""
    example: str = ""
    field: str = ""
    also: tuple[str, ...] = ()
    kept: bool = False
    hidden: bool = False
    tables: tuple[str, ...] = LOG

    def parse(self, text: str, read: Callable[[str], Any] | None = None) -> Any:  # noqa: ANN401
        """The value of a text, by another function where one is given."""
        try:
            return (read or self.read)(text)
        except ValueError as error:
            raise ConfigError(f"option {self.name}: {error}", self.name) from None


def option(name: str, read: Callable[[str], Any], **row: Any) -> Any:  # noqa: ANN401
    """A field of a dataclass with its row; the other arguments are those of `Option`."""
    one = Option(name=name, read=read, **row)
    return field(default=one.default, repr=not one.hidden, metadata={"option": one})


def options_of(kind: type[Any]) -> dict[str, Option]:
    """The rows of a dataclass, by name."""
    rows = [
        replace(one.metadata["option"], field=one.name)
        for one in fields(kind)
        if "option" in one.metadata
    ]
    return {row.name: row for row in rows}


def read_given(options: Mapping[str, _T], known: Mapping[str, Option]) -> dict[str, _T]:
    """The options by their proper names.

    Args:
        options: Values by name, in any case.
        known: The options by their proper names.

    Raises:
        ConfigError: No such option; the nearest names are offered. Or one that is given twice.
    """
    proper = {name.lower(): name for name in known}
    proper |= {also.lower(): row.name for row in known.values() for also in row.also}
    given = {}
    for name, text in options.items():
        if name.lower() in _OF_TABLES:
            raise ConfigError(f"CREATE TABLE cannot name a store's directory; {_VIEW}", "path")
        if hint := _kafka_hint(name.lower()):
            raise ConfigError(f"option {name[:64]} is of Spark's Kafka source; {hint}", name)
        if name.lower() not in proper:
            raise ConfigError(unknown_name("option", name, known), name)
        if (own := proper[name.lower()]) in given:
            raise wrong_setting(f"option {own}", "it once", f"{name} too; leave one of them out")
        given[own] = text
    return given


def _kafka_hint(name: str) -> str | None:
    if name == "kafka.bootstrap.servers":
        return "stores are read from files: give their directories as path"
    if name.startswith("kafka."):
        return "no broker is asked here: leave it out"
    return _OF_KAFKA.get(name)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Hint for an unknown name: the nearest ones, or all."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    shown = name[:64]
    if near:
        return f"no {what} {shown!r}; did you mean {' or '.join(by_lower[one] for one in near)}?"
    return f"no {what} {shown!r}; there are {', '.join(by_lower.values())}"


def read_paths(path: str | None, many: Iterable[str] = ()) -> tuple[str, ...]:
    """The paths of ``load``, of the options ``path`` and ``paths``."""
    paths = [*([] if path is None else [path]), *many]
    if not paths:
        raise wrong_setting("path", "a store's directory, as in load(path)", f"none; {_VIEW}")
    for path in paths:
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
        if scheme and scheme[1] != "file" and not has_scheme(path):
            raise wrong_setting("path", f"a path, or a URL with {scheme[1]}://", repr(path))
    return tuple(re.sub(r"^file:(//)?(?=/)", "", path) for path in paths)


def read_texts(text: str) -> tuple[str, ...]:
    """Reads a JSON array of texts."""
    many = _json(text)
    if not isinstance(many, list) or not all(isinstance(one, str) for one in many):
        raise _refused("a JSON array of texts", text)
    return tuple(many)


def read_names(text: str) -> tuple[str, ...]:
    """Reads ``a,b`` or a JSON array."""
    if text.lstrip().startswith("["):
        names = read_texts(text)
    else:
        names = tuple(name.strip() for name in text.split(","))
    if not names or not all(names):
        raise _refused("names such as a,b", text, "one of them is empty")
    "".join(names).encode()  # half of a surrogate pair is no character
    return tuple(dict.fromkeys(names))


def read_tags(text: str) -> str | None:
    """Reads a tag expression, or a JSON array of tags of which any will do."""
    if text.lstrip().startswith("["):
        tags = read_names(text)
        for tag in tags:
            if "|" in tag or tag == "*" or tag != tag.strip():
                raise _refused("one tag in each text of a list", tag)
        return " || ".join(tags)
    if re.search(r",|&&|(?<![|])[|](?![|])", text):
        advice = "a list of tags may have commas in them"
        raise _refused("a tag expression such as paid || refunded", text, advice)
    text.encode()
    return text.strip() or None


def read_pattern(text: str) -> str:
    """Reads a regular expression."""
    try:
        topics_matching(text, [""])
    except pa.ArrowInvalid as error:
        raise _refused("a regular expression of RE2", text, str(error)) from None
    return text


def topics_matching(pattern: str, topics: Iterable[str]) -> set[str]:
    """The topics that a regular expression matches from end to end.

    RE2 takes time in proportion to the name, whatever the pattern; Python's engine does not.
    """
    names = pa.array(list(topics), pa.string())
    # Alone first, so that a pattern cannot leave the group around it.
    pc.match_substring_regex(pa.array([""]), pattern=pattern)
    matches = pc.match_substring_regex(names, pattern=rf"\A(?:{pattern})\z")
    return set(names.filter(matches).to_pylist())


def read_queues(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Reads queues by topic."""
    wanted = 'queues by topic, such as {"topic": [0, 1]}'
    queues = []
    for topic, ids in _object(text, wanted).items():
        if not isinstance(ids, list) or not all(
            _is_int(one) and 0 <= one <= _INT32_MAX for one in ids
        ):
            raise _refused(wanted, json.dumps(ids), f"topic {topic!r}")
        queues.append((topic, tuple(sorted(set(ids)))))
    return tuple(queues)


def read_zone(text: str) -> str:
    """Reads the name of a zone, or what Spark calls it: ``GMT+8``, ``PST``."""
    name = _SHORT_ZONES.get(text, text)
    # A table of a pipeline keeps the text of its zone.
    with contextlib.suppress(ValueError):
        parse_zone(name)
        return name
    if offset := _ZONE_OFFSET.fullmatch(name):
        sign, *parts = offset.groups("0")
        name = sign + ":".join(f"{int(part):02}" for part in parts)
    parse_zone(name)
    return name


def read_queue_times(text: str) -> tuple[QueueOffset, ...]:
    """Reads store times by topic and queue."""
    wanted = 'times by topic and queue, such as {"topic": {"0": 1700000000000}}'
    times = []
    for topic, by_queue in _object(text, wanted).items():
        if not isinstance(by_queue, dict) or not all(map(_is_int, by_queue.values())):
            raise _refused(wanted, json.dumps(by_queue), f"topic {topic!r}")
        for queue_id, time_ms in by_queue.items():
            at_ms = parse_time(str(time_ms))
            times.append(QueueOffset(topic, _queue_id(topic, queue_id), EARLIEST, at_ms))
    return tuple(times)


def read_time_in(name: str) -> Callable[[str], int]:
    """Reads times; one without an offset is in the zone of that name."""
    zone = parse_zone(name)

    def read(text: str) -> int:
        moment = _local_time(text)
        return parse_time(text if moment is None else zone.read(moment).isoformat())

    return read


def _local_time(text: str) -> datetime | None:
    """The time that a text is, if it needs a zone."""
    if re.fullmatch("-?[0-9]+", text.strip()):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None


def read_object(text: str) -> dict[str, Any]:
    """Reads a JSON object."""
    return _object(text, "a JSON object")


def read_storage_options(text: str) -> dict[str, Any]:
    """Reads a JSON object; no error has its text, which may be secret."""
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
    if isinstance(found, dict):
        if moment := {"at", "snapshot"} & found.keys():
            text = f"expected options of an object store, got {min(moment)!r}"
            raise ValueError(f"{text}, which is an option of its own")
        return found
    raise ValueError('expected a JSON object, as {"region": "eu-central-1"}, got another text')


def read_resume(text: str) -> tuple[dict[str, int], dict[str, int], dict[str, Any] | None]:
    """Reads the beginning and the end of a batch, by broker, and the marks of its end."""
    found = _object(text, wanted := '{"start": {"broker": 0}, "end": {"broker": 9}}')
    start, end = found.get("start"), found.get("end")
    if not (isinstance(start, dict) and isinstance(end, dict) and start.keys() <= end.keys()):
        raise _refused(wanted, text)
    if not all(_is_int(place) for place in (*start.values(), *end.values())):
        raise _refused("physical offsets", text)
    marks = found.get("marks")
    if not (marks is None or isinstance(marks, dict)):
        raise _refused("marks as an object or null", text)
    return start, end, marks


def read_offsets(text: str) -> str | tuple[QueueOffset, ...]:
    """Reads offsets by topic and queue, or the word for them."""
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    wanted = 'earliest, latest or {"topic": {"0": 23, "1": -2}, "other": "latest"}'
    offsets = []
    for topic, by_queue in _object(text, wanted).items():
        if isinstance(by_queue, str) and by_queue.lower() in _WORDS:
            offsets.append(QueueOffset(topic, EVERY_QUEUE, _WORDS[by_queue.lower()]))
            continue
        if not isinstance(by_queue, dict):
            raise _refused(wanted, json.dumps(by_queue), f"topic {topic!r}")
        for queue_id, offset in by_queue.items():
            number = _queue_id(topic, queue_id)
            if not _is_int(offset) or not EARLIEST <= offset <= _INT64_MAX:
                known = "an offset from 0, -2 for the earliest or -1 for the latest"
                raise _refused(known, json.dumps(offset), f"topic {topic!r}, queue {queue_id}")
            offsets.append(QueueOffset(topic, number, offset))
    return tuple(offsets)


def _queue_id(topic: str, queue_id: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", queue_id) or int(queue_id) > _INT32_MAX:
        raise _refused(f"a queue from 0 to {_INT32_MAX}", queue_id, f"topic {topic!r}")
    return int(queue_id)


def _object(text: str, wanted: str) -> dict[str, Any]:
    found = _json(text)
    if not isinstance(found, dict):
        raise _refused(wanted, text)
    "".join(found).encode()
    return found


def _json(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused("JSON", text, str(error)) from None
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read_long(text: str) -> int:
    """Reads a number from 0."""
    if not re.fullmatch(r"\s*[0-9]{1,19}\s*", text) or int(text) > _INT64_MAX:
        raise _refused(f"a number from 0 to {_INT64_MAX}", text)
    return int(text)


def read_count(text: str) -> int:
    """Reads a number from 1."""
    number = read_long(text)
    if number == 0:
        raise _refused("1 or more", text)
    return number


def read_size(text: str) -> int:
    """Reads a size above 0."""
    size = parse_size(text)
    if size == 0:
        raise _refused("1 byte or more", text)
    return size


def read_flushed_after(text: str) -> float:
    """Reads a duration, in seconds; it has to cover several flushes of a broker."""
    seconds = parse_duration(text).total_seconds()
    if seconds < _SHORTEST_S:
        advice = "a broker flushes its whole log every 10 seconds (flushCommitLogThoroughInterval)"
        raise _refused(f"{_SHORTEST_S}s or more", text, advice)
    return seconds


def read_boolean(text: str) -> bool:
    """Reads ``true`` or ``false``."""
    if (word := text.strip().lower()) not in ("true", "false"):
        raise _refused("true or false", text)
    return word == "true"


def read_one_of(known: Sequence[str]) -> Callable[[str], str]:
    """Returns a function that reads one of the known words."""

    def read(text: str) -> str:
        if (word := text.strip().lower()) in known:
            return word
        raise ValueError(unknown_name("value", text, known))

    return read


def read_some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads one of the known words, or several."""
    one_of = read_one_of(known)
    return lambda text: tuple(one_of(name) for name in read_names(text))


def _refused(wanted: str, text: str, advice: str = "") -> ValueError:
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    return ValueError(expected_got(wanted, shown, advice))


def session_zone(spark: SparkSession, times: Iterable[str]) -> str | None:
    """The zone of a session, for times without an offset.

    Raises:
        ConfigError: It is not known here, and one of the times needs it.
    """
    name = "spark.sql.session.timeZone"
    try:
        return read_zone(zone) if (zone := spark.conf.get(name, None)) else None
    except ValueError as error:
        if any(_local_time(text) for text in times):
            raise ConfigError(
                f"{name}: {error}; option timeZone takes its place", "timeZone"
            ) from None
        return None
