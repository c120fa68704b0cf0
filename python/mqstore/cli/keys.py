"""Looks for a key in several topics, and says how a search without result was made."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import mqstore
from mqstore._names import nearest, recent_keys
from mqstore.care.key_search import unread_text
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.files.layout import index_files, open_index_files
from mqstore.results import QueryResult
from mqstore.store import root_of
from mqstore.text import count_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqstore import Store, StoredMessage

_MAY_BE_MORE = (
    "there may be more: the log or the index is damaged, which `mqstore verify` names, or the index"
    " in RocksDB answered, which has no messages without a unique key"
)

ID_LENGTHS = {32, 56}
# A longer part of the log that the index lacks is read once for all topics, not for each.
_MOST_BEHIND = 16 << 20
_MOST_COUNTED = 1_000


def may_be_more(result: QueryResult) -> str:
    """Returns what to say of an answer that is not complete, with the parts that were not read."""
    return f"{_MAY_BE_MORE}{unread_text(result.unread)}"


def query(
    store: Store,
    topics: Sequence[str],
    key: str | None,
    *,
    tags: str | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    max_messages: int = 32,
    exact: bool = True,
) -> QueryResult:
    """Returns the messages with a key, unique key, message id or tags in any of the topics.

    Args:
        store: The store.
        topics: The topics; all where empty.
        key: The key, unique key or message id.
        tags: The whole text of the tags, in place of a key.
        begin_ms: First store time that counts.
        end_ms: Last store time that counts.
        max_messages: At most this many, the newest.
        exact: As for ``Store.query``.
    """
    times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": end_ms}
    searched = topics or store.topics()
    if len(searched) > 1 and exact and not _index_covers(store):
        found = _from_log(store, topics, key, tags, max_messages, **times)
    else:
        asked: dict[str, Any] = {
            "tags": tags,
            "max_messages": max_messages,
            "exact": exact,
            **times,
        }
        results = [store.query(topic, key, **asked) for topic in searched]
        found = _merged(results, max_messages)
    if key is None and exact and not found.complete:
        # The store reads no more than the newest gibibyte by itself.
        return _from_log(store, topics, key, tags, max_messages, **times)
    if found or not exact or key is None:
        return found
    message = _by_id(store, key)
    if message is None or (topics and message.topic not in topics):
        return found
    return QueryResult([message], complete=found.complete, unread=found.unread)


def _merged(results: Sequence[QueryResult], most: int) -> QueryResult:
    """The results of several topics as one, newest first."""
    if len(results) == 1:
        return results[0]
    # A message in light queues is found in each of their topics.
    messages = {message.physical_offset: message for result in results for message in result}
    newest = sorted(messages.values(), key=lambda message: -message.physical_offset)
    return QueryResult(
        newest[:most],
        truncated=len(newest) > most or any(result.truncated for result in results),
        rejected_by_hash=sum(result.rejected_by_hash for result in results),
        rejected_by_time=sum(result.rejected_by_time for result in results),
        complete=all(result.complete for result in results),
        unread=sorted({part for result in results for part in result.unread}),
    )


def _index_covers(store: Store) -> bool:
    """Whether the index leaves little of the log to be read beside it."""
    behind = store.max_physical_offset - store.dispatched_offset
    return store.index_usable and bool(index_files(root_of(store))) and behind <= _MOST_BEHIND


def _from_log(
    store: Store,
    topics: Sequence[str],
    key: str | None,
    tags: str | None,
    most: int,
    **times: Any,
) -> QueryResult:
    """Searches the log in one pass, where the index would leave much of it to each topic."""
    scan = store.scan(topics=topics or None, on_error="skip", decompress=False, **times)
    begin = scan.physical_offset
    newest: deque[StoredMessage] = deque(maxlen=most + 1)
    with progress("reading the log") as advance:
        for message in scan:
            advance(scan.physical_offset - begin, scan.stop_physical_offset - begin)
            if _has(message, key, tags):
                newest.append(message)
    messages = list(newest)[::-1]
    return QueryResult(
        messages[:most],
        truncated=len(messages) > most,
        complete=not (scan.skipped_ranges or store._losses),  # noqa: SLF001
        unread=store._losses,  # noqa: SLF001
    )


def _has(message: StoredMessage, key: str | None, tags: str | None) -> bool:
    if key is None:
        return tags == message.tags
    return key == message.unique_key or key in message.keys


def _by_id(store: Store, text: str) -> StoredMessage | None:
    """The message with this id; ``None`` where the text is no id, or that of no message."""
    if len(text) not in ID_LENGTHS:
        return None
    try:
        message = store.get(mqstore.parse_message_id(text).physical_offset)
    except (mqstore.StoreError, ValueError, IndexError, LookupError):
        return None
    return message if message.message_id == text.upper() else None


def index_reach(store: Store) -> dict[str, object]:
    """Returns which part of the log the index covers, for ``--json``."""
    files = index_files(root_of(store))
    reach: dict[str, object] = {"usable": store.index_usable, "files": len(files)}
    if store.index_usable and files:
        for _, file in open_index_files(store, (files[0], files[-1])):
            reach.setdefault("begin_timestamp_ms", file.header.begin_timestamp_ms)
            reach["end_timestamp_ms"] = file.header.end_timestamp_ms
            reach["end_physical_offset"] = file.header.end_physical_offset
    reach["log_begin_physical_offset"] = store.min_physical_offset
    reach["log_end_physical_offset"] = store.max_physical_offset
    return reach


def note_not_found(
    store: Store,
    topics: Sequence[str],
    key: str | None,
    *,
    tags: str | None = None,
    timed: bool = False,
    exact: bool = True,
) -> None:
    """Says that a key or tags were not found, how far the index reaches and what was read instead.

    Args:
        store: The store.
        topics: The topics that were searched; all where empty.
        key: The key.
        tags: The tags, in place of a key.
        timed: Whether only a part of the time was asked for.
        exact: Whether the log was read where the index does not reach.
    """
    where = " or ".join(map(repr, topics)) if topics else f"all {len(store.topics())} topics"
    outside = len(query(store, topics, key, tags=tags, max_messages=_MOST_COUNTED)) if timed else 0
    hint = ""
    sought = f"key {key!r}" if key is not None else f"tags {tags!r}"
    if not outside and key is not None:
        hint = nearest(key, {one for _, one in recent_keys(store, topics or None)})
    note(f"mqstore: no message with {sought} in {where} of {store.path}{hint}")
    if outside:
        more = "or more " if outside == _MOST_COUNTED else ""
        note(f"{count_text(outside)} {more}of its messages are outside of --from and --to")
    reach = index_reach(store)
    begin, end = store.min_physical_offset, store.max_physical_offset
    if "end_timestamp_ms" not in reach:
        why = "index files that do not fit the settings" if reach["files"] else "no index files"
        read = (
            f"the log was read instead, {size_text(end - begin)}" if exact else "nothing was read"
        )
        note(f"there are {why}: {read}")
        return
    first, last = reach["begin_timestamp_ms"], reach["end_timestamp_ms"]
    assert isinstance(first, int)  # noqa: S101 - made above
    assert isinstance(last, int)  # noqa: S101
    note(
        f"the index reaches from {time_text(first)} to {time_text(last)}, its last message begins "
        f"at {reach['end_physical_offset']}; the log ends at {end}"
    )
    behind = max(end - store.dispatched_offset, 0)
    if behind and exact:
        note(f"the last {size_text(behind)} of the log, which the index lacks, were read instead")
