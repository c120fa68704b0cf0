"""``topics`` and ``queues``: what there is to read."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore._names import kind_of_name, lite_names, message_types
from mqstore.cli import shared
from mqstore.cli.names import check_topics
from mqstore.cli.options import option, read_command
from mqstore.cli.output import Output, Row, Rows, columns, known, note
from mqstore.cli.progress import progress
from mqstore.files.layout import open_queue
from mqstore.topic import queue_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mqstore import QueueInfo, Store


_OFFSETS = ("min_offset", "max_offset")
_TIMES = ("first_store_timestamp_ms", "last_store_timestamp_ms")

_bytes_option = option(
    "--bytes/--no-bytes with_bytes",
    None,
    "Add up the sizes of the records, which reads every queue entry.",
    default=True,
)


@read_command("topics")
@_bytes_option
def topics_command(output: Output, store: str, config: str | None, with_bytes: bool) -> int:
    """List the topics: type, queues, messages, bytes, time span.

    The type is that of topics.json, or what the name says: a lite topic, a light queue, retries.

    Exits with 1 where the files of a queue are damaged, so that bytes cannot be added up.

    Examples:
        mqstore topics /data/store
        mqstore topics /data/store --no-bytes
    """
    damaged: list[str] = []
    shown = columns("topic", "type", "queues", "messages", *["bytes"] * with_bytes, *_TIMES)
    with mqstore.open(store, config=config) as opened, _progress() as advance:
        rows = topic_rows(opened, damaged, with_bytes=with_bytes, advance=advance)
        output.rows(rows, shown)
    return _report_damaged(damaged)


@read_command("queues")
@shared.topics()
@_bytes_option
def queues_command(
    output: Output, store: str, topics: tuple[str, ...], config: str | None, with_bytes: bool
) -> int:
    """List the queues: offsets, messages, bytes, time span.

    Exits with 1 where the files of a queue are damaged, so that bytes cannot be added up.

    Examples:
        mqstore queues /data/store -t orders
        mqstore queues /data/store --json
    """
    damaged: list[str] = []
    counts = ("messages", *["bytes"] * with_bytes)
    shown = columns("topic", "queue_id", "kind", *_OFFSETS, *counts, *_TIMES)
    with mqstore.open(store, config=config) as opened, _progress() as advance:
        check_topics(opened, topics)
        rows = queue_rows(opened, topics, damaged, with_bytes=with_bytes, advance=advance)
        output.rows(rows, shown)
    return _report_damaged(damaged)


def _progress() -> AbstractContextManager[Callable[[int, int], None]]:
    return progress("reading queues", unit="entries", beside_output=True)


def _report_damaged(damaged: list[str]) -> int:
    """Says what is damaged, behind what could be listed; the exit code."""
    for text in damaged:
        note(f"mqstore: {text}")
    return int(bool(damaged))


def topic_rows(
    store: Store,
    damaged: list[str],
    *,
    with_bytes: bool,
    advance: Callable[[int, int], object] = lambda _done, _total: None,
) -> Rows:
    """A row for each topic, as ``mqstore topics --json`` lists it."""
    rows = queue_rows(store, (), damaged, with_bytes=with_bytes, advance=advance)
    types = message_types(store)
    by_topic = groupby(rows, itemgetter("topic"))
    return (_topic_row(topic, list(queues), types) for topic, queues in by_topic)


def queue_rows(
    store: Store,
    topics: tuple[str, ...],
    damaged: list[str],
    *,
    with_bytes: bool,
    advance: Callable[[int, int], object] = lambda _done, _total: None,
) -> Rows:
    """A row for each queue, as ``mqstore queues --json`` lists it.

    Args:
        store: The store.
        topics: Only these; empty is all.
        damaged: Gets a sentence for each queue whose entries cannot be read.
        with_bytes: Whether bytes of records are added up.
        advance: Called with entries read, and entries in all.
    """
    queues = [queue for queue in store.queues() if not topics or queue.topic in topics]
    if not with_bytes:
        yield from (_queue_row(queue) for queue in queues)
        return
    entries = sum(queue.max_offset - queue.min_offset for queue in queues)
    read = 0
    for queue in queues:
        try:
            size: int | None = queue_bytes(store, queue)
        except mqstore.CorruptionError as error:
            size = None
            damaged.append(str(error))
        yield _queue_row(queue) | {"bytes": size}
        read += queue.max_offset - queue.min_offset
        advance(read, entries)


def _queue_row(queue: QueueInfo) -> Row:
    row = {name: getattr(queue, name) for name in ("topic", "queue_id", "kind", *_OFFSETS)}
    row["messages"] = queue.max_offset - queue.min_offset
    return row | {name: getattr(queue, name) for name in _TIMES} | _lite(queue.topic)


def _lite(name: str) -> Row:
    lite = lite_names(name)
    return {} if lite is None else {"parent_topic": lite[0], "lite_topic": lite[1]}


def _topic_row(topic: str, queues: list[Row], types: dict[str, str]) -> Row:
    row = {
        "topic": topic,
        "type": types.get(topic) or kind_of_name(topic),
        **_lite(topic),
        "queues": len(queues),
        "messages": sum(queue["messages"] for queue in queues),
    }
    for name, choose in zip(_TIMES, (min, max), strict=True):
        row[name] = choose(known(queue[name] for queue in queues), default=None)
    if "bytes" in queues[0]:
        sizes = [queue["bytes"] for queue in queues]
        row["bytes"] = None if None in sizes else sum(sizes)
    return row


def find_queue(store: Store, topic: str, queue_id: int) -> QueueInfo:
    """The queue of that name.

    Raises:
        click.ClickException: There is none.
    """
    check_topics(store, [topic], queue_id)
    if (queue := queue_of(store, topic, queue_id)) is not None:
        return queue
    raise click.ClickException(f"no queue {queue_id} of topic {topic!r} in {store.path}")


def queue_bytes(store: Store, queue: QueueInfo) -> int:
    """Sizes of the records that a queue's files lead to, together."""
    files = open_queue(store, queue)
    if files is None:
        return 0
    entries = files.entries(queue.min_offset, queue.max_offset)
    return sum(entry.store_size for entry in entries)
