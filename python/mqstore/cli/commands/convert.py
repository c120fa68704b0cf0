"""``convert``: queues and index from files to RocksDB, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

import mqstore
from mqstore.cli.options import config_option, output_options, store_argument
from mqstore.text import count_text, escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import ConvertReport
    from mqstore.cli.output import Output

_KINDS = click.Choice(["file", "rocksdb"])


@click.command("convert", short_help="Move queues and index to RocksDB, or back.")
@store_argument
@click.option("--queues", type=_KINDS, help="Where the queues are to lie.")
@click.option("--index", type=_KINDS, help="Where the index is to lie.")
@click.option("--apply", is_flag=True, help="Do it; the old ones are kept in quarantine.")
@config_option
@output_options
def convert_command(
    output: Output,
    store: str,
    queues: Literal["file", "rocksdb"] | None,
    index: Literal["file", "rocksdb"] | None,
    apply: bool,  # noqa: FBT001 - click passes it by name
    config: str | None,
) -> int:
    """Move queues and index between files and RocksDB while no broker runs.

    Both are made from the log and held against it before they take the place of the old ones. Set
    `storeType` in the broker's configuration to match: `defaultRocksDB` for queues in RocksDB.
    Without --apply it only reports.
    """
    if queues is None and index is None:
        raise click.UsageError("--queues or --index: expected at least one of them.")
    report = mqstore.convert(store, queues=queues, index=index, dry_run=not apply, config=config)
    document = {
        "path": report.path,
        "queues": report.queues,
        "index": report.index,
        "applied": report.applied,
        "queue_count": report.queue_count,
        "messages": report.messages,
        "findings": [
            {"code": found.code, "severity": found.severity, "message": found.message}
            for found in report.findings
        ],
        "quarantine": report.quarantine,
        "quarantines": list(report.quarantines),
    }
    output.document(document, lambda: _lines(report))
    return 0


def _lines(report: ConvertReport) -> Iterator[str]:
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
