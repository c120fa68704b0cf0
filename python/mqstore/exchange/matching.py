"""Which messages were asked for, and rules of redaction; both are checked before any work.

Rules come out of a mapping or a TOML file. A rule has ``topics`` (patterns with ``*`` and ``?``;
all where left out), ``body`` and ``properties``. A replacement is ``"zeros"``, ``"hash"``,
``"remove"`` or ``{constant = "..."}``.
"""

from __future__ import annotations

import fnmatch
import os
import re
import secrets
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

from mqstore._names import missing_keys, missing_topics, nearest, table_names
from mqstore.errors import ConfigError, MessageNotFoundError, expected, io_errors
from mqstore.results.documents import body_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mqstore import Store, StoredMessage
    from mqstore._native import _Pattern

Rules: TypeAlias = "Mapping[str, object] | str | os.PathLike[str] | None"
"""Argument of ``redact=``: rules, the path of a TOML file, or nothing."""

_Replacement: TypeAlias = "tuple[str, bytes | None]"
Rule: TypeAlias = "tuple[list[str], _Replacement | None, list[tuple[str, _Replacement]]]"

_NAMED = ("zeros", "hash", "remove")
_FIELDS = ("topics", "body", "properties")
# Properties by which a record is read.
_KEPT = (
    "INNER_NUM",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "__CRC32#",
    "DELAY",
)
# A name is followed by 0x01, a value by 0x02.
_NAME = re.compile(rb"(?:^|(?<=\x02))([^\x01\x02]*)\x01")
# Properties of a message's way through a broker: they would mean something else at the target.
DROPPED = (
    *("DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "__transactionId__"),
    *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET"),
    *("CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "1ST_POP_TIME", "TRANSFER_FLAG", "__CRC32#"),
    *("INNER_NUM", "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "MSG_TYPE", "CORRECTION_FLAG"),
    *("TIMER_DELAY_LEVEL", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"),
    *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    *("TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "ORIGIN_GROUP", "WAIT"),
    *("TRAN_PREPARED_QUEUE_OFFSET", "TIMER_DEL_UNIQKEY", "POP_CK_OFFSET"),
)
OF_DEAD_LETTERS = ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID")
"""Those that a message must lose to be one of its topic again."""
# Properties by which RocketMQ handles a message: a default rule leaves them.
_OF_ROCKETMQ = {
    *DROPPED,
    *OF_DEAD_LETTERS,
    *("UNIQ_KEY", "INSTANCE_ID", "INNER_MULTI_DISPATCH", "MQSTORE_LEFT_OUT"),
}


class LeftAsIs(NamedTuple):
    """Content of a topic that no rule of redaction replaced."""

    topic: str
    """The topic."""
    messages: int
    """How many of its messages were copied."""
    bodies: int
    """How many bodies were left as they are."""
    properties: tuple[str, ...]
    """Names of the properties that were left as they are."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which messages were asked for; ``None`` is no bound."""

    topics: Collection[str] | None = None
    tags: str | None = None
    keys: Sequence[str] | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """The bounds that a scan takes."""
        names = ("topics", "tags", "begin_ms", "end_ms")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def messages(self, store: Store) -> Iterator[StoredMessage]:
        """The messages; damage is passed over, the work itself reports it."""
        return filter(self.has_key, store.scan(on_error="skip", decompress=False, **self.filters))

    def has_key(self, message: StoredMessage) -> bool:
        """Whether a message has one of the keys that were asked for."""
        return self.keys is None or not {message.unique_key, *message.keys}.isdisjoint(self.keys)


def body_matches(pattern: _Pattern) -> Callable[[StoredMessage], bool]:
    """Whether a pattern is found in a message's body, in what is stored where it has none."""
    return lambda message: pattern.is_in(body_of(message)[0])


@dataclass
class Content:
    """Content of the chosen messages of one topic.

    Attributes:
        messages: How many there are.
        bodies: How many have a body.
        properties: How many have each property.
    """

    messages: int = 0
    bodies: int = 0
    properties: Counter[str] = field(default_factory=Counter)


def check_choice(store: Store, choice: Choice) -> None:
    """Checks that each topic and key is there, and that all filters together match a message.

    Raises:
        MessageNotFoundError: Something matches nothing.
    """
    missing = missing_topics(store, choice.topics or ())
    missing += missing_keys(store, choice.topics, choice.keys or ())
    _refuse(missing)
    if (choice.filters or choice.keys) and next(choice.messages(store), None) is None:
        _refuse([f"no message in {store.path} matches"])


def survey(store: Store, choice: Choice) -> dict[str, Content]:
    """Counts, by topic, what the chosen messages hold: one pass over the log."""
    found: dict[str, Content] = {}
    # Most messages of a topic have the same properties, so names are counted by their list.
    lists: dict[str, Counter[tuple[bytes, ...]]] = {}
    for message in choice.messages(store):
        topic = message.topic
        if topic not in found:
            found[topic], lists[topic] = Content(), Counter()
        content = found[topic]
        content.messages += 1
        content.bodies += bool(message.body_crc or message.raw_body)
        names = set(_NAME.findall(message.raw_properties))
        if b"INNER_NUM" in names:
            for member in message.batch or ():
                names.update(_NAME.findall(member.raw_properties))
        lists[topic][tuple(names)] += 1
    for topic, counts in lists.items():
        for listed, count in counts.items():
            for name in listed:
                found[topic].properties[name.decode("utf-8", "replace")] += count
    return found


def check_rules(store: Store, rules: list[Rule], found: dict[str, Content]) -> None:
    """Checks that each topic pattern and each property of the rules matches something.

    A rule for topics that are in the store and were not chosen is no mistake.

    Raises:
        MessageNotFoundError: Something matches nothing: its content would be copied as it is.
    """
    topics = set(found) | set(store.topics())
    topics |= table_names(store, "topics.json", "topicConfigTable")
    missing = []
    for number, (patterns, _, properties) in enumerate(rules, 1):
        missing += [
            f"redact: rule {number}: topics: {pattern!r} matches no topic{nearest(pattern, topics)}"
            for pattern in patterns
            if not any(fits([pattern], topic) for topic in topics)
        ]
        contents = [content for topic, content in found.items() if fits(patterns, topic)]
        names = {name for content in contents for name in content.properties}
        missing += [
            f"redact: rule {number}: properties: {name!r} is in no message{nearest(name, names)}"
            for name, _ in properties
            if contents and name not in names
        ]
    _refuse(missing)


def default_rules(rules: list[Rule], found: dict[str, Content], replacement: str) -> list[Rule]:
    """Returns rules for the bodies and properties that the given rules leave as they are."""
    return [
        (
            [left.topic],
            (replacement, None) if left.bodies else None,
            [(name, (replacement, None)) for name in left.properties if name not in _OF_ROCKETMQ],
        )
        for left in left_as_is(rules, found)
    ]


def left_as_is(rules: list[Rule], found: dict[str, Content]) -> tuple[LeftAsIs, ...]:
    """Returns the bodies and properties, by topic, that no rule replaces."""
    left = []
    for topic, content in sorted(found.items()):
        fitting = [rule for rule in rules if fits(rule[0], topic)]
        named = {name for _, _, properties in fitting for name, _ in properties}
        replaced = any(body is not None for _, body, _ in fitting)
        bodies = 0 if replaced else content.bodies
        properties = tuple(sorted(set(content.properties) - named))
        if bodies or properties:
            left.append(LeftAsIs(topic, content.messages, bodies, properties))
    return tuple(left)


def _refuse(missing: list[str]) -> None:
    if missing:
        text = "; ".join(missing)
        raise MessageNotFoundError(f"{text}; nothing was written, allow_empty=True goes on")


def load_rules(given: Rules) -> tuple[list[Rule], bytes]:
    """The rules, and the salt of their hashes: a new one each time where none is given.

    Raises:
        ConfigError: A rule that cannot be; the text says which and why.
        StoreIOError: The file cannot be read.
    """
    if given is None:
        return [], b""
    if isinstance(given, str | os.PathLike):
        given = _read(given)
    if not isinstance(given, Mapping):
        raise TypeError(expected("redact", "a mapping or a path", type(given).__name__))
    unknown = sorted(set(given) - {"rule", "salt"})
    if unknown:
        raise _wrong("", f"unknown name {unknown[0]!r}; there are rule and salt")
    salt = given.get("salt")
    if salt is not None and not isinstance(salt, str):
        raise _wrong("salt", f"expected text, found {salt!r}")
    rules = given.get("rule", [])
    if not _is_list(rules) or not rules:
        raise _wrong("rule", "expected at least one [[rule]]")
    made = [_rule(rule, f"rule {number}") for number, rule in enumerate(rules, 1)]
    return made, secrets.token_bytes(16) if salt is None else salt.encode("utf-8")


def fits(patterns: Sequence[str], topic: str) -> bool:
    """Whether a rule with these topics is one for this topic; a rule without is for all."""
    return not patterns or any(_pattern(pattern).fullmatch(topic) for pattern in patterns)


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    # It never goes back over a star: many of them take no longer than one.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def _read(path: str | os.PathLike[str]) -> Mapping[str, object]:
    try:
        with io_errors("open", path), open(path, "rb") as file:  # noqa: PTH123 - of str and PathLike
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"redact: {os.fspath(path)}: {error}", "redact") from None


def _rule(given: object, place: str) -> Rule:
    if not isinstance(given, Mapping):
        raise _wrong(place, f"expected a table, found {given!r}")
    unknown = sorted(set(given) - set(_FIELDS))
    if unknown:
        raise _wrong(place, f"unknown name {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    topics = given.get("topics", [])
    if not _is_list(topics) or not all(isinstance(topic, str) and topic for topic in topics):
        raise _wrong(f"{place}: topics", f"expected a list of patterns, found {topics!r}")
    body = given.get("body")
    properties = given.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _wrong(f"{place}: properties", f"expected a table, found {properties!r}")
    if body is None and not properties:
        raise _wrong(place, "replaces nothing: give body or properties")
    for name in _KEPT:
        if name in properties:
            text = f"{name} says how the message is to be read, and is kept"
            raise _wrong(f"{place}: properties", text)
    named = [
        (str(name), _replacement(value, f"{place}: properties: {name}", of_property=True))
        for name, value in properties.items()
    ]
    made = None if body is None else _replacement(body, f"{place}: body", of_property=False)
    return [str(topic) for topic in topics], made, named


def _replacement(given: object, place: str, *, of_property: bool) -> _Replacement:
    if isinstance(given, str) and given in _NAMED:
        return given, None
    if isinstance(given, Mapping) and set(given) == {"constant"}:
        constant = given["constant"]
        if isinstance(constant, str):
            constant = constant.encode("utf-8")
        if isinstance(constant, bytes):
            if of_property and (not constant or b"\x02" in constant):
                raise _wrong(place, "a property's value is not empty and has no 0x02 in it")
            return "constant", constant
    expected = '"zeros", "hash", "remove" or {constant = "..."}'
    raise _wrong(place, f"expected {expected}, found {given!r}")


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _wrong(place: str, text: str) -> ConfigError:
    return ConfigError(f"redact: {place}: {text}" if place else f"redact: {text}", "redact")
