"""``pending``: messages that wait for an end, their time, a redelivery, an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

import mqstore
from mqstore.care.pending import resend_command
from mqstore.cli.options import config_option, output_options, print_report, read_argument
from mqstore.cli.output import Column, note, table_lines
from mqstore.text import age_text, count_text, escape, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mqstore.cli.output import Output

_MOST_LINES = 20
_KEYS = Column("keys", " ".join)
_GROUP = (Column("group"), Column("origin_topic", title="FROM TOPIC"))
_OLDEST = Column("oldest_timestamp_ms", time_text, title="OLDEST")
# List, how many it has in all, heading, columns.
_TABLES: tuple[tuple[str, str | None, str, Sequence[Column]], ...] = (
    (
        "half",
        "half_messages",
        "transactions without an end",
        (
            Column("topic"),
            _KEYS,
            Column("unique_key"),
            Column("producer_group", title="PRODUCER"),
            Column("age_ms", age_text, right=True, title="AGE"),
            Column("checks", right=True),
        ),
    ),
    (
        "overdue",
        "overdue_messages",
        "messages whose time has passed",
        (
            Column("kind"),
            Column("topic"),
            _KEYS,
            Column("unique_key"),
            Column("deliver_timestamp_ms", time_text, title="DUE"),
            Column("late_ms", age_text, right=True, title="LATE"),
        ),
    ),
    (
        "dead_letters",
        None,
        "dead letters by group",
        (
            *_GROUP,
            Column("messages", count_text, right=True),
            _OLDEST,
            Column("newest_timestamp_ms", time_text, title="NEWEST"),
        ),
    ),
    (
        "retries",
        None,
        "waiting redeliveries by group",
        (
            *_GROUP,
            Column("messages", count_text, right=True, title="WAITING"),
            Column("scheduled", count_text, right=True),
            _OLDEST,
        ),
    ),
)


@click.command("pending", short_help="List messages that wait: half, overdue, dead letters.")
@read_argument()
@config_option
@output_options
def pending_command(output: Output, store: str, config: str | None) -> int:
    """List messages that wait for something.

    Transactions without an end, delayed messages and timers whose time has passed, dead letters by
    group and origin topic, redeliveries that a group has not got. It reads the broker's own topics
    from where the broker's files say that it goes on, and never writes. Exits with 1 where a part
    of them could not be read.
    """
    report = mqstore.pending(store, config=config)
    document = msgspec.to_builtins(report)
    print_report(output, document, "overdue", lambda: _lines(document, store))
    for text in report.unread:
        note(text)
    return int(bool(report.unread))


def _lines(document: dict[str, Any], store: str) -> Iterator[str]:
    is_empty = True
    for name, total, title, columns in _TABLES:
        rows = document[name]
        count = document[total] if total else len(rows)
        if not rows:
            continue
        if not is_empty:
            yield ""
        is_empty = False
        yield f"{title}: {count_text(count)}"
        yield from table_lines(rows[:_MOST_LINES], columns)
        if len(rows) > _MOST_LINES:
            yield f"and {count_text(count - _MOST_LINES)} more; --json lists them"
        if name == "dead_letters":
            yield "to send them back to their group, and to no other:"
            for group in list(dict.fromkeys(row["group"] for row in rows))[:_MOST_LINES]:
                yield f"  {escape(resend_command(store, group))}"
    if is_empty:
        yield "nothing is pending"
