"""``export`` and ``import``: messages, configuration and offsets out of a store, and into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click
import msgspec

import mqstore
from mqstore.cli.options import begin_end_options, config_option, output_options, store_argument
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.cli.report import report_lines

if TYPE_CHECKING:
    from mqstore.cli.output import Output


@click.command("export", short_help="Write messages, configuration and offsets to files.")
@store_argument
@click.argument("target", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet", "arrow"]),
    default="jsonl",
    show_default=True,
    help="How the messages are written; parquet and arrow need mqstore[parquet].",
)
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic.")
@click.option("--tags", metavar="EXPRESSION", help="Only these tags, as in 'paid || refunded'.")
@begin_end_options
@click.option("--skip-damage", is_flag=True, help="Pass over damage instead of ending there.")
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
    skip_damage: bool,  # noqa: FBT001
    config: str | None,
) -> int:
    """Write a store's messages to the new folder TARGET, its configuration and offsets with them.

    `mqstore import TARGET STORE` gives the same messages again. The store is only read.
    """
    with progress("exporting") as tell:
        report = mqstore.export_store(
            store,
            target,
            format=form,
            topics=topics or None,
            tags=tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            on_error="skip" if skip_damage else "raise",
            progress=tell,
            config=config,
        )
    output.document(msgspec.to_builtins(report), lambda: report_lines(report))
    if report.skipped_ranges:
        note(
            f"skipped {report.skipped_ranges} damaged ranges, {report.skipped_bytes} bytes; "
            "`mqstore verify` lists them"
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
