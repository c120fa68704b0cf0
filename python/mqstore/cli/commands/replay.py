"""``replay`` and ``resend``: messages of a store into a live cluster."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
import msgspec

from mqstore.cli.message_options import grep_option, tags_option
from mqstore.cli.names import refusals
from mqstore.cli.options import (
    allow_empty_option,
    begin_end_options,
    config_option,
    limit_option,
    output_options,
    print_report,
    read_argument,
    topics_option,
)
from mqstore.cli.output import Column, note, table_lines
from mqstore.cli.progress import progress
from mqstore.cli.units import COUNT_RATE, RATE
from mqstore.replaying.replay import INTERRUPTED, Replay
from mqstore.replaying.report import write_failures
from mqstore.replaying.selection import REFUSED
from mqstore.text import count_text, duration_text, escape, rate_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mqstore.cli.output import Output
    from mqstore.replaying.report import ReplayReport

P = ParamSpec("P")
R = TypeVar("R")
_MOST_SHOWN = 20
_TOPICS = (
    Column("topic", title="TO TOPIC"),
    Column("messages", count_text, right=True),
    Column("bytes", size_text, right=True),
    Column("queues", count_text, right=True),
    Column("groups", ", ".join, title="RECEIVED BY"),
)
_FIRST = (
    Column("topic", title="TO TOPIC"),
    Column("physical_offset", right=True, title="PHYSICAL OFFSET"),
    Column("store_timestamp_ms", time_text, title="STORED"),
    Column("tags"),
    Column("keys", " ".join),
    Column("unique_key", title="UNIQUE KEY"),
)
_REFUSALS = (
    Column("reason", title="NOT SENT"),
    Column("messages", count_text, right=True),
    Column("topic", title="FIRST OF TOPIC"),
    Column("physical_offset", right=True, title="PHYSICAL OFFSET"),
    Column("detail"),
)
_FAILURES = (
    Column("message_id", title="ID"),
    Column("keys", " ".join),
    Column("topic"),
    Column("kind", title="FAILED BY"),
    Column("tries", right=True),
    Column("answer"),
)


def _pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if not all(name and separator for name, separator, _ in pairs):
        raise click.BadParameter("expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


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


def _option(names: str, value: str | None, text: str, **more: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    default = "default" in more
    return click.option(*names.split(), metavar=value, help=text, show_default=default, **more)


_FILE, _THERE = click.Path(dir_okay=False), click.Path(exists=True, dir_okay=False)
_OFFSET = click.IntRange(min=0)
_OPTIONS = (
    _option(
        "--to",
        "NAMESRV",
        "Name servers of the target, host:port; several joined by ;.",
        required=True,
    ),
    _option("--apply", None, "Send; without it the plan is printed.", is_flag=True),
    topics_option(),
    _option(
        "-q --queue-id queue_ids",
        "QUEUE",
        "Only queues of this number; repeatable.",
        multiple=True,
        type=click.IntRange(0, 2**31 - 1),
    ),
    _option(
        "--first-offset first_queue_offset",
        "OFFSET",
        "First queue offset that counts.",
        type=_OFFSET,
    ),
    _option(
        "--last-offset last_queue_offset", "OFFSET", "Last queue offset that counts.", type=_OFFSET
    ),
    partial(begin_end_options, last="--until"),
    tags_option,
    _option("-k --key keys", "KEY", "Only this key; repeatable.", multiple=True),
    _option(
        "--id ids",
        "ID|OFFSET",
        "This message, by message id or physical offset; repeatable.",
        multiple=True,
        callback=_ids,
    ),
    grep_option,
    _option(
        "--include",
        None,
        "Send these too; by default they are refused. Repeatable.",
        multiple=True,
        type=click.Choice(REFUSED),
    ),
    _option("--rate", "RATE", "Most messages a second, as 200/s.", type=COUNT_RATE),
    _option("--bytes bytes_rate", "RATE", "Most bytes a second, as 5m/s.", type=RATE),
    limit_option(None, "messages in this run"),
    _option("--to-topic", "TOPIC", "Topic of the target for all of them."),
    _option(
        "--queue",
        None,
        "keep: to the queue of the same number; any: to all in turn.",
        type=click.Choice(["keep", "any"]),
        default="keep",
    ),
    _option("--ordered", None, "Keep the order within each queue.", is_flag=True),
    _option("--new-id", None, "Give each message a new unique key.", is_flag=True),
    _option(
        "--set-property properties",
        "NAME=VALUE",
        "A property that each message gets; repeatable.",
        multiple=True,
        callback=_pairs,
    ),
    _option(
        "--transform",
        "MODULE:FUNCTION",
        "A Python function that returns the message to send, or None to drop it.",
        callback=_function,
    ),
    _option(
        "--journal",
        "FILE",
        "Notes of sent messages, to go on from; by default one for store, target and selection.",
        type=_FILE,
    ),
    _option(
        "--report report_file",
        "FILE",
        "Write the failures: FILE.csv as CSV, else JSON lines.",
        type=_FILE,
    ),
    _option(
        "--retry-failed",
        "REPORT",
        "Send only the messages of this report of failures.",
        type=_THERE,
    ),
    _option(
        "--on-failure",
        None,
        "stop: at what all messages would meet, and after 20 in a row; skip: go on.",
        type=click.Choice(["stop", "skip"]),
        default="stop",
    ),
    _option(
        "--rocketmq-home",
        "FOLDER",
        "An installed RocketMQ; ROCKETMQ_HOME if left out.",
        type=click.Path(exists=True, file_okay=False),
    ),
    _option("--classpath", "PATH", "Class path with RocketMQ's client, in place of it."),
    _option(
        "--credentials",
        "FILE",
        "File with accessKey and secretKey; MQSTORE_ACCESS_KEY and MQSTORE_SECRET_KEY if left out.",
        type=_THERE,
    ),
    _option(
        "--tls",
        None,
        "Encrypt the connections; a server's certificate is checked only if --tls-config says so.",
        is_flag=True,
    ),
    _option("--tls-config", "FILE", "RocketMQ's file of TLS settings.", type=_THERE),
    _option(
        "--batch",
        "COUNT",
        "Most messages of one request.",
        type=click.IntRange(1, 1024),
        default=32,
    ),
    _option(
        "--tries",
        "COUNT",
        "How often a message is tried while the cause may pass.",
        type=click.IntRange(1, 1000),
        default=8,
    ),
    allow_empty_option,
    config_option,
)


def _replay_options(command: Callable[P, R]) -> Callable[P, R]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("resend", short_help="Send dead letters back to their group.")
@read_argument()
@click.option("-g", "--group", required=True, metavar="GROUP", help="The consumer group.")
@click.option(
    "--origin-topic",
    "to_origin",
    is_flag=True,
    help="Send them to the topic that they come from, and so to all its groups.",
)
@_replay_options
@output_options
def resend_command(output: Output, /, **options: Any) -> int:  # noqa: ANN401 - checked by click
    """Send the dead letters of a consumer group back into a live cluster.

    They go into the group's retry topic: this group gets them, and no other. Without --apply it
    prints the plan and sends nothing. A run that was stopped goes on when it is started again.
    Exits with 1 where a message failed, or the target could not be asked.
    """
    return _run(output, **options)


@click.command("replay", short_help="Send messages of a store into a live cluster.")
@read_argument()
@click.option(
    "--missed-by",
    metavar="GROUP",
    help="Messages behind this group's offsets, for this group alone.",
)
@_replay_options
@output_options
def replay_command(output: Output, /, **options: Any) -> int:  # noqa: ANN401 - checked by click
    """Send messages of a store into a live cluster, by RocketMQ's own client.

    Without --apply it prints the plan and sends nothing. Each message is sent at least once; a run
    that was stopped goes on when it is started again. Exits with 1 where a message failed, or the
    target could not be asked.
    """
    return _run(output, **options)


def _run(
    output: Output,
    *,
    store: str,
    to: str,
    grep: re.Pattern[bytes] | None,
    report_file: str | None,
    **options: Any,  # noqa: ANN401
) -> int:
    if grep is not None:
        options["grep"] = grep.pattern
    with refusals(), progress("sending" if options["apply"] else "reading the log") as advance:
        report = Replay(store, to, progress=advance, **options).run()
    document = msgspec.to_builtins(report)
    print_report(output, document, "failures", lambda: _lines(report, document))
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


def _lines(report: ReplayReport, document: dict[str, Any]) -> Iterator[str]:
    tables = (
        ("", document["topics"], _TOPICS),
        ("the first of them:", document["first"], _FIRST),
        ("", document["refusals"], _REFUSALS),
        ("the cluster did not take:", document["failures"][:_MOST_SHOWN], _FAILURES),
    )
    for title, rows, columns in tables:
        if rows:
            yield from (title,) if title else ()
            yield from table_lines(rows, columns)
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
