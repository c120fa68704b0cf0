"""``tail``: the last messages of a store, and those that come."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from mqstore.cli.follow import follow
from mqstore.cli.message_options import (
    grep_option,
    raw_option,
    tags_option,
    template_option,
    view_options,
)
from mqstore.cli.messages import MessageView, line_of, print_messages
from mqstore.cli.names import check_queue, check_topics, note_nothing
from mqstore.cli.options import (
    flag,
    open_store,
    option,
    queue_option,
    quiet_empty_option,
    read_command,
    topics_option,
)
from mqstore.cli.selection import Selected, Selection
from mqstore.exchange.matching import body_matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqstore import Store, StoredMessage
    from mqstore.cli.output import Output


@read_command("tail")
@flag("-f --follow following", "Go on with what is written.")
@option(
    "-n --limit",
    "COUNT",
    "How many of the messages that are there.",
    type=click.IntRange(min=0),
    default=10,
)
@topics_option()
@queue_option()
@tags_option
@grep_option
@view_options
@template_option
@raw_option()
@quiet_empty_option
def tail_command(
    output: Output,
    store: str,
    config: str | None,
    following: bool,
    view: MessageView,
    template: str | None,
    raw: bool,
    allow_empty: bool,
    **selected: Any,
) -> int:
    """Print the last messages of the log, oldest first.

    With -f also those that a broker or another process writes from now on, until interrupted. The
    store is only read.
    """
    what = Selection(**selected, reverse=True)
    if what.queue_id is not None and not what.topics:
        raise click.UsageError("-q needs -t.")
    if following and output.form == "json":
        raise click.UsageError("-f has no end, and --json is one document; say --jsonl.")
    if following:
        output.pager = None
    show = line_of(view, template, what.grep, raw=raw)
    matches = None if what.grep is None else body_matches(what.grep)

    def put(messages: Iterable[StoredMessage]) -> int:
        printed = print_messages(output, messages, view, show)
        output.flush()
        return printed

    def wanted(message: StoredMessage) -> bool:
        return what.queue_id in {None, message.queue_id} and (matches is None or matches(message))

    with open_store(store, config) as opened:
        if not allow_empty:
            check_topics(opened, what.topics)
            check_queue(opened, what.topics, what.queue_id)
        position = opened.max_physical_offset
        printed = put(_last(opened, what))
        if not following:
            is_empty = not printed and what.limit and not allow_empty
            return note_nothing(store, tags=what.tags, grep=what.grep) if is_empty else 0
        for begin, end in follow(opened, position):
            written = opened.scan(
                start_physical_offset=begin,
                stop_physical_offset=end,
                topics=what.topics or None,
                tags=what.tags,
            )
            put(filter(wanted, written))
    return 0


def _last(store: Store, what: Selection) -> list[StoredMessage]:
    """The newest messages, oldest first."""
    if what.limit == 0:
        return []
    with closing(Selected(store, what)) as found:
        return list(found)[::-1]
