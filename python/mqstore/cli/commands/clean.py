"""``clean``: expired files."""

from __future__ import annotations

import os
from typing import Any

import click

import mqstore
from mqstore.cli.options import (
    config_option,
    flag,
    option,
    output_options,
    storage_option,
    store_argument,
)
from mqstore.cli.output import Column, Lines, Output, as_document, columns, note, table_lines
from mqstore.cli.units import COUNT, TIME
from mqstore.store import settings_of
from mqstore.text import count_text, escape, size_text

_COLUMNS = columns(
    Column("delete", lambda goes: "delete" if goes else "keep", title="FATE"),
    "path",
    Column("bytes", size_text, right=True, title="SIZE"),
    "reason",
)


@click.command("clean", short_help="List files that may be deleted; delete them with --apply.")
@store_argument
@option(
    "--keep-hours",
    "HOURS",
    "Delete files whose newest message was stored longer ago.",
    type=COUNT,
)
@option(
    "--keep-bytes", "BYTES", "Delete files with so many bytes of the log behind them.", type=COUNT
)
@option("--now now_ms", "TIME", "The time that counts.", type=TIME)
@option(
    "--only-backed-up",
    "TARGET",
    "Keep log files that the newest snapshot of a backup lacks.",
    type=click.Path(),
)
@flag("--apply", "Delete what goes.")
@config_option
@storage_option
@output_options
def clean_command(
    output: Output,
    store: str,
    keep_hours: int | None,
    keep_bytes: int | None,
    apply: bool,
    config: str | None,
    **options: Any,
) -> None:
    """Say of each file of a store whether it is deleted or kept, and why; --apply deletes.

    Files of the log go from the front, by the limits that are given here or as keep_hours and
    keep_bytes in --config. Without limits RocketMQ's rules and settings hold: files go that were
    last written longer ago than fileReservedTime, and on a disk that is too full the oldest
    whatever their age. Queue and index files follow that lead to nothing any more. Messages that
    go before a consumer group has read them are listed. With --only-backed-up a file of the log
    goes only after each byte of it was compared with the newest snapshot of that backup.
    """
    limits = {"keep_hours": keep_hours, "keep_bytes": keep_bytes}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    settings: dict[str, object] = {**settings_of(config), **given}
    if given:
        # An option overrides the rule in the file.
        settings.pop("retention", None)
    disk = _disk(store)
    report = mqstore.clean(store, dry_run=not apply, config=settings, **options)
    used_after = disk["used_bytes"] - report.freed_bytes
    document = as_document(report) | {"disk": {**disk, "used_bytes_after": used_after}}
    output.document(document, lambda: _lines(report, disk), rows="files")
    if report.disk_full:
        note("mqstore: the disk is so full that a store takes no messages")


def _disk(store: str) -> dict[str, int]:
    """The size of the store's file system, and how much of it is used."""
    try:
        found = os.statvfs(store)
    except OSError:
        return {"total_bytes": 0, "used_bytes": 0}  # no store: cleaning it says so
    return {
        "total_bytes": found.f_blocks * found.f_frsize,
        "used_bytes": (found.f_blocks - found.f_bfree) * found.f_frsize,
    }


def _head(report: mqstore.CleanReport, disk: dict[str, int]) -> Lines:
    """Disk use before and after, and which groups have not read what goes."""
    total = disk["total_bytes"]

    def share(size: int) -> str:
        return f"{size_text(size)} ({100 * size / total:.1f} %)" if total else size_text(size)

    used, freed = disk["used_bytes"], report.freed_bytes
    files = sum(file.bytes for file in report.files)
    yield f"disk         {share(used)} used before, {share(used - freed)} after"
    yield f"files below  {size_text(files)} before, {size_text(files - freed)} after"
    for unread in report.unread:
        queue = escape(f"{unread.topic}/{unread.queue_id}")
        count = count_text(unread.messages)
        yield f"group {escape(unread.group)} has not read {count} messages of {queue} that go"


def _lines(report: mqstore.CleanReport, disk: dict[str, int]) -> Lines:
    yield from _head(report, disk)
    yield ""
    if report.files:
        yield from table_lines(report.files, _COLUMNS)
        yield ""
    going = sum(file.delete for file in report.files)
    if not going:
        yield "nothing to delete"
        return
    what = f"{count_text(going)} file{'' if going == 1 else 's'}, {size_text(report.freed_bytes)}"
    if report.applied:
        yield f"deleted {what}; the log begins at {report.new_log_start}"
    else:
        yield f"would delete {what}; nothing was changed, --apply does it"
