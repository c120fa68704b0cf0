"""Checks names given by a caller against those of a store, and suggests the nearest ones."""

from __future__ import annotations

import difflib
import functools
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.errors import StoreError
from mqstore.store import below, root_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqstore import Store

_LOG = logging.getLogger("mqstore")
# The newest part of the log, whose keys are compared with a key that is not found.
_RECENT_BYTES = 16 << 20
_RECENT_MESSAGES = 5_000

# `$` is not legal in the name of a topic.
_LITE_PREFIX = "%LMQ%$"
_KINDS = (("%LMQ%", "light queue"), ("%RETRY%", "retry"), ("%DLQ%", "dead letter"))


def is_system_topic(topic: str) -> bool:
    """Whether a broker made the topic, for itself or for a group's failed messages."""
    return topic.startswith(("%RETRY%", "%DLQ%")) or _native._is_system_topic(topic)  # noqa: SLF001 - our own


def is_system_group(group: str) -> bool:
    """Whether a consumer group is a broker's own."""
    return _native._is_system_group(group)  # noqa: SLF001 - our own


def broker_of(path: str) -> str:
    """The name of a broker by its store's directory: of ``/data/broker-a/store``, ``broker-a``."""
    parts = [part for part in Path(path).parts if part not in ("store", "/")]
    return parts[-1] if parts else "store"


def lite_names(name: str) -> tuple[str, str] | None:
    """The parent and the lite topic of a queue ``%LMQ%$parent$lite`` of RocketMQ 5.5."""
    parent, separator, lite = name.removeprefix(_LITE_PREFIX).partition("$")
    if not (name.startswith(_LITE_PREFIX) and separator and parent and lite) or "$" in lite:
        return None
    return parent, lite


def kind_of_name(topic: str) -> str | None:
    """Returns the purpose that a topic's name tells; ``None`` for a topic of producers."""
    for prefix, kind in _KINDS:
        if topic.startswith(prefix):
            return "lite topic" if lite_names(topic) else kind
    return "system" if is_system_topic(topic) else None


def message_types(store: Store) -> dict[str, str]:
    """The attribute ``message.type`` of the topics that have it, in lower case."""
    types = {}
    for topic, row in table_rows(store, "topics.json", "topicConfigTable").items():
        given = row.get("attributes") if isinstance(row, dict) else None
        kind = given.get("message.type") if isinstance(given, dict) else None
        if isinstance(kind, str):
            types[topic] = kind.lower()
    return types


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'orders'?"``, or an empty text where no known name is near."""
    known = list(known)
    near = [one for one in known if one.lower() == name.lower() and one != name]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def table_names(store: Store, file: str, table: str) -> set[str]:
    """Returns the names in one of the broker's tables, such as the topics of ``topics.json``."""
    return set(table_rows(store, file, table))


def table_rows(store: Store, file: str, table: str) -> dict[str, object]:
    """Returns one of the broker's tables, empty where a broker reads none."""
    return read_table(store, file, table) or {}


def read_table(store: Store, file: str, table: str) -> dict[str, object] | None:
    """Returns one of the broker's tables as a broker reads it: from the backup where it must.

    ``None`` where neither file nor backup can be read; ``mqstore.verify`` reports it.
    """
    path = below(root_of(store), "config", file)
    try:
        rows = json.loads(_native._load_config_json(path) or "").get(table, {})  # noqa: SLF001 - our own
    except (StoreError, OSError, ValueError, AttributeError):
        return None
    return rows if isinstance(rows, dict) else None


def queue_counts(store: Store) -> dict[str, int]:
    """Returns how many queues for writing ``topics.json`` gives each topic."""
    rows = table_rows(store, "topics.json", "topicConfigTable")
    counts = {n: row.get("writeQueueNums") for n, row in rows.items() if isinstance(row, dict)}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def listed(names: Iterable[str] | None) -> list[str] | None:
    """Names as a list; a text is one name."""
    return None if names is None else [names] if isinstance(names, str) else list(names)


def missing_topics(store: Store, names: Iterable[str]) -> list[str]:
    """Returns a complaint for each topic that neither queues, log nor ``topics.json`` name.

    A deleted topic whose messages are still in the log counts as there. Only a name that the queues
    and the table lack costs a pass over the log.
    """
    known = set(store.topics()) | table_names(store, "topics.json", "topicConfigTable")
    left = set(names) - known
    if left:
        for message in store.scan(topics=sorted(left), on_error="skip", decompress=False):
            left.discard(message.topic)
            if not left:
                break
    return [f"no topic {name!r} in {store.path}{_topic_hint(name, known)}" for name in sorted(left)]


def _topic_hint(name: str, known: set[str]) -> str:
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part in known for part in parts):
        return f"; several topics are {' '.join(f'-t {part}' for part in parts)}, without commas"
    return nearest(name, known)


def missing_keys(store: Store, topics: Iterable[str] | None, keys: Iterable[str]) -> list[str]:
    """Returns a complaint for each key that no message of the topics has; all topics for ``None``.

    The keys of the newest messages are those that a suggestion is taken from.
    """
    searched = store.topics() if topics is None else list(topics)
    missing = [
        key
        for key in keys
        if not any(store.query(topic, key, max_messages=1) for topic in searched)
    ]
    recent = {key for _, key in recent_keys(store, topics)} if missing else set()
    return [f"no message with key {key!r} in {store.path}{nearest(key, recent)}" for key in missing]


def recent_keys(store: Store, topics: Iterable[str] | None = None) -> set[tuple[str, str]]:
    """Returns topic and key of the newest messages, unique keys too: a bounded number of them."""
    start = max(store.max_physical_offset - _RECENT_BYTES, store.min_physical_offset)
    scan = store.scan(start_physical_offset=start, topics=topics, on_error="skip", decompress=False)
    found: set[tuple[str, str]] = set()
    for message in scan:
        found.update((message.topic, key) for key in message.keys)
        if message.unique_key is not None:
            found.add((message.topic, message.unique_key))
        if len(found) > _RECENT_MESSAGES:
            break
    return found


@functools.lru_cache(maxsize=64)
def report_joined(tags: str) -> None:
    """Logs that ``&&`` and a comma join no tags, once for each expression."""
    sign = "&&" if "&&" in tags else "a comma"
    one = " || ".join(part.strip() for part in re.split("&&|,", tags) if part.strip())
    _LOG.warning(
        "tags: expected tags joined by ||, got %r: %s is a part of a tag here, and a message has "
        "one tag; for messages with any of them give %r",
        tags,
        sign,
        one,
    )


def report_topics(path: str, missing: list[str], known: list[str]) -> None:
    """Logs that no queue of a store has these topics, with the nearest names."""
    for name in sorted(missing):
        _LOG.warning("topics: no topic %r in %s%s", name, path, nearest(name, known))
