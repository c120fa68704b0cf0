"""Filters of a scan, narrowed by what a query's predicate rules out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from mqstore._names import queue_counts
from mqstore.errors import StoreError
from mqstore.topic import messages_of_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mqstore import ArrowScan, Store

_T = TypeVar("_T")
_MOST = 2**63 - 1
# More messages than these, or those of more queues, are cheaper found in the log.
_MOST_OF_KEY = 1_000
_MOST_OF_QUEUES = 10_000
_MOST_QUEUES = 256
# Conditions that no scan takes: they are looked up in queues and index.
_LOOKED_UP = ("keys", "queue_ids", "first_queue_offset", "last_queue_offset")
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
    values = value if op == "In" else [value]
    are_texts = op in ("Eq", "In", "Has") and all(
        isinstance(text, str) and "\ufffd" not in text for text in values
    )
    are_numbers = bool(values) and all(type(number) is int for number in values)
    match column:
        case "topic" if are_texts and op != "Has":
            given = asked.get("topics")
            given = values if given is None else [given] if isinstance(given, str) else given
            asked["topics"] = [topic for topic in given if topic in values]
        case "tags" if are_texts and op != "Has" and asked.get("tags") is None:
            if values and all(map(_PLAIN_TAG.fullmatch, values)):
                asked["tags"] = " || ".join(values)
        case "keys" | "unique_key" if are_texts and (column == "unique_key") != (op == "Has"):
            if "keys" not in asked or len(values) < len(asked["keys"]):
                asked["keys"] = sorted(set(values))
        case "queue_id" if are_numbers and op in ("Eq", "In"):
            asked["queue_ids"] = sorted(set(values) & set(asked.get("queue_ids", values)))
        case "queue_offset" if are_numbers:
            _between(asked, ("first_queue_offset", "last_queue_offset"), op, values)
        case "physical_offset" if are_numbers:
            # A scan that begins at damage leaves it out.
            first = None if asked.get("on_error") == "report" else "start_physical_offset"
            stops = [min(number + 1, _MOST) for number in values]
            _between(asked, (first, None), op, values)
            _between(asked, (None, "stop_physical_offset"), op, stops)
        case "store_timestamp" if all(
            isinstance(time, datetime) and time.tzinfo is not None for time in values
        ):
            _between(asked, ("begin_ms", "end_ms"), op, values)


def tightened(
    asked: dict[str, Any], condition: _T, parts: Callable[[_T], Iterable[tuple[str, str, Any]]]
) -> dict[str, Any]:
    """The filters with the parts of a condition that must hold: column, operator and value."""
    try:
        found = list(parts(condition))
    except Exception:  # of another form in another release: then nothing is narrowed
        return asked
    for part in found:
        tighten(asked, *part)
    return asked


def narrowed(store: Store, asked: dict[str, Any], **others: Any) -> ArrowScan:  # noqa: ANN401
    """The scan of the filters, of the messages only that queues or index name where they can.

    Their number is noted as ``records`` of the filters.
    """
    given = {name: value for name, value in asked.items() if name not in _LOOKED_UP}
    scan = store.scan_arrow(**given, **others)
    keys, offsets = asked.get("keys"), _looked_up(store, asked)
    if keys is None and offsets is None:
        return scan
    if offsets is not None:
        asked["records"] = len(offsets)
    return scan._narrowed(keys, offsets, asked.get("verify_crc", True))  # noqa: SLF001


def _looked_up(store: Store, asked: dict[str, Any]) -> list[int] | None:
    """Physical offsets of all messages that may fulfil the filters; ``None`` if it is not known."""
    # A scan that goes on behind damage searches for what queues and index lost.
    if asked.get("on_error", "raise") != "raise" or not any(name in asked for name in _LOOKED_UP):
        return None
    topics = asked.get("topics")
    try:
        found = offsets_of_keys(store, asked, topics) if "keys" in asked else None
        if found is None and asked.keys() & {*_LOOKED_UP[1:]}:
            found = _of_queues(store, asked, topics)
    except (StoreError, ValueError):
        return None  # The read of the whole log reports it, if it matters.
    if found is None:
        return None
    first, stop = asked.get("start_physical_offset") or 0, asked.get("stop_physical_offset")
    return sorted({at for at in found if first <= at < (_MOST if stop is None else stop)})


def offsets_of_keys(
    store: Store, asked: Mapping[str, Any], topics: Iterable[str] | None
) -> list[int] | None:
    """Physical offsets of messages with keys by the index; ``None`` where that may lack some."""
    found: list[int] = []
    for topic in [None] if topics is None else topics:
        for key in asked["keys"]:
            answer = store.query(
                topic,
                key,
                begin_ms=asked.get("begin_ms"),
                end_ms=asked.get("end_ms"),
                max_messages=_MOST_OF_KEY,
            )
            found += [message.physical_offset for message in answer]
            if not answer.complete or answer.truncated or len(found) > _MOST_OF_KEY:
                return None
    return found


def _of_queues(store: Store, asked: dict[str, Any], topics: Any) -> list[int] | None:  # noqa: ANN401
    asked_for = [None] if topics is None else topics
    queues = [queue for topic in asked_for for queue in store.queues(topic)]
    names = {queue.topic for queue in queues}
    # The queue of a message may be lost, and a topic that is no text has no name to read it by.
    if not names or not names.issuperset(topics or ()) or any("\ufffd" in name for name in names):
        return None
    wanted = {(name, queue_id) for name in topics or () for queue_id in asked.get("queue_ids", ())}
    listed = {(queue.topic, queue.queue_id) for queue in queues}
    if not (wanted <= listed if wanted else has_all_queues(store, asked, listed)):
        return None
    parts = []
    for queue in queues:
        if queue.queue_id in asked.get("queue_ids", (queue.queue_id,)):
            # At least one entry, which shows whether its record has the same number.
            first = max(asked.get("first_queue_offset", 0), queue.min_offset)
            first = min(first, queue.max_offset - 1)
            stop = min(asked.get("last_queue_offset", _MOST) + 1, queue.max_offset)
            parts.append((queue, first, max(stop, first + 1)))
    if len(parts) > _MOST_QUEUES or sum(stop - first for _, first, stop in parts) > _MOST_OF_QUEUES:
        return None
    found: list[int] = []
    for queue, first, stop in parts:
        name, known = (queue.topic, queue.queue_id), len(found)
        for number, message in enumerate(messages_of_queue(store, *name, first, stop), first):
            # An entry may lie in another place than its record's number.
            if (message.topic, message.queue_id) == name and message.queue_offset != number:
                return None
            found.append(message.physical_offset)
        # Others may lead nowhere.
        if len(found) - known != stop - first:
            return None
    return found


def is_whole(store: Store) -> bool:
    """Whether the seal says that no queue and no entry of it is lost."""
    return store.io is None and store._is_sealed  # noqa: SLF001


def has_all_queues(store: Store, asked: Mapping[str, Any], listed: set[tuple[str, int]]) -> bool:
    """Whether no queue that may have a message is lost, as far as seal or table of topics say."""
    if is_whole(store):
        return True
    counts, topics, queue_ids = queue_counts(store), asked.get("topics"), asked.get("queue_ids")
    ends = dict(counts)
    for name, queue_id in listed:
        ends[name] = max(ends.get(name, 0), queue_id + 1)
    return bool(counts) and all(
        (name, queue_id) in listed
        for name, end in ends.items()
        if topics is None or name in topics
        for queue_id in (range(end) if queue_ids is None else queue_ids)
        if 0 <= queue_id < end
    )


def _between(
    asked: dict[str, Any], names: tuple[str | None, str | None], op: str, values: list[Any]
) -> None:
    """Narrows the first and the last value that filters of these names let pass."""
    first, last = names
    if first and values and op in ("Gt", "GtEq", "Eq", "In"):
        asked[first] = _tightest(max, asked.get(first), min(values))
    if last and values and op in ("Lt", "LtEq", "Eq", "In"):
        asked[last] = _tightest(min, asked.get(last), max(values))


def _tightest(pick: Callable[..., Any], *bounds: int | datetime | None) -> Any:  # noqa: ANN401
    return pick((bound for bound in bounds if bound is not None), key=number_of)


def number_of(value: Any) -> int:  # noqa: ANN401
    """A bound as a number, of a time its Unix milliseconds."""
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
