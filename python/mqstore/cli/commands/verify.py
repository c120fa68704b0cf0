"""``verify``: find damage."""

from __future__ import annotations

import time
from typing import Any

import click

import mqstore
from mqstore.cli.options import option, read_command, threads_option
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.text import count_text, duration_text, size_text

_COLUMNS = columns(
    "code", "severity", "path", Column("offset", right=True), "expected", "found", "fix"
)


@read_command("verify", short_help="Look for damage.")
@option(
    "--level",
    None,
    "quick: frames, lengths, names and headers only.",
    type=click.Choice(["quick", "full"]),
    default="full",
)
@threads_option
def verify_command(output: Output, store: str, **options: Any) -> int:
    """Look for damage: the log; queues, index, checkpoint and configuration against it.

    Never writes. Exits with 1 where something is wrong; lists every damage, not only the first.
    """
    began = time.monotonic()
    with progress("verifying") as advance:
        report = mqstore.verify(store, progress=advance, **options)
    took = time.monotonic() - began
    output.document(report, lambda: _lines(report), rows="findings")
    log_bytes = report.counts.get("log_bytes", 0)
    note(f"looked at {size_text(log_bytes)} of log in {duration_text(took)}")
    return int(not report.ok)


def _lines(report: mqstore.VerifyReport) -> Lines:
    for name, count in report.counts.items():
        yield f"{name.replace('_', ' '):<16} {count_text(count)}"
    if report.findings:
        yield ""
        yield from table_lines(report.findings, _COLUMNS)
    yield ""
    yield "no damage" if report.ok else _summary(report)


def _summary(report: mqstore.VerifyReport) -> str:
    codes = {finding.code for finding in report.findings}
    total = sum(count for name, count in report.counts.items() if name in codes)
    text = f"{count_text(total)} finding{'' if total == 1 else 's'}"
    listed = len(report.findings)
    return text if listed >= total else f"{text}, {count_text(listed)} of them listed"
