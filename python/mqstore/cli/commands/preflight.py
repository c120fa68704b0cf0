"""``preflight``: say what a release of RocketMQ would do with a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mqstore
from mqstore.cli.options import option, read_command
from mqstore.text import escape

if TYPE_CHECKING:
    from mqstore.cli.output import Lines, Output


@read_command("preflight", short_help="Say what a start of RocketMQ would do.")
@option("--to", ["5.3", "5.4", "5.5"], "The release that is to open the store.", required=True)
def preflight_command(output: Output, store: str, to: str, config: str | None) -> int:
    """Say what a release of RocketMQ would do with the store at its next start.

    Whether it starts, which messages would come out of reach, what it would drop or build anew, and
    the command to run before. Never writes. Exits with 1 where it does not start, where something
    would be lost, or where that is not foreseen, as beside a process that writes.

    Examples:
        mqstore preflight /data/store --to 5.5
        mqstore preflight /data/store --to 5.5 --config broker.conf --json
    """
    report = mqstore.preflight(store, to=to, config=config)
    output.document(report, lambda: _lines(report), rows="notes")
    return int(not report.ok)


def _lines(report: mqstore.PreflightReport) -> Lines:
    for note in report.notes:
        yield f"{note.severity}: {escape(note.what)}"
        if note.before is not None:
            yield f"    before: {escape(note.before)}"
    if report.in_use:
        yield f"what {report.to} would lose is not foreseen: a process writes to the store"
    elif report.ok:
        yield f"{report.to} opens it, and every message stays in its queue"
    elif report.starts and not report.lost:
        yield f"{report.to} opens it, with the errors above"
    elif report.starts:
        yield f"{report.to} opens it, and {report.lost} messages come out of reach"
    else:
        yield f"{report.to} does not start on it"
