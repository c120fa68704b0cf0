"""``why``: where a message is, and why a consumer group has or has not got it."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore.cli.names import refusals
from mqstore.cli.options import group_option, option, queue_option, read_command
from mqstore.cli.output import Lines, Output, note
from mqstore.cli.units import OFFSET
from mqstore.text import escape, labels, time_text


@read_command("why", short_help="Say why a group has or has not got a message.")
@group_option
@option("-k --key", "KEY", "The message's key or unique key.")
@option("--id", "ID", "The message's id.")
@option("-t --topic", "TOPIC", "The topic; with -q and -o the message.")
@queue_option("Queue.")
@option("-o --offset queue_offset", "OFFSET", "Queue offset.", type=OFFSET)
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
    """
    place = [options[name] is not None for name in ("queue_id", "queue_offset", "topic")]
    by_place = any(place[:2])
    if (options["key"] is not None) + (options["id"] is not None) + by_place != 1:
        raise click.UsageError("give one of -k KEY, --id ID, and -t TOPIC -q QUEUE -o OFFSET")
    if by_place and not all(place):
        raise click.UsageError("-t, -q and -o go together")
    with refusals():
        report = mqstore.why(store, **options)
    output.document(report, lambda: _lines(report), rows="answers")
    if report.truncated:
        note("more messages have the key; the newest 64 of each topic were taken")


def _lines(report: mqstore.WhyReport) -> Lines:
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
