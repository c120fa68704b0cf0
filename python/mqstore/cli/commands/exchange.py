"""``export`` and ``import``: messages, configuration and offsets out of a store, and into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click
import msgspec

import mqstore
from mqstore.cli.message_options import tags_option
from mqstore.cli.names import refusals
from mqstore.cli.options import (
    allow_empty_option,
    begin_end_options,
    config_option,
    output_options,
    read_argument,
    topics_option,
)
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines

if TYPE_CHECKING:
    from mqstore.cli.output import Output


@click.command("export", short_help="Write messages, configuration and offsets to files.")
@read_argument()
@click.argument("target", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet", "arrow"]),
    default="jsonl",
    show_default=True,
    help="How the messages are written; parquet and arrow need mqstore[parquet].",
)
@topics_option()
@tags_option
@begin_end_options
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip", "report"]),
    default="raise",
    show_default=True,
    help="At damage: end there, skip it, or also list it in TARGET/damage.jsonl.",
)
@click.option("--skip-damage", is_flag=True, help="The same as --on-error skip.")
@allow_empty_option
@config_option
@output_options
def export_command(
    output: Output,
    store: str,
    target: str,
    form: Literal["jsonl", "parquet", "arrow"],
    topics: tuple[str, ...],
    tags: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    on_error: Literal["raise", "skip", "report"],
    skip_damage: bool,  # noqa: FBT001
    allow_empty: bool,  # noqa: FBT001
    config: str | None,
) -> int:
    """Write a store's messages to the new folder TARGET, its configuration and offsets with them.

    `mqstore import TARGET STORE` gives the same messages again. The store is only read.
    """
    with refusals(), progress("exporting") as advance:
        report = mqstore.export_store(
            store,
            target,
            format=form,
            topics=topics or None,
            tags=tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            on_error="skip" if skip_damage and on_error == "raise" else on_error,
            allow_empty=allow_empty,
            progress=advance,
            config=config,
        )
    output.document(msgspec.to_builtins(report), lambda: report_lines(report))
    if report.skipped_ranges:
        lists = f"`{target}/damage.jsonl`" if on_error == "report" else "`mqstore verify`"
        note(
            f"skipped {report.skipped_ranges} damaged ranges, {report.skipped_bytes} bytes; "
            f"{lists} lists them"
        )
        return 1
    return 0


@click.command("import", short_help="Make a store of an export.")
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@config_option
@output_options
def import_command(output: Output, source: str, store: str, config: str | None) -> None:
    """Create the store STORE from an export, or from a file .jsonl, .parquet or .arrow.

    Messages of a complete export keep their offsets. Messages of a partial export are numbered
    from 0, and consumer offsets are adapted.
    """
    report = mqstore.import_store(source, store, config=config)
    output.document(msgspec.to_builtins(report), lambda: report_lines(report))
