"""``rebuild``: queues and index again, from the log alone."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import click

import mqstore
from mqstore.cli.names import check_topics
from mqstore.cli.options import (
    command,
    flag,
    open_store,
    option,
    store_argument,
    threads_option,
    topics_option,
)
from mqstore.cli.output import Column, Lines, Output, as_document, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.text import count_text, duration_text, escape, size_text

_COLUMNS = columns(
    "topic", "queue_id", Column("entries", right=True), "min_offset", "max_offset", "before"
)
_TOPIC_COLUMNS = columns(
    Column("name", title="TOPIC"),
    Column("queues", right=True),
    "kind",
    Column("was", right=True, title="BEFORE"),
)


@command("rebuild", short_help="Make queues and index again from the log.")
@store_argument
@option(
    "--what",
    None,
    "Only this; queues and index if left out. May be repeated; topics (topics.json) goes alone.",
    type=click.Choice(["consumequeue", "index", "topics"]),
    multiple=True,
)
@topics_option("Only this topic's queues; may be repeated. The index always has all topics.")
@option(
    "--out",
    "DIR",
    "Make them in this new or empty folder; the store is only read.",
    type=click.Path(),
)
@flag("--apply", "Replace those of the store, which are kept aside.")
@threads_option
def rebuild_command(
    output: Output,
    store: str,
    what: tuple[str, ...],
    topics: tuple[str, ...],
    out: str | None,
    apply: bool,
    **options: Any,
) -> int:
    """Rebuild consume queues and index files from the commit log alone, or topics.json.

    Without --apply or --out it only reports the result. Replaced files are kept in the store's
    folder `quarantine`. topics.json is made of the queues and the log: each topic with as many
    queues as are in use; entries that can be read stay.
    """
    if "topics" in what and len(set(what)) > 1:
        raise click.UsageError("--what topics goes alone.")
    if apply and out is not None:
        raise click.UsageError("--apply and --out exclude each other.")
    if topics:
        # Rebuilding may cure what keeps a store from being opened, and refuses these names itself.
        with suppress(mqstore.StoreError), open_store(store, options["config"]) as opened:
            # No message is of a light queue's topic.
            check_topics(opened, [topic for topic in topics if not topic.startswith("%LMQ%")])
    began = time.monotonic()
    with progress("rebuilding" if apply or out else "reading") as advance:
        report = mqstore.rebuild(
            store,
            what=tuple(dict.fromkeys(what)) or ("consumequeue", "index"),
            topics=topics or None,
            out=out,
            dry_run=not apply and out is None,
            progress=advance,
            **options,
        )
    took = time.monotonic() - began
    output.document(report, lambda: _lines(report), rows="queues")
    read = report.log_end - report.log_start
    note(f"read {size_text(read)} of log in {duration_text(took)}")
    for line in _notes(report):
        note(f"mqstore: {line}")
    return 1 if report.damaged or report.refused or report.skipped_ranges else 0


def _lines(report: mqstore.RebuildReport) -> Lines:
    yield f"messages         {count_text(report.messages)}"
    if "index" in report.what:
        yield f"keys             {count_text(report.index_keys)}"
    if report.queues:
        yield ""
        rows = [as_document(queue) | {"before": _before(queue)} for queue in report.queues]
        yield from table_lines(rows, _COLUMNS)
    if report.topics:
        yield ""
        yield from table_lines(report.topics, _TOPIC_COLUMNS)
    yield ""
    if not report.applied:
        yield "nothing was changed; --apply replaces them, --out DIR makes them elsewhere"
    elif report.out is not None:
        yield f"made in {escape(report.out)}"
    elif report.quarantine is not None:
        yield f"replaced; the old ones are in {escape(report.quarantine)}"
    else:
        yield "made; there were none before"


def _before(queue: mqstore.RebuiltQueue) -> str:
    if queue.was is None:
        return "none"
    if queue.was == (queue.min_offset, queue.max_offset):
        return "same span"
    return f"{queue.was[0]} to {queue.was[1]}"


def _notes(report: mqstore.RebuildReport) -> Lines:
    if report.damaged:
        begin, end = report.damaged[0]
        yield (
            f"{count_text(len(report.damaged))} damaged part(s) of the log have no entry, the "
            f"first at physical offset {begin}, {end - begin} bytes: `mqstore verify` lists them"
        )
    if report.skipped_ranges:
        yield (
            f"{count_text(report.skipped_ranges)} damaged part(s) of the log were skipped; a topic "
            "whose messages all lay there is not in the table"
        )
    if report.kept:
        topic, queue_id = report.kept[0]
        yield (
            f"{count_text(len(report.kept))} queue(s) without a message in the log keep their last "
            f"file, such as queue {queue_id} of {escape(topic)}"
        )
    if report.refused:
        yield f"{count_text(report.refused)} entries fit no queue: `mqstore verify` names them"
    if report.left_out:
        yield (
            f"{count_text(report.left_out)} entries of light queues were left out: --config with "
            "enableLmq=true and enableMultiDispatch=true makes them"
        )
