"""``cat``, ``get``, ``query``, ``at``: the messages, by place, by key, by time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from mqstore.cli.keys import index_reach, may_be_more, note_not_found, query
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
from mqstore.cli.names import check_queue, check_topics, note_nothing
from mqstore.cli.options import (
    begin_end_options,
    config_option,
    limit_option,
    open_store,
    output_options,
    queue_option,
    quiet_empty_option,
    read_argument,
    topics_option,
)
from mqstore.cli.output import Column, in_colour, note
from mqstore.cli.selection import Selection, select
from mqstore.cli.units import TIME
from mqstore.errors import CorruptionError, expected_got
from mqstore.text import is_relative, time_text

if TYPE_CHECKING:
    import re
    from typing import Any

    from mqstore.cli.bodies import Decoder
    from mqstore.cli.output import Output
    from mqstore.results.documents import BodyForm

_ID_LENGTHS = {32, 56}


@click.command("cat")
@read_argument()
@topics_option()
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
@click.option("--key", metavar="KEY", help="Only this key or unique key, through the index.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@grep_option
@body_option
@preview_option
@template_option
@click.option("--skip-damage", is_flag=True, help="Go on behind damage, count it, and exit with 1.")
@raw_option
@quiet_empty_option
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
    topics: tuple[str, ...],
    queue_id: int | None,
    offset: int | None,
    limit: int | None,
    begin_ms: int | None,
    end_ms: int | None,
    tags: str | None,
    key: str | None,
    reverse: bool,
    grep: re.Pattern[bytes] | None,
    body: BodyForm | Decoder,
    preview: int,
    template: str | None,
    skip_damage: bool,
    raw: bool,
    allow_empty: bool,
) -> int:
    if queue_id is not None and not topics:
        raise click.UsageError("-q needs -t.")
    if queue_id is not None and offset is not None and len(topics) > 1:
        raise click.UsageError("-o with -q needs one -t.")
    if key is not None and (queue_id is not None or offset is not None or tags is not None):
        raise click.UsageError("--key goes with -t, -n, --from and --to only.")
    timed = begin_ms is not None or end_ms is not None
    view = MessageView(body, preview=preview, raw=raw, highlight=grep if in_colour() else None)
    show = view.line if template is None else Template(template, view).line
    selection = Selection(
        topics=topics,
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
        if not allow_empty:
            check_topics(opened, topics)
            if queue_id is not None:
                check_queue(opened, topics, queue_id)
        printed = print_messages(output, found, view, show)
        if end_ms is None and (limit is None or printed < limit):
            try:
                opened._check_end(topics or None, queue_id)  # noqa: SLF001
            except CorruptionError as error:
                if not skip_damage:
                    raise
                note(str(error))
                return 1
        if key is not None and not printed and not allow_empty:
            note_not_found(opened, topics, key, timed=timed)
            return 1
        if found.skipped_ranges:
            note(
                f"skipped {found.skipped_ranges} damaged ranges, {found.skipped_bytes} bytes; "
                "`mqstore verify` lists them"
            )
            return 1
        if not printed and not allow_empty:
            bounds = {"from": begin_ms, "to": end_ms, "offset": offset}
            return note_nothing(store, tags=tags, grep=grep, **bounds)
    return 0


@click.command("get")
@read_argument()
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
    body: BodyForm | Decoder,
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
                raise click.BadParameter(expected_got("an offset below 2**63", which))
            message = opened.get(offset)
        else:
            message = opened.get_by_id(which)
        if raw:
            output.raw(message.body)
        else:
            output.document(view.document(message), lambda: view.page(message))


@click.command("query")
@read_argument()
@topics_option()
@click.option("-k", "--key", metavar="KEY", help="A key, a unique key or a message id.")
@click.option(
    "--tags", metavar="TAGS", help="The whole text of the tags, as RocketMQ 5.4 and later index it."
)
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
    topics: tuple[str, ...],
    key: str | None,
    tags: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
    rocketmq: bool,  # noqa: FBT001
    body: BodyForm | Decoder,
    preview: int,
    config: str | None,
) -> int:
    """Print the messages of a key or of tags, newest first; without -t those of every topic.

    Exits with 1 where there are none, and says how far the index reaches.
    """
    if (key is None) == (tags is None):
        raise click.UsageError("give either -k KEY or --tags TAGS")
    timed = begin_ms is not None or end_ms is not None
    view = MessageView(body, preview=preview)
    with open_store(store, config) as opened:
        check_topics(opened, topics)
        result = query(
            opened,
            topics,
            key,
            tags=tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            max_messages=limit,
            exact=not rocketmq,
        )
        counts = {
            "truncated": result.truncated,
            "rejected_by_hash": result.rejected_by_hash,
            "rejected_by_time": result.rejected_by_time,
            "complete": result.complete,
            "unread": [list(part) for part in result.unread],
        }
        if output.form == "json":
            documents = [view.document(message) for message in result]
            document = {"messages": documents, **counts, "index": index_reach(opened)}
            output.document(document, tuple)
        else:
            print_messages(output, result, view, view.line)
        if not result:
            note_not_found(opened, topics, key, tags=tags, timed=timed, exact=not rocketmq)
    if result.truncated:
        note(f"there are more; -n {limit} was the limit")
    if result.rejected_by_hash:
        note(f"{result.rejected_by_hash} of another key with the same hash left out")
    if result.rejected_by_time and result:
        note(f"{result.rejected_by_time} outside of --from and --to left out")
    if not result.complete:
        note(may_be_more(result))
    return 0 if result else 1


class _WithTime(click.Command):
    """A command with an argument TIME; ``-2h`` is one, and no options ``-2`` and ``-h``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if is_relative(arg) else arg for arg in args])


@click.command("at", cls=_WithTime, short_help="Print the queue offset at a store time.")
@read_argument()
@topics_option(required=True)
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
    topics: tuple[str, ...],
    queue_id: int | None,
    time: int,
    boundary: str,
    config: str | None,
) -> None:
    """Print the queue offset at a store time; without -q of each queue."""
    upper = boundary == "upper"
    with open_store(store, config) as opened:
        check_topics(opened, topics)
        if queue_id is not None:
            check_queue(opened, topics, queue_id)
        queues = [
            queue
            for topic in topics
            for queue in opened.queues(topic)
            if queue_id in {None, queue.queue_id}
        ]
        rows = [
            {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "timestamp_ms": time,
                "boundary": boundary,
                "queue_offset": opened.offset_at(
                    queue.topic, queue.queue_id, time, boundary="upper" if upper else "lower"
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
