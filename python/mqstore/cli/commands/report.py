"""``report``: a page about a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import config_option, output_options, read_argument
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.text import size_text

if TYPE_CHECKING:
    from mqstore.cli.output import Output


@click.command("report", short_help="Write an HTML page about a store.")
@read_argument()
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE.html",
    help="Where the page goes.",
)
@click.option("--overwrite", is_flag=True, help="Replace a page that is there.")
@config_option
@output_options
def report_command(
    output: Output,
    store: str,
    out: str,
    overwrite: bool,  # noqa: FBT001
    config: str | None,
) -> None:
    """Write one HTML page about a store, which needs nothing else and loads nothing.

    It shows the store's state, its health and every finding's cure, messages and bytes over time
    and by topic, the time from born to stored, the index files, and the lag of consumers.
    """
    with progress("reading the store") as advance:
        mqstore.report(store, out, overwrite=overwrite, progress=advance, config=config)
    size = Path(out).stat().st_size
    output.document({"path": out, "bytes": size}, tuple)
    note(f"{out}: {size_text(size)}")
