"""``tail``: the last messages of a store, and those that come."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from mqstore.cli.follow import follow
from mqstore.cli.message_options import (
    body_option,
    grep_option,
    preview_option,
    raw_option,
    tags_option,
    template_option,
)
from mqstore.cli.messages import MessageView, Template, print_messages
from mqstore.cli.names import check_queue, check_topics, note_nothing
from mqstore.cli.options import (
    config_option,
    open_store,
    output_options,
    queue_option,
    quiet_empty_option,
    read_argument,
    topics_option,
)
from mqstore.cli.output import in_colour
from mqstore.cli.selection import Selection, select
from mqstore.exchange.matching import body_matches

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable
    from typing import Any

    from mqstore import Store, StoredMessage
    from mqstore.cli.bodies import Decoder
    from mqstore.cli.output import Output
    from mqstore.results.documents import BodyForm


@click.command("tail")
@read_argument()
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what is written.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="COUNT",
    help="How many of the messages that are there.",
)
@topics_option()
@queue_option(required=False)
@tags_option
@grep_option
@body_option
@preview_option
@template_option
@raw_option
@quiet_empty_option
@config_option
@output_options
def tail_command(output: Output, /, **options: Any) -> int:  # noqa: ANN401 - checked by click
    """Print the last messages of the log, oldest first.

    With -f also those that a broker or another process writes from now on, until interrupted. The
    store is only read.
    """
    return _tail(output, **options)


def _tail(
    output: Output,
    *,
    store: str,
    config: str | None,
    following: bool,
    limit: int,
    topics: tuple[str, ...],
    queue_id: int | None,
    tags: str | None,
    grep: re.Pattern[bytes] | None,
    allow_empty: bool,
    body: BodyForm | Decoder,
    preview: int,
    template: str | None,
    raw: bool,
) -> int:
    if queue_id is not None and not topics:
        raise click.UsageError("-q needs -t.")
    if following and output.form == "json":
        raise click.UsageError("-f has no end, and --json is one document; say --jsonl.")
    if following:
        output.pager = None
    view = MessageView(body, preview=preview, raw=raw, highlight=grep if in_colour() else None)
    show = view.line if template is None else Template(template, view).line

    matches = None if grep is None else body_matches(grep)

    def put(messages: Iterable[StoredMessage]) -> int:
        printed = print_messages(output, messages, view, show)
        output.flush()
        return printed

    def wanted(message: StoredMessage) -> bool:
        return queue_id in {None, message.queue_id} and (matches is None or matches(message))

    with open_store(store, config) as opened:
        if not allow_empty:
            check_topics(opened, topics)
            if queue_id is not None:
                check_queue(opened, topics, queue_id)
        position = opened.max_physical_offset
        printed = put(_last(opened, limit, topics, queue_id, tags, grep))
        if not following:
            is_empty = not printed and limit and not allow_empty
            return note_nothing(store, tags=tags, grep=grep) if is_empty else 0
        for begin, end in follow(opened, position):
            written = opened.scan(
                start_physical_offset=begin,
                stop_physical_offset=end,
                topics=topics or None,
                tags=tags,
            )
            put(filter(wanted, written))
    return 0


def _last(
    store: Store,
    limit: int,
    topics: tuple[str, ...],
    queue_id: int | None,
    tags: str | None,
    grep: re.Pattern[bytes] | None,
) -> list[StoredMessage]:
    """The newest messages, oldest first."""
    if limit == 0:
        return []
    newest = Selection(
        topics=topics, queue_id=queue_id, tags=tags, grep=grep, limit=limit, reverse=True
    )
    with closing(select(store, newest)) as found:
        return list(found)[::-1]
