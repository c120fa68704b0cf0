"""``copy`` and ``diff``: a store or a part of it as another store, and two held side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore.cli.message_options import tags_option
from mqstore.cli.names import refusals
from mqstore.cli.options import (
    allow_empty_option,
    begin_end_options,
    command,
    flag,
    open_store,
    option,
    read_argument,
    read_command,
    topics_option,
)
from mqstore.cli.output import (
    Column,
    Lines,
    Output,
    Rows,
    as_document,
    columns,
    note,
    table_lines,
)
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines
from mqstore.cli.units import FILE
from mqstore.text import count_text

if TYPE_CHECKING:
    from mqstore import Difference, Store, StoredMessage

_QUEUES = columns(
    "topic",
    "queue_id",
    *(Column(name, count_text, right=True) for name in ("same", "missing", "extra", "different")),
)
_MESSAGES = columns(
    Column("kind", title=""),
    "topic",
    "queue_id",
    "queue_offset",
    Column("fields", ", ".join, title="WHAT DIFFERS"),
)
_LEFT_AS_IS = columns(
    "topic", "messages", Column("bodies", count_text, right=True), Column("properties", " ".join)
)
_LOST = columns(
    "topic", "queue_id", "queue_offset", "store_timestamp_ms", "tags", "keys", "unique_key"
)
# Fields of a lost message, if the first store has it.
_FOUND = ("store_timestamp_ms", "tags", "keys", "unique_key")
# More messages than this are for programs.
_MOST_SHOWN = 20


@read_command("copy", short_help="Copy a store or a part of it into a new one.")
@click.argument("out", type=click.Path())
@topics_option()
@tags_option
@option(
    "--key keys",
    "KEY",
    "Only messages with this key; repeat --key for several.",
    multiple=True,
)
@begin_end_options
@flag("--renumber", "Number each queue from 0 on.")
@option(
    "--redact", "RULES", "A TOML file of what takes the place of bodies and properties.", type=FILE
)
@option(
    "--redact-default",
    None,
    "Replace by zeros, or drop, bodies and properties that no rule of --redact replaces.",
    type=click.Choice(["zeros", "drop"]),
)
@allow_empty_option
def copy_command(
    output: Output,
    store: str,
    out: str,
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    **options: Any,
) -> None:
    """Copy a store, or the messages asked for, into the new store OUT, which a broker can serve.

    Configuration and consumer offsets come along. Queue offsets stay; where a message was left out
    between others an empty one stands in for it, unless --renumber closes the gap. A topic that was
    deleted stays deleted, unless --topic names it.
    """
    with refusals(), progress("copying") as advance:
        report = mqstore.copy(
            store, out, topics=topics or None, keys=keys or None, progress=advance, **options
        )
    output.document(report, lambda: _copy_lines(report))


def _copy_lines(report: mqstore.CopyReport) -> Lines:
    fields = as_document(report)
    left_as_is = fields.pop("left_as_is")
    yield from report_lines(fields)
    if left_as_is:
        yield ""
        yield "left as it is, since no rule replaces it:"
        yield from table_lines(left_as_is, _LEFT_AS_IS)


@command("diff", short_help="Compare the messages of two stores.")
@read_argument("a")
@read_argument("b", has_options=False)
@flag("--lost", "Only list the messages that B lacks, with their keys.")
def diff_command(output: Output, a: str, b: str, lost: bool, config: str | None) -> int:
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
    output.document(report, lambda: _lines(report), rows="differences")
    return int(not report.ok)


def _lost_rows(first: Store, second: Store, report: mqstore.DiffReport) -> Rows:
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
            **{name: getattr(lost, name, None) for name in _FOUND},
        }


def _lines(report: mqstore.DiffReport) -> Lines:
    if report.differing:
        yield from table_lines(report.differing, _QUEUES)
        yield ""
        shown = report.differences[:_MOST_SHOWN]
        yield from table_lines(shown, _MESSAGES)
        total = report.missing + report.extra + report.different
        if total > len(shown):
            yield f"... {count_text(total)} in all; --jsonl lists them"
        yield ""
    same = count_text(report.messages)
    if report.ok:
        yield f"all {same} messages in {count_text(report.queues)} queues are the same"
    else:
        yield f"{same} messages are the same"
