"""``pending``: messages that wait for an end, their time, a redelivery, an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mqstore
from mqstore.care.pending import resend_command
from mqstore.cli.options import read_command
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.text import age_text, count_text, escape, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_LINES = 20
_GROUP = ("group", Column("origin_topic", title="FROM TOPIC"))
_OLDEST = Column("oldest_timestamp_ms", time_text, title="OLDEST")
# List, how many it has in all, heading, columns.
_TABLES: tuple[tuple[str, str | None, str, Sequence[Column]], ...] = (
    (
        "half",
        "half_messages",
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
        "overdue_messages",
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
        None,
        "dead letters by group",
        columns(
            *_GROUP, "messages", _OLDEST, Column("newest_timestamp_ms", time_text, title="NEWEST")
        ),
    ),
    (
        "retries",
        None,
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
    """
    report = mqstore.pending(store, config=config)
    output.document(report, lambda: _lines(report, store), rows="overdue")
    for text in report.unread:
        note(text)
    return int(bool(report.unread))


def _lines(report: mqstore.PendingReport, store: str) -> Lines:
    is_empty = True
    for name, total, title, shown in _TABLES:
        rows = getattr(report, name)
        count = getattr(report, total) if total else len(rows)
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
