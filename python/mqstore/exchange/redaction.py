"""Rules of redaction, out of a mapping or a TOML file.

A rule has ``topics`` (patterns with ``*`` and ``?``; all where left out), ``body`` and
``properties``. A replacement is ``"zeros"``, ``"hash"``, ``"remove"`` or ``{constant = "..."}``.
"""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeGuard

from mqstore.errors import ConfigError, StoreIOError, expected

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
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(one) or re.escape(one) for one in pattern), re.DOTALL)


def _read(path: str | os.PathLike[str]) -> Mapping[str, object]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - of str and PathLike
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"redact: {os.fspath(path)}: {error}", "redact") from None
    except OSError as error:
        text = f"open {os.fspath(path)}: {error.strerror}"
        raise StoreIOError(text, error.errno, os.fspath(path), "open") from None


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
