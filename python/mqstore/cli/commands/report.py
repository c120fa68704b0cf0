"""``report``: a page about a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqstore
from mqstore.cli.options import flag, option, read_command
from mqstore.cli.output import Output, note
from mqstore.cli.progress import progress
from mqstore.cli.units import FILE
from mqstore.text import size_text


@read_command("report", short_help="Write an HTML page about a store.")
@option("-o --out", "FILE.html", "Where the page goes.", required=True, type=FILE)
@flag("--overwrite", "Replace a page that is there.")
def report_command(output: Output, store: str, out: str, **options: Any) -> None:
    """Write one HTML page about a store, which needs nothing else and loads nothing.

    It shows the store's state, its health and every finding's cure, messages and bytes over time
    and by topic, the time from born to stored, the index files, and the lag of consumers.
    """
    with progress("reading the store") as advance:
        mqstore.report(store, out, progress=advance, **options)
    size = Path(out).stat().st_size
    output.document({"path": out, "bytes": size}, tuple)
    note(f"{out}: {size_text(size)}")
