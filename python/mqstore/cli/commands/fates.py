"""``why`` and ``pending``: where messages are, and what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore.care.pending import resend_command
from mqstore.cli import shared
from mqstore.cli.names import refusals
from mqstore.cli.options import option, read_command
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.text import age_text, count_text, escape, labels, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@read_command("why", short_help="Say why a group has or has not got a message.")
@shared.group
@option("-k --key", "KEY", "The message's key or unique key.")
@option("--id", "ID", "The message's id.")
@option("-t --topic", "TOPIC", "The topic; with -q and -o the message.")
@shared.queue("Queue.")
@option("-o --offset queue_offset", "OFFSET", "Queue offset.")
@option(
    "--tags",
    "EXPRESSION",
    'The group\'s subscription, where the broker kept none: "paid || refunded".',
)
def why_command(output: Output, store: str, **options: Any) -> None:
    """Say where a message is, and why a consumer group has or has not got it.

    The message is given by -k, by --id, or by -t, -q and -o. The answer is one of: taken, waiting,
    filtered by tags, half or rolled back, delayed, in the retry or dead-letter topic, deleted
    unread, below the log. A store knows which entries a group has passed, not which messages its
    program handled.

    Examples:
        mqstore why /data/store -g billing -k order-17
        mqstore why /data/store -g billing -t orders -q 0 -o 1200 --json
    """
    place = [options[name] is not None for name in ("queue_id", "queue_offset", "topic")]
    by_place = any(place[:2])
    if (options["key"] is not None) + (options["id"] is not None) + by_place != 1:
        raise click.UsageError("give one of -k KEY, --id ID, and -t TOPIC -q QUEUE -o OFFSET")
    if by_place and not all(place):
        raise click.UsageError("-t, -q and -o go together")
    with refusals():
        report = mqstore.why(store, **options)
    output.document(report, lambda: _why_lines(report), rows="answers")
    if report.truncated:
        note("more messages have the key; the newest 64 of each topic were taken")


def _why_lines(report: mqstore.WhyReport) -> Lines:
    for number, answer in enumerate(report.answers):
        if number:
            yield ""
        yield from _answer_lines(answer)


def _answer_lines(answer: mqstore.WhyAnswer) -> Lines:
    where = f"{answer.topic}/{answer.queue_id}@{answer.queue_offset}"
    yield escape("  ".join([where, *labels(answer.tags, answer.keys)]))
    yield escape(f"{answer.code}: {answer.text}")
    for place in answer.places:
        parts = [
            f"  {place.physical_offset:>12}  {time_text(place.store_timestamp_ms)}",
            f"{place.topic}/{place.queue_id}@{place.queue_offset}",
        ]
        if place.purpose != "normal":
            parts.append(place.purpose)
        if place.reconsume_times:
            parts.append(f"redelivery {place.reconsume_times}")
        yield escape("  ".join(parts))


_MOST_LINES = 20
_GROUP = ("group", Column("origin_topic", title="FROM TOPIC"))
_OLDEST = Column("oldest_timestamp_ms", time_text, title="OLDEST")
# List, heading, columns; a list that is cut has its length beside it.
_TABLES: tuple[tuple[str, str, Sequence[Column]], ...] = (
    (
        "half",
        "transactions without an end",
        columns(
            "topic",
            "keys",
            Column("unique_key"),
            Column("producer_group", title="PRODUCER"),
            Column("age_ms", age_text, right=True, title="AGE"),
            Column("checks", right=True),
        ),
    ),
    (
        "overdue",
        "messages whose time has passed",
        columns(
            "kind",
            "topic",
            "keys",
            Column("unique_key"),
            Column("deliver_timestamp_ms", time_text, title="DUE"),
            Column("late_ms", age_text, right=True, title="LATE"),
        ),
    ),
    (
        "dead_letters",
        "dead letters by group",
        columns(
            *_GROUP, "messages", _OLDEST, Column("newest_timestamp_ms", time_text, title="NEWEST")
        ),
    ),
    (
        "retries",
        "waiting redeliveries by group",
        columns(
            *_GROUP,
            Column("messages", count_text, right=True, title="WAITING"),
            Column("scheduled", count_text, right=True),
            _OLDEST,
        ),
    ),
)


@read_command("pending", short_help="List messages that wait: half, overdue, dead letters.")
def pending_command(output: Output, store: str, config: str | None) -> int:
    """List messages that wait for something.

    Transactions without an end, delayed messages and timers whose time has passed, dead letters by
    group and origin topic, redeliveries that a group has not got. It reads the broker's own topics
    from where the broker's files say that it goes on, and never writes. Exits with 1 where a part
    of them could not be read.

    Examples:
        mqstore pending /data/store
        mqstore pending /data/store --json | jq .half
    """
    report = mqstore.pending(store, config=config)
    output.document(report, lambda: _pending_lines(report, store), rows="overdue")
    for text in report.unread:
        note(text)
    return int(bool(report.unread))


def _pending_lines(report: mqstore.PendingReport, store: str) -> Lines:
    is_empty = True
    for name, title, shown in _TABLES:
        rows = getattr(report, name)
        count = getattr(report, f"{name}_messages", len(rows))
        if not rows:
            continue
        if not is_empty:
            yield ""
        is_empty = False
        yield f"{title}: {count_text(count)}"
        yield from table_lines(rows[:_MOST_LINES], shown)
        if len(rows) > _MOST_LINES:
            yield f"and {count_text(count - _MOST_LINES)} more; --json lists them"
        if name == "dead_letters":
            yield "to send them back to their group, and to no other:"
            for group in list(dict.fromkeys(row.group for row in rows))[:_MOST_LINES]:
                yield f"  {escape(resend_command(store, group))}"
    if is_empty:
        yield "nothing is pending"
