"""``cat``, ``tail``, ``get``, ``query``, ``at``: the messages, by place, by key, by time."""

from __future__ import annotations

import select
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import click

import mqstore
from mqstore.cli import keys, shared
from mqstore.cli.message_options import raw_option, template_option, view_options
from mqstore.cli.messages import MessageView, line_of, note_skipped, print_messages
from mqstore.cli.names import check_topics, note_nothing
from mqstore.cli.options import TIME, flag, option, read_command
from mqstore.cli.output import Column, Output, OutputClosedError, columns, note
from mqstore.errors import CorruptionError, StoreIOError, expected_got
from mqstore.exchange.matching import body_matches
from mqstore.store import below, root_of
from mqstore.text import is_relative, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import Store, StoredMessage


_OFFSETS = columns(
    "topic",
    "queue_id",
    Column("timestamp_ms", time_text, title="TIME"),
    "boundary",
    "queue_offset",
    "min_offset",
    "max_offset",
)
# Fields of the answer of `query`, beside its messages.
_COUNTS = ("truncated", "rejected_by_hash", "rejected_by_time", "complete", "unread")


@read_command("cat")
@shared.topics()
@shared.queue()
@option("-o --offset", "OFFSET", "Begin here: a queue offset with -q, else a physical offset.")
@shared.limit(None, "messages")
@shared.begin_end
@shared.tags
@option("--key", "KEY", "Only this key or unique key, through the index.")
@flag("--reverse", "Newest first.")
@shared.grep
@view_options
@template_option
@shared.skip_damage
@raw_option()
@shared.quiet_empty
def cat_command(
    output: Output,
    store: str,
    config: str | None,
    view: MessageView,
    template: str | None,
    raw: bool,
    allow_empty: bool,
    **selected: Any,
) -> int:
    """Print messages.

    Without options that is every message of the log in order, those of system topics too. With -t
    and -q the queue is read, with --key the index.

    Examples:
        mqstore cat /data/store -t orders --from -2h --tags 'paid || refunded'
        mqstore cat /data/store -t orders -q 0 -o 1200 -n 10 --body json
    """
    what = keys.Selection(**selected)
    if what.queue_id is not None and not what.topics:
        raise click.UsageError("-q needs -t.")
    if what.queue_id is not None and what.offset is not None and len(what.topics) > 1:
        raise click.UsageError("-o with -q needs one -t.")
    if what.key is not None and {what.queue_id, what.offset, what.tags} != {None}:
        raise click.UsageError("--key goes with -t, -n, --from and --to only.")
    show = line_of(view, template, what.grep, raw=raw)
    opening = mqstore.open(store, config=config)
    with opening as opened, closing(keys.Selected(opened, what)) as found:
        if not allow_empty:
            check_topics(opened, what.topics, what.queue_id)
        printed = print_messages(output, found, view, show)
        if what.end_ms is None and (what.limit is None or printed < what.limit):
            try:
                opened._check_end(what.topics or None, what.queue_id)  # noqa: SLF001
            except CorruptionError as error:
                if not what.skip_damage:
                    raise
                note(str(error))
                return 1
        is_empty = not printed and not allow_empty
        if what.key is not None and is_empty:
            keys.note_not_found(opened, what)
            return 1
        if found.skipped_ranges:
            return note_skipped(found.skipped_ranges, found.skipped_bytes)
        if is_empty:
            bounds = {"from": what.begin_ms, "to": what.end_ms, "offset": what.offset}
            return note_nothing(store, tags=what.tags, grep=what.grep, **bounds)
    return 0


@read_command("get")
@click.argument("which", metavar="ID|OFFSET")
@view_options
@raw_option("The body alone, as bytes; not to a terminal.")
def get_command(
    output: Output, store: str, which: str, view: MessageView, raw: bool, config: str | None
) -> None:
    """Print one message, by its id or by its physical offset.

    Examples:
        mqstore get /data/store 81234
        mqstore get /data/store 0A09080700002A9F0000000000013D62 --raw > body
    """
    with mqstore.open(store, config=config) as opened:
        if which.isdecimal() and which.isascii() and len(which) not in keys.ID_LENGTHS:
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


@read_command("query")
@shared.topics()
@option("-k --key", "KEY", "A key, a unique key or a message id.")
@option("--tags", "TAGS", "The whole text of the tags, as RocketMQ 5.4 and later index it.")
@shared.begin_end
@shared.limit(32, "messages")
@flag("--rocketmq", "RocketMQ's own answer: by the hash alone, at most 64, in its order.")
@view_options
def query_command(
    output: Output,
    store: str,
    limit: int,
    rocketmq: bool,
    view: MessageView,
    config: str | None,
    **sought: Any,
) -> int:
    """Print the messages of a key or of tags, newest first; without -t those of every topic.

    Exits with 1 where there are none, and says how far the index reaches.

    Examples:
        mqstore query /data/store -k order-17
        mqstore query /data/store -t orders -k order-17 --from -1d --json
    """
    what = keys.Sought(**sought, exact=not rocketmq)
    if (what.key is None) == (what.tags is None):
        raise click.UsageError("give either -k KEY or --tags TAGS")
    with mqstore.open(store, config=config) as opened:
        check_topics(opened, what.topics)
        result = keys.query(opened, what, limit)
        if output.form == "json":
            documents = [view.document(message) for message in result]
            counts = {name: getattr(result, name) for name in _COUNTS}
            document = {"messages": documents, **counts, "index": keys.index_reach(opened)}
            output.document(document, tuple)
        else:
            print_messages(output, result, view, view.line)
        if not result:
            keys.note_not_found(opened, what)
    if result.truncated:
        note(f"there are more; -n {limit} was the limit")
    if result.rejected_by_hash:
        note(f"{result.rejected_by_hash} of another key with the same hash left out")
    if result.rejected_by_time and result:
        note(f"{result.rejected_by_time} outside of --from and --to left out")
    if not result.complete:
        note(keys.may_be_more(result))
    return int(not result)


class _WithTime(click.Command):
    """A command with an argument TIME; ``-2h`` is one, and no options ``-2`` and ``-h``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if is_relative(arg) else arg for arg in args])


@read_command("at", cls=_WithTime, short_help="Print the queue offset at a store time.")
@shared.topics(required=True)
@shared.queue()
@click.argument("time", type=TIME)
@option(
    "--boundary",
    ["lower", "upper"],
    "lower: the first message not before TIME; upper: the last not after it.",
    default="lower",
)
def at_command(
    output: Output,
    store: str,
    topics: tuple[str, ...],
    queue_id: int | None,
    time: int,
    boundary: Literal["lower", "upper"],
    config: str | None,
) -> None:
    """Print the queue offset at a store time; without -q of each queue.

    Examples:
        mqstore at /data/store -t orders -2h
        mqstore at /data/store -t orders -q 0 '2026-11-21 10:00' --tz Europe/Berlin
    """
    with mqstore.open(store, config=config) as opened:
        check_topics(opened, topics, queue_id)
        rows = [
            {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "timestamp_ms": time,
                "boundary": boundary,
                "queue_offset": opened.offset_at(
                    queue.topic, queue.queue_id, time, boundary=boundary
                ),
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
            }
            for topic in topics
            for queue in opened.queues(topic)
            if queue_id in {None, queue.queue_id}
        ]
    output.rows(rows, _OFFSETS)


@read_command("tail")
@flag("-f --follow following", "Go on with what is written.")
@option(
    "-n --limit",
    "COUNT",
    "How many of the messages that are there.",
    type=click.IntRange(min=0),
    default=10,
)
@shared.topics()
@shared.queue()
@shared.tags
@shared.grep
@view_options
@template_option
@raw_option()
@shared.quiet_empty
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

    Examples:
        mqstore tail /data/store -t orders -n 20
        mqstore tail /data/store -f --grep timeout
    """
    what = keys.Selection(**selected, reverse=True)
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

    with mqstore.open(store, config=config) as opened:
        if not allow_empty:
            check_topics(opened, what.topics, what.queue_id)
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


def _last(store: Store, what: keys.Selection) -> list[StoredMessage]:
    """The newest messages, oldest first."""
    if what.limit == 0:
        return []
    with closing(keys.Selected(store, what)) as found:
        return list(found)[::-1]


# Interval of checks for the reader while nothing is written.
_CHECK_S = 0.5


def follow(store: Store, position: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of new messages, without end.

    Reports on standard error messages that retention deleted before they were read, and
    messages that a recovery truncated.

    Args:
        store: The store, read-only.
        position: Up to where its log was read already, a physical offset.

    Yields:
        From which physical offset until which something was written.

    Raises:
        OutputClosedError: Nobody reads standard output any more.
        OffsetOutOfRangeError: Another log lies there now, without that position.
    """
    while True:
        while not _has_grown(store, position):
            end = store.max_physical_offset if below(root_of(store)).is_dir() else 0
            if end < position:
                note(f"the log now ends at {end}, {size_text(position - end)} were cut off")
                position = end
                if not end:
                    # One that is made anew is read from its beginning.
                    store._forget_log()  # noqa: SLF001 - our own
            _check_reader()
        if store.min_physical_offset > position:
            begin = store.min_physical_offset
            note(f"the log now begins at {begin}, {size_text(begin - position)} went unread")
            position = begin
        end = store.max_physical_offset
        yield position, end
        position = end


def _has_grown(store: Store, position: int) -> bool:
    try:
        return store.wait(position, timeout_s=_CHECK_S)
    except StoreIOError:
        if below(root_of(store)).is_dir():
            raise
        time.sleep(_CHECK_S)  # it may be made anew
        return False


def _check_reader() -> None:
    """Ends the wait where standard output is a pipe that nobody reads.

    Raises:
        OutputClosedError: It is.
    """
    poller = select.poll()
    poller.register(sys.stdout, 0)
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in poller.poll(0)):
        raise OutputClosedError
