"""``verify``: find damage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import click

import mqstore
from mqstore.cli.options import (
    config_option,
    output_options,
    print_report,
    read_argument,
    threads_option,
)
from mqstore.cli.output import Column, note, table_lines
from mqstore.cli.progress import progress
from mqstore.text import count_text, duration_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import Finding, VerifyReport
    from mqstore.cli.output import Output

_COLUMNS = (
    Column("code"),
    Column("severity"),
    Column("path"),
    Column("offset", right=True),
    Column("expected"),
    Column("found"),
    Column("fix"),
)


@click.command("verify", short_help="Look for damage.")
@read_argument()
@click.option(
    "--level",
    type=click.Choice(["quick", "full"]),
    default="full",
    show_default=True,
    help="quick: frames, lengths, names and headers only.",
)
@threads_option
@config_option
@output_options
def verify_command(
    output: Output,
    store: str,
    level: Literal["quick", "full"],
    threads: int | None,
    config: str | None,
) -> int:
    """Look for damage: the log; queues, index, checkpoint and configuration against it.

    Never writes. Exits with 1 where something is wrong; lists every damage, not only the first.
    """
    began = time.monotonic()
    with progress("verifying") as advance:
        report = mqstore.verify(
            store, level=level, threads=threads, progress=advance, config=config
        )
    took = time.monotonic() - began
    document = {
        "path": report.path,
        "level": report.level,
        "ok": report.ok,
        "findings": [finding_row(finding) for finding in report.findings],
        "counts": report.counts,
    }
    print_report(output, document, "findings", lambda: _lines(report))
    log_bytes = report.counts.get("log_bytes", 0)
    note(f"looked at {size_text(log_bytes)} of log in {duration_text(took)}")
    return 0 if report.ok else 1


def finding_row(finding: Finding) -> dict[str, object]:
    """A finding, as ``mqstore verify --json`` lists it."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "path": finding.path,
        "offset": finding.offset,
        "expected": finding.expected,
        "found": finding.found,
        "message": finding.message,
        "fix": finding.fix,
    }


def _lines(report: VerifyReport) -> Iterator[str]:
    for name, count in report.counts.items():
        yield f"{name.replace('_', ' '):<16} {count_text(count)}"
    if report.findings:
        yield ""
        yield from table_lines([finding_row(finding) for finding in report.findings], _COLUMNS)
    yield ""
    yield "no damage" if report.ok else _summary(report)


def _summary(report: VerifyReport) -> str:
    codes = {finding.code for finding in report.findings}
    total = sum(count for name, count in report.counts.items() if name in codes)
    text = f"{count_text(total)} finding{'' if total == 1 else 's'}"
    listed = len(report.findings)
    return text if listed >= total else f"{text}, {count_text(listed)} of them listed"
