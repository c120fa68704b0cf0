"""``topics`` and ``queues``: what there is to read."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore._names import kind_of_name, lite_names, message_types
from mqstore.cli.names import check_topics
from mqstore.cli.options import (
    config_option,
    open_store,
    output_options,
    read_argument,
    topics_option,
)
from mqstore.cli.output import Column, note
from mqstore.cli.progress import progress
from mqstore.cli.structures import queue_bytes
from mqstore.text import count_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mqstore import QueueInfo, Store
    from mqstore.cli.output import Output

_TIMES = (
    Column("first_store_timestamp_ms", time_text, title="FIRST"),
    Column("last_store_timestamp_ms", time_text, title="LAST"),
)

_bytes_option = click.option(
    "--bytes/--no-bytes",
    "with_bytes",
    default=True,
    show_default=True,
    help="Add up the sizes of the records, which reads every queue entry.",
)


@click.command("topics")
@read_argument()
@config_option
@_bytes_option
@output_options
def topics_command(output: Output, store: str, config: str | None, with_bytes: bool) -> int:  # noqa: FBT001
    """List the topics: type, queues, messages, bytes, time span.

    The type is that of topics.json, or what the name says: a lite topic, a light queue, retries.

    Exits with 1 where the files of a queue are damaged, so that bytes cannot be added up.
    """
    damaged: list[str] = []
    with open_store(store, config) as opened, _progress() as advance:
        output.rows(
            topic_rows(opened, damaged, with_bytes=with_bytes, advance=advance),
            (
                Column("topic"),
                Column("type"),
                Column("queues", count_text, right=True),
                Column("messages", count_text, right=True),
                *_bytes_columns(with_bytes=with_bytes),
                *_TIMES,
            ),
        )
    return _report_damaged(damaged)


@click.command("queues")
@read_argument()
@topics_option()
@config_option
@_bytes_option
@output_options
def queues_command(
    output: Output,
    store: str,
    topics: tuple[str, ...],
    config: str | None,
    with_bytes: bool,  # noqa: FBT001
) -> int:
    """List the queues: offsets, messages, bytes, time span.

    Exits with 1 where the files of a queue are damaged, so that bytes cannot be added up.
    """
    damaged: list[str] = []
    with open_store(store, config) as opened, _progress() as advance:
        check_topics(opened, topics)
        output.rows(
            queue_rows(opened, topics, damaged, with_bytes=with_bytes, advance=advance),
            (
                Column("topic"),
                Column("queue_id", right=True, title="QUEUE"),
                Column("kind"),
                Column("min_offset", right=True, title="MIN"),
                Column("max_offset", right=True, title="MAX"),
                Column("messages", count_text, right=True),
                *_bytes_columns(with_bytes=with_bytes),
                *_TIMES,
            ),
        )
    return _report_damaged(damaged)


def _progress() -> AbstractContextManager[Callable[[int, int], None]]:
    return progress("reading queues", unit="entries", beside_output=True)


def _report_damaged(damaged: list[str]) -> int:
    """Says what is damaged, behind what could be listed; the exit code."""
    for text in damaged:
        note(f"mqstore: {text}")
    return int(bool(damaged))


def _bytes_columns(*, with_bytes: bool) -> tuple[Column, ...]:
    return (Column("bytes", size_text, right=True),) if with_bytes else ()


def _topic_of(row: dict[str, object]) -> str:
    return str(row["topic"])


def topic_rows(
    store: Store,
    damaged: list[str],
    *,
    with_bytes: bool,
    advance: Callable[[int, int], object] = lambda _done, _total: None,
) -> Iterator[dict[str, object]]:
    """A row for each topic, as ``mqstore topics --json`` lists it."""
    rows = queue_rows(store, (), damaged, with_bytes=with_bytes, advance=advance)
    types = message_types(store)
    return (_topic_row(topic, list(queues), types) for topic, queues in groupby(rows, _topic_of))


def queue_rows(
    store: Store,
    topics: tuple[str, ...],
    damaged: list[str],
    *,
    with_bytes: bool,
    advance: Callable[[int, int], object] = lambda _done, _total: None,
) -> Iterator[dict[str, object]]:
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


def _queue_row(queue: QueueInfo) -> dict[str, object]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "kind": queue.kind,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "messages": queue.max_offset - queue.min_offset,
        "first_store_timestamp_ms": queue.first_store_timestamp_ms,
        "last_store_timestamp_ms": queue.last_store_timestamp_ms,
        **_lite(queue.topic),
    }


def _lite(name: str) -> dict[str, object]:
    lite = lite_names(name)
    return {} if lite is None else {"parent_topic": lite[0], "lite_topic": lite[1]}


def _topic_row(
    topic: str, queues: list[dict[str, object]], types: dict[str, str]
) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": topic,
        "type": types.get(topic) or kind_of_name(topic),
        **_lite(topic),
        "queues": len(queues),
        "messages": sum(_numbers(queues, "messages")),
        "first_store_timestamp_ms": _least(min, _numbers(queues, "first_store_timestamp_ms")),
        "last_store_timestamp_ms": _least(max, _numbers(queues, "last_store_timestamp_ms")),
    }
    if "bytes" in queues[0]:
        sizes = _numbers(queues, "bytes")
        row["bytes"] = sum(sizes) if len(sizes) == len(queues) else None
    return row


def _numbers(rows: list[dict[str, object]], name: str) -> list[int]:
    return [value for row in rows if isinstance(value := row[name], int)]


def _least(choose: Callable[[list[int]], int], numbers: list[int]) -> int | None:
    return choose(numbers) if numbers else None
