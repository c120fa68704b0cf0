"""``copy`` and ``diff``: a store or a part of it as another store, and two held side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click
import msgspec

import mqstore
from mqstore.cli.message_options import tags_option
from mqstore.cli.names import refusals
from mqstore.cli.options import (
    allow_empty_option,
    begin_end_options,
    config_option,
    open_store,
    output_options,
    read_argument,
    topics_option,
)
from mqstore.cli.output import Column, note, table_lines
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines
from mqstore.text import count_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import CopyReport, Difference, DiffReport, Store, StoredMessage
    from mqstore.cli.output import Output

_QUEUES = (
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("same", count_text, right=True),
    Column("missing", count_text, right=True),
    Column("extra", count_text, right=True),
    Column("different", count_text, right=True),
)
_MESSAGES = (
    Column("kind", title=""),
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("queue_offset", right=True, title="OFFSET"),
    Column("fields", ", ".join, title="WHAT DIFFERS"),
)
_LEFT_AS_IS = (
    Column("topic"),
    Column("messages", count_text, right=True),
    Column("bodies", count_text, right=True),
    Column("properties", " ".join),
)
_LOST = (
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("queue_offset", right=True, title="OFFSET"),
    Column("store_timestamp_ms", time_text, title="STORED"),
    Column("tags"),
    Column("keys", " ".join),
    Column("unique_key", title="UNIQUE KEY"),
)
# More messages than this are for programs.
_MOST_SHOWN = 20


@click.command("copy", short_help="Copy a store or a part of it into a new one.")
@read_argument()
@click.argument("out", type=click.Path())
@topics_option()
@tags_option
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Only messages with this key; repeat --key for several.",
)
@begin_end_options
@click.option("--renumber", is_flag=True, help="Number each queue from 0 on.")
@click.option(
    "--redact",
    metavar="RULES",
    type=click.Path(dir_okay=False),
    help="A TOML file of what takes the place of bodies and properties.",
)
@click.option(
    "--redact-default",
    type=click.Choice(["zeros", "drop"]),
    help="Replace by zeros, or drop, bodies and properties that no rule of --redact replaces.",
)
@allow_empty_option
@config_option
@output_options
def copy_command(
    output: Output,
    store: str,
    out: str,
    topics: tuple[str, ...],
    tags: str | None,
    keys: tuple[str, ...],
    begin_ms: int | None,
    end_ms: int | None,
    renumber: bool,  # noqa: FBT001
    redact: str | None,
    redact_default: Literal["zeros", "drop"] | None,
    allow_empty: bool,  # noqa: FBT001
    config: str | None,
) -> None:
    """Copy a store, or the messages asked for, into the new store OUT, which a broker can serve.

    Configuration and consumer offsets come along. Queue offsets stay; where a message was left out
    between others an empty one stands in for it, unless --renumber closes the gap. A topic that was
    deleted stays deleted, unless --topic names it.
    """
    with refusals(), progress("copying") as advance:
        report = mqstore.copy(
            store,
            out,
            topics=topics or None,
            tags=tags,
            keys=keys or None,
            begin_ms=begin_ms,
            end_ms=end_ms,
            renumber=renumber,
            redact=redact,
            redact_default=redact_default,
            allow_empty=allow_empty,
            progress=advance,
            config=config,
        )
    left = [found._asdict() for found in report.left_as_is]
    document = {**msgspec.to_builtins(report), "left_as_is": left}
    output.document(document, lambda: _copy_lines(report))


def _copy_lines(report: CopyReport) -> Iterator[str]:
    fields = msgspec.to_builtins(report)
    del fields["left_as_is"]
    yield from report_lines(fields)
    if report.left_as_is:
        yield ""
        yield "left as it is, since no rule replaces it:"
        yield from table_lines([found._asdict() for found in report.left_as_is], _LEFT_AS_IS)


@click.command("diff", short_help="Compare the messages of two stores.")
@read_argument("a")
@read_argument("b", has_options=False)
@click.option("--lost", is_flag=True, help="Only list the messages that B lacks, with their keys.")
@config_option
@output_options
def diff_command(output: Output, a: str, b: str, lost: bool, config: str | None) -> int:  # noqa: FBT001
    """Compare two stores queue by queue: what B lacks, has beside, or has with other content.

    Exits with 1 where they differ; with --lost, where B lacks a message or has an empty one that
    stands in for it. Where a message lies in the log makes no difference.
    """
    with progress("comparing", unit="queues") as advance:
        report = mqstore.diff(a, b, progress=advance, config=config)
    if lost:
        with open_store(a, config) as first, open_store(b, config) as second:
            count = output.rows(_lost_rows(first, second, report), _LOST)
        unlisted = sum(queue.missing + queue.extra + queue.different for queue in report.differing)
        if unlisted > len(report.differences):
            note(f"only the first {count_text(len(report.differences))} differences were looked at")
        return int(bool(count or report.missing))
    if output.form == "jsonl":
        output.rows(found._asdict() for found in report.differences)
    else:
        document = {
            **msgspec.to_builtins(report),
            "differing": [queue._asdict() for queue in report.differing],
            "differences": [found._asdict() for found in report.differences],
        }
        output.document(document, lambda: _lines(report))
    return 0 if report.ok else 1


def _lost_rows(first: Store, second: Store, report: DiffReport) -> Iterator[dict[str, object]]:
    """The messages that the second store lacks, as the first has them."""

    def message(store: Store, found: Difference) -> StoredMessage | None:
        read = store.read(found.topic, found.queue_id, found.queue_offset, max_messages=1)
        return read.messages[0] if read.messages else None

    for found in report.differences:
        if found.kind == "extra":
            continue
        if found.kind == "different":
            there = message(second, found)
            if there is None or "MQSTORE_LEFT_OUT" not in there.properties:
                continue
        lost = message(first, found)
        yield {
            "topic": found.topic,
            "queue_id": found.queue_id,
            "queue_offset": found.queue_offset,
            "store_timestamp_ms": None if lost is None else lost.store_timestamp_ms,
            "tags": None if lost is None else lost.tags,
            "keys": None if lost is None else lost.keys,
            "unique_key": None if lost is None else lost.unique_key,
        }


def _lines(report: DiffReport) -> Iterator[str]:
    if report.differing:
        yield from table_lines([queue._asdict() for queue in report.differing], _QUEUES)
        yield ""
        shown = report.differences[:_MOST_SHOWN]
        yield from table_lines([found._asdict() for found in shown], _MESSAGES)
        total = report.missing + report.extra + report.different
        if total > len(shown):
            yield f"... {count_text(total)} in all; --jsonl lists them"
        yield ""
    same = count_text(report.messages)
    if report.ok:
        yield f"all {same} messages in {count_text(report.queues)} queues are the same"
    else:
        yield f"{same} messages are the same"
