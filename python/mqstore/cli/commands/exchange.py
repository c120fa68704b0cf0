"""``export`` and ``import``: messages, configuration and offsets out of a store, and into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore.cli.message_options import tags_option
from mqstore.cli.messages import note_skipped
from mqstore.cli.names import refusals
from mqstore.cli.options import (
    allow_empty_option,
    begin_end_options,
    command,
    flag,
    option,
    read_command,
    topics_option,
)
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines

if TYPE_CHECKING:
    from mqstore.cli.output import Output


@read_command("export", short_help="Write messages, configuration and offsets to files.")
@click.argument("target", type=click.Path())
@option(
    "--format",
    None,
    "How the messages are written; parquet and arrow need mqstore[parquet].",
    type=click.Choice(["jsonl", "parquet", "arrow"]),
    default="jsonl",
)
@topics_option()
@tags_option
@begin_end_options
@option(
    "--on-error",
    None,
    "At damage: end there, skip it, or also list it in TARGET/damage.jsonl.",
    type=click.Choice(["raise", "skip", "report"]),
    default="raise",
)
@flag("--skip-damage", "The same as --on-error skip.")
@allow_empty_option
def export_command(
    output: Output,
    store: str,
    target: str,
    topics: tuple[str, ...],
    skip_damage: bool,
    **options: Any,
) -> int:
    """Write a store's messages to the new folder TARGET, its configuration and offsets with them.

    `mqstore import TARGET STORE` gives the same messages again. The store is only read.
    """
    if skip_damage and options["on_error"] == "raise":
        options["on_error"] = "skip"
    with refusals(), progress("exporting") as advance:
        report = mqstore.export_store(
            store, target, topics=topics or None, progress=advance, **options
        )
    output.document(report, lambda: report_lines(report))
    is_listed = options["on_error"] == "report"
    lists = f"`{target}/damage.jsonl`" if is_listed else "`mqstore verify`"
    return note_skipped(report.skipped_ranges, report.skipped_bytes, lists)


@command("import", short_help="Make a store of an export.")
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
def import_command(output: Output, source: str, store: str, config: str | None) -> None:
    """Create the store STORE from an export, or from a file .jsonl, .parquet or .arrow.

    Messages of a complete export keep their offsets. Messages of a partial export are numbered
    from 0, and consumer offsets are adapted.
    """
    report = mqstore.import_store(source, store, config=config)
    output.document(report, lambda: report_lines(report))
