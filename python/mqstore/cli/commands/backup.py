"""``sync``, ``snapshots``, ``restore`` and ``prune``: backups."""

from __future__ import annotations

import contextlib
import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

import mqstore
from mqstore import _native
from mqstore.cli import shared
from mqstore.cli.options import command, flag, option, output_options
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines, to_json
from mqstore.cli.progress import progress
from mqstore.files.durable import new_file
from mqstore.text import count_text, escape, size_text, time_text

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = columns(
    Column("id", title="SNAPSHOT"),
    Column("time_ms", time_text, title="TIME"),
    "timeline",
    Column("end_offset", right=True, title="LOG ENDS"),
    "bytes",
    Column("new_bytes", size_text, right=True, title="NEW"),
    Column("redact", lambda text: text or "", title="REDACTED"),
)
_FINDINGS = columns("code", "path", "expected", "found")
# The fields of a snapshot for programs.
_FIELDS = (
    *("id", "time_ms", "timeline", "begin_offset", "end_offset", "flushed_offset"),
    *("fork_offset", "bytes", "new_bytes", "source", "redact", "left_out"),
)
_target_argument = click.argument("target", type=click.Path())


@command("sync", short_help="Copy what is new of a store into a backup.")
@shared.store
@_target_argument
@option("--every", "DURATION", "Go on, with so long a pause: 60s.")
@option("--bytes bytes_per_s", "RATE", "Read at most: 50m/s.")
@flag("--verify", "Read back what was written, and copy again what was lost.")
@option("--compress", ["zstd"], "Compress what is written.")
@option("--redact", ["bodies"], "Keep zeros in the place of each body.")
@flag("--new-timeline", "Accept once a log that does not reach the backup's.")
@shared.health("Write the last success, and the last failure with its error, to a JSON file.")
@shared.storage
def sync_command(
    output: Output,
    store: str,
    target: str,
    every: timedelta | None,
    health: Path | None,
    **options: Any,
) -> None:
    """Copy what is new of a store into a backup, and write a snapshot of this moment.

    TARGET is a folder or a URL; an empty one is begun. A broker may run: no lock is taken, and what
    is read leaves the page cache. A sync that fails with --every is reported and tried again.

    Examples:
        mqstore sync /data/store /backup/store
        mqstore sync /data/store s3://bucket/store --every 60s --bytes 50m/s
    """
    if every is not None and every < timedelta(seconds=1):
        raise click.UsageError("--every: expected 1s or more.")
    # So that opening the store leaves nothing in the cache either.
    _native._spare_page_cache()  # noqa: SLF001 - our own
    state = _read_health(health)
    while True:
        now_ms, failed = time.time_ns() // 1_000_000, None
        try:
            report = mqstore.sync(store, target, **options)
            state |= {"last_success_ms": now_ms, "snapshot": report.snapshot}
            # It was for this sync: a log that is lost later is refused.
            options["new_timeline"] = False
        except (mqstore.StoreError, OSError) as error:
            state |= {"last_failure_ms": now_ms, "last_error": str(error)}
            failed = error
        _write_health(health, state)
        if failed is None:
            output.document(report, lambda: _sync_lines(report))  # noqa: B023 - called at once
            output.flush()
        elif every is None:
            raise failed
        else:
            note(f"mqstore: {failed}")
        if every is None:
            return
        time.sleep(every.total_seconds())


def _read_health(path: Path | None) -> dict[str, object]:
    """The state that an earlier process wrote."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        if path is not None and path.is_file():
            return dict(json.loads(path.read_text("utf-8")))
    return {}


def _write_health(path: Path | None, state: dict[str, object]) -> None:
    if path is not None:
        try:
            with new_file(path, overwrite=True) as temporary:
                temporary.write_text(to_json(state), "utf-8")
        except OSError as error:
            note(f"mqstore: --health {path}: {error.strerror}; the sync is not concerned")


def _sync_lines(report: mqstore.SyncReport) -> Lines:
    for line in report.damaged:
        yield f"damaged: {escape(line)}"
    if not report.is_new:
        yield f"nothing new since {report.snapshot}"
        return
    yield (
        f"{report.snapshot}: {size_text(report.new_bytes)} new, the log up to {report.end_offset}, "
        f"timeline {report.timeline}"
    )
    for line in report.left_out:
        yield f"left out: {escape(line)}"


@click.command("snapshots", short_help="List the snapshots of a backup.")
@_target_argument
@flag("--check", "Read and check every object instead.")
@shared.storage
@output_options
def snapshots_command(output: Output, target: str, check: bool, **options: Any) -> int:
    """List the snapshots of a backup; --check reads every object, and exits with 1 for damage.

    Examples:
        mqstore snapshots /backup/store
        mqstore snapshots /backup/store --check
    """
    if not check:
        rows = [
            {name: getattr(snapshot, name) for name in _FIELDS}
            for snapshot in mqstore.snapshots(target, **options)
        ]
        if output.form == "text":
            # With its heading where there is none.
            output.document(rows, lambda: table_lines(rows, _COLUMNS))
        else:
            output.rows(rows)
        return 0
    with progress("checking", unit="objects") as advance:
        report = mqstore.check_backup(target, progress=advance, **options)
    names = ("path", "ok", "findings", "counts")
    document = {name: getattr(report, name) for name in names}

    def lines() -> Lines:
        if report.findings:
            yield from table_lines(report.findings, _FINDINGS)
        snapshots, objects, size = (
            report.counts[name] for name in ("snapshots", "objects", "bytes")
        )
        of = f"{count_text(snapshots)} snapshots, {count_text(objects)} objects"
        yield f"{of} with {size_text(size)} are sound"

    output.document(document, lines, rows="findings")
    return int(not report.ok)


@click.command("restore", short_help="Make a store of a moment of a backup.")
@_target_argument
@shared.store
@option("--at", "TIME", "The store as it was then.")
@option("--snapshot", "ID", "The store as of a snapshot.")
@option("--to-offset", "OFFSET", "The log's end.")
@shared.topics(callback=shared.or_none)
@flag("--dry-run", "Only print the plan.")
@shared.storage
@output_options
def restore_command(output: Output, target: str, store: str, **options: Any) -> int:
    """Make a store of a moment of a backup, the newest snapshot's if none is given.

    STORE must be empty or not there. The store is verified at the end; an interrupted restore goes
    on when it is called again. With -t it has only messages of these topics, as a copy has.

    Examples:
        mqstore restore /backup/store /data/new --dry-run
        mqstore restore /backup/store /data/new --at -2h
    """
    if sum(options[name] is not None for name in ("at", "snapshot", "to_offset")) > 1:
        raise click.UsageError("--at, --snapshot and --to-offset exclude each other.")
    with progress("restoring") as advance:
        report = mqstore.restore(target, store, progress=advance, **options)
    output.document(report, lambda: _restore_lines(report))
    return int(any(finding.severity != "info" for finding in report.findings))


def _restore_lines(report: mqstore.RestoreReport) -> Lines:
    did = "restored" if report.applied else "would restore"
    of = f"{count_text(report.files)} files, {size_text(report.bytes)}"
    if report.messages is not None:
        of = f"{count_text(report.messages)} messages of {escape(', '.join(report.topics))}"
    log = f"the log from {report.begin_offset} to {report.end_offset}"
    yield f"{did} {of}: {log} of snapshot {report.snapshot}"
    for line in (*report.left_out, *([f"all {report.redact}"] if report.redact else [])):
        yield f"not in the backup: {escape(line)}"
    for finding in report.findings:
        yield f"{finding.severity}: {finding.code}: {escape(finding.message)}"
    if not report.applied:
        yield "nothing was written"


@click.command("prune", short_help="List old snapshots; delete them with --apply.")
@_target_argument
@option("--keep", "DURATION", "Keep snapshots so young: 7d.", required=True)
@option(
    "--keep-hourly",
    "COUNT",
    "Keep the newest snapshot of each of the last COUNT hours that have one, too.",
    type=click.IntRange(min=0),
    default=0,
    show_default=False,
)
@flag("--apply", "Delete what goes.")
@shared.storage
@output_options
def prune_command(output: Output, target: str, apply: bool, **options: Any) -> None:
    """List old snapshots of a backup, and objects that no other one needs; --apply deletes them.

    The newest snapshot stays, and so does an object for 24 hours. A sync may run.

    Examples:
        mqstore prune /backup/store --keep 7d
        mqstore prune /backup/store --keep 7d --keep-hourly 24 --apply
    """
    report = mqstore.prune(target, dry_run=not apply, **options)
    output.document(report, lambda: _prune_lines(report))


def _prune_lines(report: mqstore.PruneReport) -> Lines:
    did = "deleted" if report.applied else "would delete"
    yield (
        f"{did} {count_text(len(report.removed))} snapshots, and {count_text(report.objects)} "
        f"objects with {size_text(report.bytes)}; {count_text(len(report.kept))} snapshots stay"
    )
    if report.waiting:
        yield f"{count_text(report.waiting)} more objects go once they are 24 hours old"
    if not report.applied:
        yield "nothing was changed, --apply does it"
