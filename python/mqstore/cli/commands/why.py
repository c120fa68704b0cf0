"""``why``: where a message is, and why a consumer group has or has not got it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

import mqstore
from mqstore.cli.names import refusals
from mqstore.cli.options import config_option, output_options, print_report, read_argument
from mqstore.cli.output import note
from mqstore.text import escape, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import WhyAnswer, WhyReport
    from mqstore.cli.output import Output


@click.command("why", short_help="Say why a group has or has not got a message.")
@read_argument()
@click.option("-g", "--group", required=True, metavar="GROUP", help="The consumer group.")
@click.option("-k", "--key", metavar="KEY", help="The message's key or unique key.")
@click.option("--id", "message_id", metavar="ID", help="The message's id.")
@click.option("-t", "--topic", metavar="TOPIC", help="The topic; with -q and -o the message.")
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0, 2**31 - 1), metavar="QUEUE", help="Queue."
)
@click.option("-o", "--offset", type=click.IntRange(min=0), metavar="OFFSET", help="Queue offset.")
@click.option(
    "--tags",
    metavar="EXPRESSION",
    help='The group\'s subscription, where the broker kept none: "paid || refunded".',
)
@config_option
@output_options
def why_command(
    output: Output,
    store: str,
    group: str,
    key: str | None,
    message_id: str | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    tags: str | None,
    config: str | None,
) -> None:
    """Say where a message is, and why a consumer group has or has not got it.

    The message is given by -k, by --id, or by -t, -q and -o. The answer is one of: taken, waiting,
    filtered by tags, half or rolled back, delayed, in the retry or dead-letter topic, deleted
    unread, below the log. A store knows which entries a group has passed, not which messages its
    program handled.
    """
    by_place = queue_id is not None or offset is not None
    if (key is not None) + (message_id is not None) + by_place != 1:
        raise click.UsageError("give one of -k KEY, --id ID, and -t TOPIC -q QUEUE -o OFFSET")
    if by_place and (topic is None or queue_id is None or offset is None):
        raise click.UsageError("-t, -q and -o go together")
    with refusals():
        report = mqstore.why(
            store,
            group=group,
            topic=topic,
            key=key,
            id=message_id,
            queue_id=queue_id,
            queue_offset=offset,
            tags=tags,
            config=config,
        )
    print_report(output, msgspec.to_builtins(report), "answers", lambda: _lines(report))
    if report.truncated:
        note("more messages have the key; the newest 64 of each topic were taken")


def _lines(report: WhyReport) -> Iterator[str]:
    for number, answer in enumerate(report.answers):
        if number:
            yield ""
        yield from _answer_lines(answer)


def _answer_lines(answer: WhyAnswer) -> Iterator[str]:
    details = [f"{answer.topic}/{answer.queue_id}@{answer.queue_offset}"]
    if answer.tags is not None:
        details.append(f"tags={answer.tags}")
    if answer.keys:
        details.append(f"keys={' '.join(answer.keys)}")
    yield escape("  ".join(details))
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
