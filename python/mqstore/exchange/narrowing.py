"""Filters of a scan, narrowed by what a query's predicate rules out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An expression of tags is cut at ``||``, and trimmed as Java trims.
_PLAIN_TAG = re.compile(r"[^|*\x00-\x20](?:[^|*]*[^|*\x00-\x20])?", re.DOTALL)


class Filters(TypedDict, total=False):
    """Filters of ``Store.scan_arrow``."""

    start_physical_offset: int | None
    stop_physical_offset: int | None
    topics: Iterable[str] | None
    tags: str | None
    begin_ms: datetime | int | None
    end_ms: datetime | int | None
    on_error: Literal["raise", "skip", "report"]
    verify_crc: bool
    decompress: bool


def tighten(asked: dict[str, Any], column: str, op: str, value: Any) -> None:  # noqa: ANN401
    """Adds to the filters what a column must be; never excludes a row that fulfils it."""
    texts = value if op == "In" else [value]
    are_texts = op in ("Eq", "In") and all(
        isinstance(text, str) and "\ufffd" not in text for text in texts
    )
    match column:
        case "topic" if are_texts:
            given = asked.get("topics")
            given = texts if given is None else [given] if isinstance(given, str) else given
            asked["topics"] = [topic for topic in given if topic in texts]
        case "tags" if are_texts and asked.get("tags") is None:
            if texts and all(map(_PLAIN_TAG.fullmatch, texts)):
                asked["tags"] = " || ".join(texts)
        case "physical_offset" if isinstance(value, int):
            # A scan that begins at damage leaves it out.
            if op in ("Gt", "GtEq", "Eq") and asked.get("on_error") != "report":
                _raise(asked, "start_physical_offset", value)
            if op in ("Lt", "LtEq", "Eq"):
                _lower(asked, "stop_physical_offset", min(value + 1, _MOST))
        case "store_timestamp" if isinstance(value, datetime) and value.tzinfo is not None:
            if op in ("Gt", "GtEq", "Eq"):
                _raise(asked, "begin_ms", value)
            if op in ("Lt", "LtEq", "Eq"):
                _lower(asked, "end_ms", value)


def _raise(asked: dict[str, Any], name: str, bound: int | datetime) -> None:
    given = asked.get(name)
    if given is None or _number(given) < _number(bound):
        asked[name] = bound


def _lower(asked: dict[str, Any], name: str, bound: int | datetime) -> None:
    given = asked.get(name)
    if given is None or _number(given) > _number(bound):
        asked[name] = bound


def _number(value: Any) -> int:  # noqa: ANN401
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
