"""``convert``: queues and index from files to RocksDB, or back."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore.cli.options import command, flag, option, store_argument
from mqstore.cli.output import Lines, Output, as_document
from mqstore.text import count_text, escape

_KINDS = click.Choice(["file", "rocksdb"])


@command("convert", short_help="Move queues and index to RocksDB, or back.")
@store_argument
@option("--queues", None, "Where the queues are to lie.", type=_KINDS)
@option("--index", None, "Where the index is to lie.", type=_KINDS)
@flag("--apply", "Do it; the old ones are kept in quarantine.")
def convert_command(output: Output, store: str, apply: bool, **options: Any) -> None:
    """Move queues and index between files and RocksDB while no broker runs.

    Both are made from the log and held against it before they take the place of the old ones. Set
    `storeType` in the broker's configuration to match: `defaultRocksDB` for queues in RocksDB.
    Without --apply it only reports.
    """
    if options["queues"] is None and options["index"] is None:
        raise click.UsageError("--queues or --index: expected at least one of them.")
    report = mqstore.convert(store, dry_run=not apply, **options)
    findings = [
        {"code": found.code, "severity": found.severity, "message": found.message}
        for found in report.findings
    ]
    output.document(as_document(report) | {"findings": findings}, lambda: _lines(report))


def _lines(report: mqstore.ConvertReport) -> Lines:
    for found in report.findings:
        yield f"before: {found.code} {found.severity}: {escape(found.message)}"
    done = "moved" if report.applied else "would be moved"
    names = {"file": "files", "rocksdb": "RocksDB"}
    if report.queues is not None:
        counts = (
            f"{count_text(report.queue_count)} queues of {count_text(report.messages)} messages"
        )
        yield f"{counts} {done} to {names[report.queues]}"
        kind = "defaultRocksDB" if report.queues == "rocksdb" else "default"
        yield f"the broker needs storeType={kind}"
    if report.index is not None:
        yield f"the index {done} to {names[report.index]}"
    for folder in report.quarantines:
        yield f"old ones are kept in {escape(folder)}"
    if not report.applied:
        yield "nothing was changed; --apply does it"
