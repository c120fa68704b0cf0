"""``recover``, ``rebuild``, ``clean`` and ``convert``: mend a store, and keep it small."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import Any

import click

import mqstore
from mqstore.cli import shared
from mqstore.cli.names import check_topics
from mqstore.cli.options import command, flag, open_to_change, option, several
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.cli.quarantine import folders, kept_messages, put_back
from mqstore.results import as_document
from mqstore.store import settings_of
from mqstore.text import count_text, duration_text, escape, size_text

_UNREAD = "not read, since name and records do not tell their place"
_KEPT = columns(
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp_ms",
    "keys",
    Column("in_log", lambda known: "yes" if known else "no", title="IN THE LOG"),
    "folder",
)
_STATES = {"new": "there was no store", "clean": "cleanly closed", "crash": "not closed"}


@command("recover", short_help="Plan the recovery of a store; run it with --apply.")
@shared.store
@flag("--apply", "Do it, and close the store cleanly.")
@flag(
    "--drop-beyond",
    "End the log at damage although whole messages lie behind it; they go to the quarantine.",
)
@flag("--quarantine", "List the messages that repairs put aside; with --apply put them back.")
def recover_command(
    output: Output, store: str, apply: bool, quarantine: bool, **options: Any
) -> int:
    """Say what recovery would do to a store: what it cuts, keeps aside and makes again.

    With --apply it is done. Where whole messages lie behind damage, or files are missing at the
    log's end, it refuses: `mqstore salvage` copies out every whole message. With --drop-beyond the
    log ends there, and they are kept in the store's folder `quarantine`. Without --apply nothing is
    changed; exits with 1 where it would refuse.

    With --quarantine the messages in that folder are listed, and with --apply appended to the log
    again, with new queue offsets; those of transactions stay there. Run again after it was stopped,
    it appends only what is left.

    Examples:
        mqstore recover /data/store
        mqstore recover /data/store --apply
    """
    if quarantine:
        return _quarantine(output, store, apply=apply, config=options["config"])
    with progress("recovering" if apply else "reading") as advance:
        report = mqstore.recover(store, dry_run=not apply, progress=advance, **options)
    output.document(report, lambda: _recover_lines(report), rows="quarantined_messages")
    return int(report.damage is not None)


def _quarantine(output: Output, store: str, *, apply: bool, config: str | None) -> int:
    """Lists what is in the quarantine, or puts it back."""
    with (open_to_change if apply else mqstore.open)(store, config=config) as opened:
        for warning in opened.warnings if apply else ():
            note(f"mqstore: {escape(warning)}")
        if not folders(store):
            note(f"mqstore: no messages in the quarantine of {escape(store)}")
        if not apply:
            unread: list[str] = []
            output.rows(kept_messages(store, opened, unread), _KEPT)
            for path in unread:
                note(f"mqstore: {_UNREAD}: {escape(path)}")
            return int(bool(unread))
        done = put_back(store, opened)
    text = [
        f"{count_text(done.put_back)} messages put back at the end of the log",
        f"{count_text(done.in_log)} were in the log already",
    ]
    if done.left_out:
        left_out = count_text(done.left_out)
        text.append(f"{left_out} of transactions were left out: they stay in the folder")
    text += [f"done: {escape(folder)}" for folder in done.folders]
    text += [f"{_UNREAD}: {escape(path)}" for path in done.unread]
    output.document(done, lambda: text)
    return int(bool(done.unread))


def _recover_lines(report: mqstore.RecoveryReport) -> Lines:
    yield f"found            {_STATES[report.mode]}"
    yield f"log ends at      {report.end_physical_offset}"
    if report.cut:
        yield f"cut behind it    {size_text(report.cut)}"
        yield f"whole messages   {count_text(report.quarantined_count)} in that"
        if report.cut_reason is not None:
            yield f"because of       {escape(report.cut_reason)}"
    if report.quarantine is not None:
        yield f"kept in          {escape(report.quarantine)}"
    for name in report.rebuilt:
        yield f"made again       {escape(name)}"
    yield from (f"warning          {escape(text)}" for text in report.warnings)
    yield ""
    if report.damage is not None:
        yield f"recovery refuses: {escape(report.damage)}"
        yield f"whole messages beyond: {count_text(report.messages_beyond)}"
        yield f"what helps: {report.cure}"
    elif report.applied:
        yield "recovered, and cleanly closed"
    elif report.mode == "clean" and not (report.cut or report.rebuilt or report.warnings):
        yield "nothing to do"
    else:
        yield "nothing was changed; --apply does it, and so does opening for writing"


_REBUILD_COLUMNS = columns(
    "topic", "queue_id", Column("entries", right=True), "min_offset", "max_offset", "before"
)
_TOPIC_COLUMNS = columns(
    Column("name", title="TOPIC"),
    Column("queues", right=True),
    "kind",
    Column("was", right=True, title="BEFORE"),
)


@command("rebuild", short_help="Make queues and index again from the log.")
@shared.store
@several(
    "--what",
    ["consumequeue", "index", "topics"],
    "Only this; queues and index if left out. May be repeated; topics (topics.json) goes alone.",
)
@shared.topics("Only this topic's queues; may be repeated. The index always has all topics.")
@option("--out", "DIR", "Make them in this new or empty folder; the store is only read.")
@flag("--apply", "Replace those of the store, which are kept aside.")
@shared.threads
def rebuild_command(
    output: Output,
    store: str,
    what: tuple[str, ...],
    topics: tuple[str, ...],
    out: str | None,
    apply: bool,
    **options: Any,
) -> int:
    """Rebuild consume queues and index files from the commit log alone, or topics.json.

    Without --apply or --out it only reports the result. Replaced files are kept in the store's
    folder `quarantine`. topics.json is made of the queues and the log: each topic with as many
    queues as are in use; entries that can be read stay.

    Examples:
        mqstore rebuild /data/store --what index --apply
        mqstore rebuild /data/store --what topics --apply
    """
    if "topics" in what and len(set(what)) > 1:
        raise click.UsageError("--what topics goes alone.")
    if apply and out is not None:
        raise click.UsageError("--apply and --out exclude each other.")
    if topics:
        # Rebuilding may cure what keeps a store from being opened, and refuses these names itself.
        with suppress(mqstore.StoreError), mqstore.open(store, config=options["config"]) as opened:
            # No message is of a light queue's topic.
            check_topics(opened, [topic for topic in topics if not topic.startswith("%LMQ%")])
    began = time.monotonic()
    with progress("rebuilding" if apply or out else "reading") as advance:
        report = mqstore.rebuild(
            store,
            what=tuple(dict.fromkeys(what)) or ("consumequeue", "index"),
            topics=topics or None,
            out=out,
            dry_run=not apply and out is None,
            progress=advance,
            **options,
        )
    took = time.monotonic() - began
    output.document(report, lambda: _rebuild_lines(report), rows="queues")
    read = report.log_end - report.log_start
    note(f"read {size_text(read)} of log in {duration_text(took)}")
    for line in _notes(report):
        note(f"mqstore: {line}")
    return 1 if report.damaged or report.refused or report.skipped_ranges else 0


def _rebuild_lines(report: mqstore.RebuildReport) -> Lines:
    yield f"messages         {count_text(report.messages)}"
    if "index" in report.what:
        yield f"keys             {count_text(report.index_keys)}"
    if report.queues:
        yield ""
        rows = [as_document(queue) | {"before": _before(queue)} for queue in report.queues]
        yield from table_lines(rows, _REBUILD_COLUMNS)
    if report.topics:
        yield ""
        yield from table_lines(report.topics, _TOPIC_COLUMNS)
    yield ""
    if not report.applied:
        yield "nothing was changed; --apply replaces them, --out DIR makes them elsewhere"
    elif report.out is not None:
        yield f"made in {escape(report.out)}"
    elif report.quarantine is not None:
        yield f"replaced; the old ones are in {escape(report.quarantine)}"
    else:
        yield "made; there were none before"


def _before(queue: mqstore.RebuiltQueue) -> str:
    if queue.was is None:
        return "none"
    if queue.was == (queue.min_offset, queue.max_offset):
        return "same span"
    return f"{queue.was[0]} to {queue.was[1]}"


def _notes(report: mqstore.RebuildReport) -> Lines:
    if report.damaged:
        begin, end = report.damaged[0]
        yield (
            f"{count_text(len(report.damaged))} damaged part(s) of the log have no entry, the "
            f"first at physical offset {begin}, {end - begin} bytes: `mqstore verify` lists them"
        )
    if report.skipped_ranges:
        yield (
            f"{count_text(report.skipped_ranges)} damaged part(s) of the log were skipped; a topic "
            "whose messages all lay there is not in the table"
        )
    if report.kept:
        topic, queue_id = report.kept[0]
        yield (
            f"{count_text(len(report.kept))} queue(s) without a message in the log keep their last "
            f"file, such as queue {queue_id} of {escape(topic)}"
        )
    if report.refused:
        yield f"{count_text(report.refused)} entries fit no queue: `mqstore verify` names them"
    if report.left_out:
        yield (
            f"{count_text(report.left_out)} entries of light queues were left out: --config with "
            "enableLmq=true and enableMultiDispatch=true makes them"
        )


_CLEAN_COLUMNS = columns(
    Column("delete", lambda goes: "delete" if goes else "keep", title="FATE"),
    "path",
    Column("bytes", size_text, right=True, title="SIZE"),
    "reason",
)


@command("clean", short_help="List files that may be deleted; delete them with --apply.")
@shared.store
@option("--keep-hours", "HOURS", "Delete files whose newest message was stored longer ago.")
@option("--keep-bytes", "BYTES", "Delete files with so many bytes of the log behind them.")
@option("--now now_ms", "TIME", "The time that counts.")
@option(
    "--only-backed-up",
    "TARGET",
    "Keep log files that the newest snapshot of a backup lacks.",
    type=click.Path(),
)
@flag("--apply", "Delete what goes.")
@shared.storage
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

    Examples:
        mqstore clean /data/store --keep-hours 72
        mqstore clean /data/store --keep-hours 72 --apply
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
    output.document(document, lambda: _clean_lines(report, disk), rows="files")
    if report.disk_full:
        note("mqstore: the disk is so full that a store takes no messages")


def _disk(store: str) -> dict[str, int]:
    """The size of the store's file system, and how much of it is used."""
    try:
        total, used, _ = shutil.disk_usage(store)
    except OSError:
        return {"total_bytes": 0, "used_bytes": 0}  # no store: cleaning it says so
    return {"total_bytes": total, "used_bytes": used}


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


def _clean_lines(report: mqstore.CleanReport, disk: dict[str, int]) -> Lines:
    yield from _head(report, disk)
    yield ""
    if report.files:
        yield from table_lines(report.files, _CLEAN_COLUMNS)
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


_KINDS = ("file", "rocksdb")


@command("convert", short_help="Move queues and index to RocksDB, or back.")
@shared.store
@option("--queues", _KINDS, "Where the queues are to lie.")
@option("--index", _KINDS, "Where the index is to lie.")
@flag("--apply", "Do it; the old ones are kept in quarantine.")
def convert_command(output: Output, store: str, apply: bool, **options: Any) -> None:
    """Move queues and index between files and RocksDB while no broker runs.

    Both are made from the log and held against it before they take the place of the old ones. Set
    `storeType` in the broker's configuration to match: `defaultRocksDB` for queues in RocksDB.
    Without --apply it only reports.

    Examples:
        mqstore convert /data/store --queues file
        mqstore convert /data/store --queues rocksdb --apply
    """
    if options["queues"] is None and options["index"] is None:
        raise click.UsageError("--queues or --index: expected at least one of them.")
    report = mqstore.convert(store, dry_run=not apply, **options)
    names = ("code", "severity", "message")
    findings = [{name: getattr(found, name) for name in names} for found in report.findings]
    output.document(as_document(report) | {"findings": findings}, lambda: _convert_lines(report))


def _convert_lines(report: mqstore.ConvertReport) -> Lines:
    for found in report.findings:
        yield f"before: {found.code} {found.severity}: {escape(found.message)}"
    done = "moved" if report.applied else "would be moved"
    names = {"file": "files", "rocksdb": "RocksDB"}
    if report.queues is not None:
        queues, messages = count_text(report.queue_count), count_text(report.messages)
        yield f"{queues} queues of {messages} messages {done} to {names[report.queues]}"
        kind = "defaultRocksDB" if report.queues == "rocksdb" else "default"
        yield f"the broker needs storeType={kind}"
    if report.index is not None:
        yield f"the index {done} to {names[report.index]}"
    for folder in report.quarantines:
        yield f"old ones are kept in {escape(folder)}"
    if not report.applied:
        yield "nothing was changed; --apply does it"
