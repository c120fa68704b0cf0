"""``sync``, ``snapshots``, ``restore`` and ``prune``: backups."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

import mqstore
from mqstore import _native
from mqstore.cli.commands.verify import finding_row
from mqstore.cli.options import (
    config_option,
    output_options,
    print_report,
    storage_option,
    storage_options_of,
    store_argument,
    topics_option,
)
from mqstore.cli.output import Column, note, table_lines, to_json
from mqstore.cli.progress import progress
from mqstore.cli.units import DURATION, RATE, TIME
from mqstore.files.new_file import new_file
from mqstore.text import count_text, escape, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import PruneReport, RestoreReport, Snapshot, SyncReport
    from mqstore.cli.output import Output

_COLUMNS = (
    Column("id", title="SNAPSHOT"),
    Column("time_ms", time_text, title="TIME"),
    Column("timeline"),
    Column("end_offset", right=True, title="LOG ENDS"),
    Column("bytes", size_text, right=True),
    Column("new_bytes", size_text, right=True, title="NEW"),
    Column("redact", lambda text: text or "", title="REDACTED"),
)
_FINDINGS = (Column("code"), Column("path"), Column("expected"), Column("found"))
_target_argument = click.argument("target", type=click.Path())


@click.command("sync", short_help="Copy what is new of a store into a backup.")
@store_argument
@_target_argument
@click.option(
    "--every", type=DURATION, metavar="DURATION", help="Go on, with so long a pause: 60s."
)
@click.option("--bytes", "bytes_per_s", type=RATE, metavar="RATE", help="Read at most: 50m/s.")
@click.option(
    "--verify", is_flag=True, help="Read back what was written, and copy again what was lost."
)
@click.option("--compress", type=click.Choice(["zstd"]), help="Compress what is written.")
@click.option(
    "--redact", type=click.Choice(["bodies"]), help="Keep zeros in the place of each body."
)
@click.option(
    "--new-timeline", is_flag=True, help="Accept once a log that does not reach the backup's."
)
@click.option(
    "--health",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the last success, and the last failure with its error, to a JSON file.",
)
@config_option
@storage_option
@output_options
@click.pass_context
def sync_command(
    ctx: click.Context,
    output: Output,
    store: str,
    target: str,
    every: int | None,
    bytes_per_s: int | None,
    verify: bool,  # noqa: FBT001 - click passes it by name
    compress: Literal["zstd"] | None,
    redact: Literal["bodies"] | None,
    new_timeline: bool,  # noqa: FBT001
    health: Path | None,
    config: str | None,
) -> None:
    """Copy what is new of a store into a backup, and write a snapshot of this moment.

    TARGET is a folder or a URL; an empty one is begun. A broker may run: no lock is taken, and what
    is read leaves the page cache. A sync that fails with --every is reported and tried again.
    """
    # So that opening the store leaves nothing in the cache either.
    _native._spare_page_cache()  # noqa: SLF001 - our own
    options = storage_options_of(ctx)
    state = _read_health(health)
    while True:
        now_ms, failed = time.time_ns() // 1_000_000, None
        try:
            report = mqstore.sync(
                store, target, config=config, verify=verify, compress=compress, redact=redact,
                bytes_per_s=bytes_per_s, new_timeline=new_timeline, storage_options=options,
            )  # fmt: skip
            state |= {"last_success_ms": now_ms, "snapshot": report.snapshot}
            new_timeline = False  # it was for this sync: a log that is lost later is refused
        except (mqstore.StoreError, OSError) as error:
            state |= {"last_failure_ms": now_ms, "last_error": str(error)}
            failed = error
        _write_health(health, state)
        if failed is None:
            output.document(asdict(report), lambda: _sync_lines(report))  # noqa: B023 - called at once
            output.flush()
        elif every is None:
            raise failed
        else:
            note(f"mqstore: {failed}")
        if every is None:
            return
        time.sleep(every)


def _read_health(path: Path | None) -> dict[str, object]:
    """The state that an earlier process wrote."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return dict(json.loads(path.read_text("utf-8"))) if path is not None else {}
    return {}


def _write_health(path: Path | None, state: dict[str, object]) -> None:
    if path is not None:
        try:
            with new_file(path, overwrite=True) as temporary:
                temporary.write_text(to_json(state), "utf-8")
        except OSError as error:
            note(f"mqstore: --health {path}: {error.strerror}; the sync is not concerned")


def _sync_lines(report: SyncReport) -> Iterator[str]:
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
@click.option("--check", is_flag=True, help="Read and check every object instead.")
@storage_option
@output_options
@click.pass_context
def snapshots_command(ctx: click.Context, output: Output, target: str, check: bool) -> int:  # noqa: FBT001
    """List the snapshots of a backup; --check reads every object, and exits with 1 for damage."""
    options = storage_options_of(ctx)
    if not check:
        found = mqstore.snapshots(target, storage_options=options)
        rows = [_snapshot_row(snapshot) for snapshot in found]
        if output.form == "text":
            for line in table_lines(rows, _COLUMNS):
                output.line(line)
        else:
            output.rows(iter(rows))
        return 0
    with progress("checking", unit="objects") as advance:
        report = mqstore.check_backup(target, progress=advance, storage_options=options)
    document = {
        "path": report.path,
        "ok": report.ok,
        "findings": [finding_row(finding) for finding in report.findings],
        "counts": report.counts,
    }

    def lines() -> Iterator[str]:
        if report.findings:
            yield from table_lines(document["findings"], _FINDINGS)  # type: ignore[arg-type]
        counts = report.counts
        yield (
            f"{count_text(counts['snapshots'])} snapshots, {count_text(counts['objects'])} objects "
            f"with {size_text(counts['bytes'])} are sound"
        )

    print_report(output, document, "findings", lines)
    return int(not report.ok)


def _snapshot_row(snapshot: Snapshot) -> dict[str, Any]:
    names = ("id", "time_ms", "timeline", "begin_offset", "end_offset", "flushed_offset",
             "fork_offset", "bytes", "new_bytes", "source", "redact")  # fmt: skip
    row = {name: getattr(snapshot, name) for name in names}
    return {**row, "left_out": list(snapshot.left_out)}


@click.command("restore", short_help="Make a store of a moment of a backup.")
@_target_argument
@click.argument("store", type=click.Path())
@click.option("--at", type=TIME, metavar="TIME", help="The store as it was then.")
@click.option("--snapshot", metavar="ID", help="The store as of a snapshot.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="The log's end.")
@topics_option()
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@storage_option
@output_options
@click.pass_context
def restore_command(
    ctx: click.Context,
    output: Output,
    target: str,
    store: str,
    at: int | None,
    snapshot: str | None,
    to_offset: int | None,
    topics: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001
) -> int:
    """Make a store of a moment of a backup, the newest snapshot's if none is given.

    STORE must be empty or not there. The store is verified at the end; an interrupted restore goes
    on when it is called again. With -t it has only messages of these topics, as a copy has.
    """
    if sum(given is not None for given in (at, snapshot, to_offset)) > 1:
        raise click.UsageError("--at, --snapshot and --to-offset exclude each other.")
    with progress("restoring") as advance:
        report = mqstore.restore(
            target, store, at=at, snapshot=snapshot, to_offset=to_offset,
            topics=topics or None, dry_run=dry_run, progress=advance,
            storage_options=storage_options_of(ctx),
        )  # fmt: skip
    document = {**asdict(report), "findings": [finding_row(f) for f in report.findings]}
    output.document(document, lambda: _restore_lines(report))
    return int(any(finding.severity != "info" for finding in report.findings))


def _restore_lines(report: RestoreReport) -> Iterator[str]:
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
@click.option(
    "--keep", type=DURATION, required=True, metavar="DURATION", help="Keep snapshots so young: 7d."
)
@click.option(
    "--keep-hourly",
    type=click.IntRange(min=0),
    default=0,
    metavar="COUNT",
    help="Keep the newest snapshot of each of the last COUNT hours that have one, too.",
)
@click.option("--apply", is_flag=True, help="Delete what goes.")
@storage_option
@output_options
@click.pass_context
def prune_command(
    ctx: click.Context,
    output: Output,
    target: str,
    keep: int,
    keep_hourly: int,
    apply: bool,  # noqa: FBT001
) -> None:
    """List old snapshots of a backup, and objects that no other one needs; --apply deletes them.

    The newest snapshot stays, and so does an object for 24 hours. A sync may run.
    """
    report = mqstore.prune(
        target, keep=timedelta(seconds=keep), keep_hourly=keep_hourly, dry_run=not apply,
        storage_options=storage_options_of(ctx),
    )  # fmt: skip
    output.document(asdict(report), lambda: _prune_lines(report))


def _prune_lines(report: PruneReport) -> Iterator[str]:
    did = "deleted" if report.applied else "would delete"
    yield (
        f"{did} {count_text(len(report.removed))} snapshots, and {count_text(report.objects)} "
        f"objects with {size_text(report.bytes)}; {count_text(len(report.kept))} snapshots stay"
    )
    if report.waiting:
        yield f"{count_text(report.waiting)} more objects go once they are 24 hours old"
    if not report.applied:
        yield "nothing was changed, --apply does it"
