"""``replay`` and ``resend``: messages of a store into a live cluster."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqstore.cli import shared
from mqstore.cli.names import refusals
from mqstore.cli.options import COUNT_RATE, flag, option, read_command, read_pairs, several
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.replaying.replay import INTERRUPTED, Replay
from mqstore.replaying.report import write_failures
from mqstore.replaying.selection import REFUSED
from mqstore.text import count_text, duration_text, escape, rate_text

if TYPE_CHECKING:
    from mqstore._native import _Pattern
    from mqstore.cli.options import Function
    from mqstore.replaying.report import ReplayReport

_MOST_SHOWN = 20
_TOPICS = columns(
    Column("topic", title="TO TOPIC"),
    "messages",
    "bytes",
    "queues",
    Column("groups", ", ".join, title="RECEIVED BY"),
)
_OFFSET = Column("physical_offset", right=True, title="PHYSICAL OFFSET")
_FIRST = columns(
    Column("topic", title="TO TOPIC"), _OFFSET, "store_timestamp_ms", "tags", "keys", "unique_key"
)
_REFUSALS = columns(
    Column("reason", title="NOT SENT"),
    "messages",
    Column("topic", title="FIRST OF TOPIC"),
    _OFFSET,
    "detail",
)
_FAILURES = columns(
    Column("message_id", title="ID"),
    "keys",
    "topic",
    Column("kind", title="FAILED BY"),
    Column("tries", right=True),
    "answer",
)


def _function(ctx: click.Context, _param: click.Parameter, given: str | None) -> object:
    """The function that a name ``module:function`` leads to; modules of this folder too."""
    # A shell that completes the line runs nothing.
    if given is None or ctx.resilient_parsing:
        return None
    module, separator, name = given.partition(":")
    if not (module and separator and name):
        raise click.BadParameter(f"expected MODULE:FUNCTION, got {given!r}")
    # Behind all others, for the module's own imports too.
    sys.path.append(str(Path.cwd()))
    try:
        found: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise click.BadParameter(str(error)) from None
    if not callable(found):
        raise click.BadParameter(f"{given} is no function")
    return found


def _ids(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> list[str | int]:
    # As `get` tells them apart: an id has 32 or 56 digits.
    return [int(one) if re.fullmatch("[0-9]{1,19}", one) else one for one in given]


_THERE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    option(
        "--to",
        "NAMESRV",
        "Name servers of the target, host:port; several joined by ;.",
        required=True,
    ),
    flag("--apply", "Send; without it the plan is printed."),
    shared.topics(),
    several("-q --queue-id queue_ids", "QUEUE", "Only queues of this number; repeatable."),
    option("--first-offset first_queue_offset", "OFFSET", "First queue offset that counts."),
    option("--last-offset last_queue_offset", "OFFSET", "Last queue offset that counts."),
    partial(shared.begin_end, last="--until"),
    shared.tags,
    several("-k --key keys", "KEY", "Only this key; repeatable."),
    several(
        "--id ids",
        "ID|OFFSET",
        "This message, by message id or physical offset; repeatable.",
        callback=_ids,
    ),
    shared.grep,
    several("--include", REFUSED, "Send these too; by default they are refused. Repeatable."),
    option("--rate", "RATE", "Most messages a second, as 200/s.", type=COUNT_RATE),
    option("--bytes bytes_rate", "RATE", "Most bytes a second, as 5m/s."),
    shared.limit(None, "messages in this run"),
    option("--to-topic", "TOPIC", "Topic of the target for all of them."),
    option(
        "--queue",
        ["keep", "any"],
        "keep: to the queue of the same number; any: to all in turn.",
        default="keep",
    ),
    flag("--ordered", "Keep the order within each queue."),
    flag("--new-id", "Give each message a new unique key."),
    several(
        "--set-property properties",
        "NAME=VALUE",
        "A property that each message gets; repeatable.",
        callback=read_pairs,
    ),
    option(
        "--transform",
        "MODULE:FUNCTION",
        "A Python function that returns the message to send, or None to drop it.",
        callback=_function,
    ),
    option(
        "--journal",
        "FILE",
        "Notes of sent messages, to go on from; by default one for store, target and selection.",
    ),
    option("--report report_file", "FILE", "Write the failures: FILE.csv as CSV, else JSON lines."),
    option(
        "--retry-failed",
        "REPORT",
        "Send only the messages of this report of failures.",
        type=_THERE,
    ),
    option(
        "--on-failure",
        ["stop", "skip"],
        "stop: at what all messages would meet, and after 20 in a row; skip: go on.",
        default="stop",
    ),
    option(
        "--rocketmq-home",
        "FOLDER",
        "An installed RocketMQ; ROCKETMQ_HOME if left out.",
        type=click.Path(exists=True, file_okay=False),
    ),
    option("--classpath", "PATH", "Class path with RocketMQ's client, in place of it."),
    option(
        "--credentials",
        "FILE",
        "File with accessKey and secretKey; MQSTORE_ACCESS_KEY and MQSTORE_SECRET_KEY if left out.",
        type=_THERE,
    ),
    flag(
        "--tls",
        "Encrypt the connections; a server's certificate is checked only if --tls-config says so.",
    ),
    option("--tls-config", "FILE", "RocketMQ's file of TLS settings.", type=_THERE),
    option(
        "--batch",
        "COUNT",
        "Most messages of one request.",
        type=click.IntRange(1, 1024),
        default=32,
    ),
    option(
        "--tries",
        "COUNT",
        "How often a message is tried while the cause may pass.",
        type=click.IntRange(1, 1000),
        default=8,
    ),
    shared.allow_empty,
)


def _replay_options(command: Function) -> Function:
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


@read_command("resend", short_help="Send dead letters back to their group.")
@shared.group
@flag(
    "--origin-topic to_origin",
    "Send them to the topic that they come from, and so to all its groups.",
)
@_replay_options
def resend_command(output: Output, **options: Any) -> int:
    """Send the dead letters of a consumer group back into a live cluster.

    They go into the group's retry topic: this group gets them, and no other. Without --apply it
    prints the plan and sends nothing. A run that was stopped goes on when it is started again.
    Exits with 1 where a message failed, or the target could not be asked.

    Examples:
        mqstore resend /data/store -g billing --to namesrv:9876
        mqstore resend /data/store -g billing --to namesrv:9876 --rate 200/s --apply
    """
    return _run(output, **options)


@read_command("replay", short_help="Send messages of a store into a live cluster.")
@option("--missed-by", "GROUP", "Messages behind this group's offsets, for this group alone.")
@_replay_options
def replay_command(output: Output, **options: Any) -> int:
    """Send messages of a store into a live cluster, by RocketMQ's own client.

    Without --apply it prints the plan and sends nothing. Each message is sent at least once; a run
    that was stopped goes on when it is started again. Exits with 1 where a message failed, or the
    target could not be asked.

    Examples:
        mqstore replay /data/store -t orders --key order-17 --to namesrv:9876 --apply
        mqstore replay /backup/store --missed-by billing --to namesrv:9876 --report failed.csv
    """
    return _run(output, **options)


def _run(
    output: Output,
    *,
    store: str,
    to: str,
    grep: _Pattern | None,
    report_file: str | None,
    **options: Any,
) -> int:
    if grep is not None:
        options["grep"] = grep.pattern
    with refusals(), progress("sending" if options["apply"] else "reading the log") as advance:
        report = Replay(store, to, progress=advance, **options).run()
    output.document(report, lambda: _lines(report), rows="failures")
    for text in report.warnings:
        note(escape(text))
    if report_file is not None and report.applied:
        write_failures(report_file, report.failures)
    elif report_file is not None:
        note(escape(f"{report_file} is not written without --apply"))
    if report.stopped is not None:
        again = "start it again to go on"
        note(escape(f"stopped: {report.stopped}; journal {report.journal}: {again}"))
    if report.stopped == INTERRUPTED:
        return 130
    is_damaged = any(row.reason == "damaged" for row in report.refusals)
    is_asked = report.applied or all(row.queues for row in report.topics)
    return int(bool(report.failures or report.stopped) or is_damaged or not is_asked)


def _lines(report: ReplayReport) -> Lines:
    tables = (
        ("", report.topics, _TOPICS),
        ("the first of them:", report.first, _FIRST),
        ("", report.refusals, _REFUSALS),
        ("the cluster did not take:", report.failures[:_MOST_SHOWN], _FAILURES),
    )
    for title, rows, shown in tables:
        if rows:
            yield from (title,) if title else ()
            yield from table_lines(rows, shown)
            yield ""
    if report.failed > _MOST_SHOWN:
        yield f"{count_text(report.failed)} failures in all; --report FILE or --jsonl lists them"
    if report.applied:
        rate = rate_text(report.sent, report.seconds or 0, "messages")
        took = duration_text(report.seconds or 0)
        yield f"sent {count_text(report.sent)} messages in {took}, {rate}"
        if report.sent_before:
            yield f"earlier runs sent {count_text(report.sent_before)}"
        return
    for text in report.differences:
        yield escape(text)
    took = "" if report.seconds is None else f", in {duration_text(report.seconds)} at this rate"
    count = count_text(report.messages)
    yield f"would send {count} messages to {escape(report.to)}{took}; --apply sends them"
