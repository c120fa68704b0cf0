"""``copy`` and ``diff``: a store or a part of it as another store, and two held side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

import mqstore
from mqstore.cli.options import begin_end_options, config_option, output_options, store_argument
from mqstore.cli.output import Column, table_lines
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines
from mqstore.text import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import DiffReport
    from mqstore.cli.output import Output

_QUEUES = (
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("same", count_text, right=True),
    Column("missing", count_text, right=True),
    Column("extra", count_text, right=True),
    Column("different", count_text, right=True),
)
_MESSAGES = (
    Column("kind", title=""),
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("queue_offset", right=True, title="OFFSET"),
    Column("fields", ", ".join, title="WHAT DIFFERS"),
)
# More messages than this are for programs.
_MOST_SHOWN = 20


@click.command("copy", short_help="Copy a store or a part of it into a new one.")
@store_argument
@click.argument("out", type=click.Path())
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic.")
@click.option("--tags", metavar="EXPRESSION", help="Only these tags, as in 'paid || refunded'.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only messages with this key.")
@begin_end_options
@click.option("--renumber", is_flag=True, help="Number each queue from 0 on.")
@click.option(
    "--redact",
    metavar="RULES",
    type=click.Path(dir_okay=False),
    help="A TOML file of what takes the place of bodies and properties.",
)
@config_option
@output_options
def copy_command(
    output: Output,
    store: str,
    out: str,
    topics: tuple[str, ...],
    tags: str | None,
    keys: tuple[str, ...],
    begin_ms: int | None,
    end_ms: int | None,
    renumber: bool,  # noqa: FBT001
    redact: str | None,
    config: str | None,
) -> None:
    """Copy a store, or the messages asked for, into the new store OUT, which a broker can serve.

    Configuration and consumer offsets come along. Queue offsets stay; where a message was left out
    between others an empty one stands in for it, unless --renumber closes the gap. A topic that was
    deleted stays deleted, unless --topic names it.
    """
    with progress("copying") as tell:
        report = mqstore.copy(
            store,
            out,
            topics=topics or None,
            tags=tags,
            keys=keys or None,
            begin_ms=begin_ms,
            end_ms=end_ms,
            renumber=renumber,
            redact=redact,
            progress=tell,
            config=config,
        )
    output.document(msgspec.to_builtins(report), lambda: report_lines(report))


@click.command("diff", short_help="Compare the messages of two stores.")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@config_option
@output_options
def diff_command(output: Output, a: str, b: str, config: str | None) -> int:
    """Compare two stores queue by queue: what B lacks, has beside, or has with other content.

    Exits with 1 where they differ. Where a message lies in the log makes no difference.
    """
    with progress("comparing", unit="queues") as tell:
        report = mqstore.diff(a, b, progress=tell, config=config)
    if output.form == "jsonl":
        output.rows(found._asdict() for found in report.differences)
    else:
        document = {
            **msgspec.to_builtins(report),
            "differing": [queue._asdict() for queue in report.differing],
            "differences": [found._asdict() for found in report.differences],
        }
        output.document(document, lambda: _lines(report))
    return 0 if report.ok else 1


def _lines(report: DiffReport) -> Iterator[str]:
    if report.differing:
        yield from table_lines([queue._asdict() for queue in report.differing], _QUEUES)
        yield ""
        shown = report.differences[:_MOST_SHOWN]
        yield from table_lines([found._asdict() for found in shown], _MESSAGES)
        total = report.missing + report.extra + report.different
        if total > len(shown):
            yield f"... {count_text(total)} in all; --jsonl lists them"
        yield ""
    same = count_text(report.messages)
    if report.ok:
        yield f"all {same} messages in {count_text(report.queues)} queues are the same"
    else:
        yield f"{same} messages are the same"
