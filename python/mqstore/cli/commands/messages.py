"""``cat``, ``get``, ``query``, ``at``: the messages, by place, by key, by time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from mqstore.cli.message_options import (
    body_option,
    grep_option,
    preview_option,
    raw_option,
    refuse_on_terminal,
    tags_option,
    template_option,
)
from mqstore.cli.messages import MessageView, Template, print_messages
from mqstore.cli.options import (
    begin_end_options,
    config_option,
    limit_option,
    open_store,
    output_options,
    queue_option,
    store_argument,
    topic_option,
)
from mqstore.cli.output import Column, in_colour, note
from mqstore.cli.selection import Selection, select
from mqstore.cli.structures import find_queue
from mqstore.cli.units import TIME
from mqstore.text import time_text

if TYPE_CHECKING:
    import re
    from typing import Any

    from mqstore.cli.messages import BodyForm
    from mqstore.cli.output import Output

_ID_LENGTHS = {32, 56}


@click.command("cat")
@store_argument
@topic_option(required=False)
@queue_option(required=False)
@click.option(
    "-o",
    "--offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Begin here: a queue offset with -q, else a physical offset.",
)
@limit_option(None, "messages")
@begin_end_options
@tags_option
@click.option("--key", metavar="KEY", help="Only this key, through the index; needs -t.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@grep_option
@body_option
@preview_option
@template_option
@click.option("--skip-damage", is_flag=True, help="Go on behind damage, count it, and exit with 1.")
@raw_option
@config_option
@output_options
def cat_command(output: Output, /, **options: Any) -> int:  # noqa: ANN401 - checked by click
    """Print messages.

    Without options that is every message of the log in order, those of system topics too. With -t
    and -q the queue is read, with --key the index.
    """
    return _cat(output, **options)


def _cat(
    output: Output,
    *,
    store: str,
    config: str | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    limit: int | None,
    begin_ms: int | None,
    end_ms: int | None,
    tags: str | None,
    key: str | None,
    reverse: bool,
    grep: re.Pattern[bytes] | None,
    body: BodyForm,
    preview: int,
    template: str | None,
    skip_damage: bool,
    raw: bool,
) -> int:
    if (queue_id is not None or key is not None) and topic is None:
        raise click.UsageError("-q and --key need -t.")
    if key is not None and (queue_id is not None or offset is not None or tags is not None):
        raise click.UsageError("--key goes with -t, -n, --from and --to only.")
    view = MessageView(body, preview=preview, raw=raw, highlight=grep if in_colour() else None)
    show = view.line if template is None else Template(template, view).line
    selection = Selection(
        topic=topic,
        queue_id=queue_id,
        offset=offset,
        limit=limit,
        begin_ms=begin_ms,
        end_ms=end_ms,
        tags=tags,
        key=key,
        reverse=reverse,
        grep=grep,
        skip_damage=skip_damage,
    )
    with open_store(store, config) as opened, closing(select(opened, selection)) as found:
        print_messages(output, found, view, show)
        if found.skipped_ranges:
            note(
                f"skipped {found.skipped_ranges} damaged ranges, {found.skipped_bytes} bytes; "
                "`mqstore verify` lists them"
            )
            return 1
    return 0


@click.command("get")
@store_argument
@click.argument("which", metavar="ID|OFFSET")
@body_option
@preview_option
@click.option(
    "--raw",
    is_flag=True,
    callback=refuse_on_terminal,
    help="The body alone, as bytes; not to a terminal.",
)
@config_option
@output_options
def get_command(
    output: Output,
    store: str,
    which: str,
    body: BodyForm,
    preview: int,
    raw: bool,  # noqa: FBT001
    config: str | None,
) -> None:
    """Print one message, by its id or by its physical offset."""
    view = MessageView(body, preview=preview)
    with open_store(store, config) as opened:
        if which.isdecimal() and which.isascii() and len(which) not in _ID_LENGTHS:
            offset = int(which)
            if offset >= 2**63:
                raise click.BadParameter(f"{which} does not fit into 64 bits")
            message = opened.get(offset)
        else:
            message = opened.get_by_id(which)
        if raw:
            output.raw(message.body)
        else:
            output.document(view.document(message), lambda: view.page(message))


@click.command("query")
@store_argument
@topic_option(required=True)
@click.option("-k", "--key", required=True, metavar="KEY", help="A key or a unique key.")
@begin_end_options
@limit_option(32, "messages")
@click.option(
    "--rocketmq",
    is_flag=True,
    help="RocketMQ's own answer: by the hash alone, at most 64, in its order.",
)
@body_option
@preview_option
@config_option
@output_options
def query_command(
    output: Output,
    store: str,
    topic: str,
    key: str,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
    rocketmq: bool,  # noqa: FBT001
    body: BodyForm,
    preview: int,
    config: str | None,
) -> None:
    """Print the messages of a key, newest first."""
    view = MessageView(body, preview=preview)
    with open_store(store, config) as opened:
        result = opened.query(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_messages=limit, exact=not rocketmq
        )
        counts = {
            "truncated": result.truncated,
            "rejected_by_hash": result.rejected_by_hash,
            "rejected_by_time": result.rejected_by_time,
            "complete": result.complete,
        }
        if output.form == "json":
            documents = [view.document(message) for message in result]
            output.document({"messages": documents, **counts}, tuple)
        else:
            print_messages(output, result, view, view.line)
    if result.truncated:
        note(f"there are more; -n {limit} was the limit")
    if result.rejected_by_hash:
        note(f"{result.rejected_by_hash} of another key with the same hash left out")
    if result.rejected_by_time:
        note(f"{result.rejected_by_time} outside of --from and --to left out")
    if not result.complete:
        note("there may be more where the log or the index is damaged; `mqstore verify` names it")


# A relative TIME begins with a sign and is no option.
@click.command(
    "at",
    short_help="Print the queue offset at a store time.",
    context_settings={"ignore_unknown_options": True},
)
@store_argument
@topic_option(required=True)
@queue_option(required=False)
@click.argument("time", type=TIME)
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="lower: the first message not before TIME; upper: the last not after it.",
)
@config_option
@output_options
def at_command(
    output: Output,
    store: str,
    topic: str,
    queue_id: int | None,
    time: int,
    boundary: str,
    config: str | None,
) -> None:
    """Print the queue offset at a store time; without -q of each queue."""
    upper = boundary == "upper"
    with open_store(store, config) as opened:
        if queue_id is None:
            queues = opened.queues(topic)
            if not queues:
                raise click.ClickException(f"no topic {topic!r} in {opened.path}")
        else:
            queues = [find_queue(opened, topic, queue_id)]
        rows = [
            {
                "topic": topic,
                "queue_id": queue.queue_id,
                "timestamp_ms": time,
                "boundary": boundary,
                "queue_offset": opened.offset_at(
                    topic, queue.queue_id, time, boundary="upper" if upper else "lower"
                ),
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
            }
            for queue in queues
        ]
    output.rows(
        rows,
        (
            Column("topic"),
            Column("queue_id", right=True, title="QUEUE"),
            Column("timestamp_ms", time_text, title="TIME"),
            Column("boundary"),
            Column("queue_offset", right=True, title="OFFSET"),
            Column("min_offset", right=True, title="MIN"),
            Column("max_offset", right=True, title="MAX"),
        ),
    )
