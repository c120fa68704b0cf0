"""``clean``: expired files."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import (
    config_option,
    output_options,
    print_report,
    storage_option,
    storage_options_of,
    store_argument,
)
from mqstore.cli.output import Column, note, table_lines
from mqstore.cli.units import TIME
from mqstore.store import settings_of
from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import CleanedFile, CleanReport
    from mqstore.cli.output import Output

_COLUMNS = (
    Column("fate"),
    Column("path"),
    Column("size", right=True),
    Column("reason"),
)


@click.command("clean", short_help="List files that may be deleted; delete them with --apply.")
@store_argument
@click.option(
    "--keep-hours",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="Delete files whose newest message was stored longer ago.",
)
@click.option(
    "--keep-bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Delete files with so many bytes of the log behind them.",
)
@click.option("--now", "now_ms", type=TIME, metavar="TIME", help="The time that counts.")
@click.option(
    "--only-backed-up",
    type=click.Path(),
    metavar="TARGET",
    help="Keep log files that the newest snapshot of a backup lacks.",
)
@click.option("--apply", is_flag=True, help="Delete what goes.")
@config_option
@storage_option
@output_options
@click.pass_context
def clean_command(
    ctx: click.Context,
    output: Output,
    store: str,
    keep_hours: int | None,
    keep_bytes: int | None,
    now_ms: int | None,
    only_backed_up: str | None,
    apply: bool,  # noqa: FBT001 - click passes it by name
    config: str | None,
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
    report = mqstore.clean(
        store,
        now_ms=now_ms,
        dry_run=not apply,
        only_backed_up=only_backed_up,
        config=settings,
        storage_options=storage_options_of(ctx),
    )
    document = {
        "path": report.path,
        "applied": report.applied,
        "log_start": report.log_start,
        "new_log_start": report.new_log_start,
        "freed_bytes": report.freed_bytes,
        "log_disk_percent": report.log_disk_percent,
        "queue_disk_percent": report.queue_disk_percent,
        "disk_full": report.disk_full,
        "disk": {**disk, "used_bytes_after": disk["used_bytes"] - report.freed_bytes},
        "unread": [asdict(unread) for unread in report.unread],
        "files": [_row(file) for file in report.files],
    }
    print_report(output, document, "files", lambda: _lines(report, disk))
    if report.disk_full:
        note("mqstore: the disk is so full that a store takes no messages")


def _row(file: CleanedFile) -> dict[str, object]:
    return {
        "path": file.path,
        "bytes": file.bytes,
        "delete": file.delete,
        "reason": file.reason,
    }


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


def _head(report: CleanReport, disk: dict[str, int]) -> Iterator[str]:
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


def _lines(report: CleanReport, disk: dict[str, int]) -> Iterator[str]:
    yield from _head(report, disk)
    yield ""
    rows = [
        {
            "fate": "delete" if file.delete else "keep",
            "path": file.path,
            "size": size_text(file.bytes),
            "reason": file.reason,
        }
        for file in report.files
    ]
    if rows:
        yield from table_lines(rows, _COLUMNS)
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
