"""``export``, ``import``, ``copy``, ``diff``, ``salvage``: from one store or file into another."""

from __future__ import annotations

import shlex
import shutil
from contextlib import closing
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import mqstore
from mqstore import _native
from mqstore.cli import shared
from mqstore.cli.messages import note_skipped
from mqstore.cli.names import refusals
from mqstore.cli.options import FILE, command, flag, option, read_argument, read_command, several
from mqstore.cli.output import Column, Lines, Output, Rows, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.files.layout import LogFiles, log_folders
from mqstore.results import as_document
from mqstore.store import _broker_conf, has_scheme, is_remote
from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import Difference, Store, StoredMessage
    from mqstore.cli.progress import Advance


@read_command("export", short_help="Write messages, configuration and offsets to files.")
@click.argument("target", type=click.Path())
@option(
    "--format",
    ["jsonl", "parquet", "arrow"],
    "How the messages are written; parquet and arrow need mqstore[parquet].",
    default="jsonl",
)
@shared.topics(callback=shared.or_none)
@shared.tags
@shared.begin_end
@option(
    "--on-error",
    ["raise", "skip", "report"],
    "At damage: end there, skip it, or also list it in TARGET/damage.jsonl.",
    default="raise",
)
@flag("--skip-damage", "The same as --on-error skip.")
@shared.allow_empty
def export_command(
    output: Output, store: str, target: str, skip_damage: bool, **options: Any
) -> int:
    """Write a store's messages to the new folder TARGET, its configuration and offsets with them.

    `mqstore import TARGET STORE` gives the same messages again. The store is only read.

    Examples:
        mqstore export /data/store /backup/store
        mqstore export /data/store /backup/orders -t orders --format parquet
    """
    if skip_damage and options["on_error"] == "raise":
        options["on_error"] = "skip"
    with refusals(), progress("exporting") as advance:
        report = mqstore.export_store(store, target, progress=advance, **options)
    output.document(report, lambda: report_lines(report))
    is_listed = options["on_error"] == "report"
    lists = f"`{target}/damage.jsonl`" if is_listed else "`mqstore verify`"
    return note_skipped(report.skipped_ranges, report.skipped_bytes, lists)


@command("import", short_help="Make a store of an export.")
@click.argument("source", type=click.Path())
@shared.store
def import_command(output: Output, source: str, store: str, config: str | None) -> None:
    """Create the store STORE from an export, or from a file .jsonl, .parquet or .arrow.

    Messages of a complete export keep their offsets. Messages of a partial export are numbered
    from 0, and consumer offsets are adapted.

    Examples:
        mqstore import /backup/store /data/new
        mqstore import messages.jsonl /data/new --config broker.conf
    """
    report = mqstore.import_store(source, store, config=config)
    output.document(report, lambda: report_lines(report))


_QUEUES = columns(
    "topic",
    "queue_id",
    *(Column(name, count_text, right=True) for name in ("same", "missing", "extra", "different")),
)
_MESSAGES = columns(
    Column("kind", title=""),
    "topic",
    "queue_id",
    "queue_offset",
    Column("fields", ", ".join, title="WHAT DIFFERS"),
)
_LEFT_AS_IS = columns(
    "topic", "messages", Column("bodies", count_text, right=True), Column("properties", " ".join)
)
_LOST = columns(
    "topic", "queue_id", "queue_offset", "store_timestamp_ms", "tags", "keys", "unique_key"
)
# Fields of a lost message, if the first store has it.
_FOUND = ("store_timestamp_ms", "tags", "keys", "unique_key")
# More messages than this are for programs.
_MOST_SHOWN = 20


@read_command("copy", short_help="Copy a store or a part of it into a new one.")
@click.argument("out", type=click.Path())
@shared.topics(callback=shared.or_none)
@shared.tags
@several(
    "--key keys",
    "KEY",
    "Only messages with this key; repeat --key for several.",
    callback=shared.or_none,
)
@shared.begin_end
@flag("--renumber", "Number each queue from 0 on.")
@option(
    "--redact", "RULES", "A TOML file of what takes the place of bodies and properties.", type=FILE
)
@option(
    "--redact-default",
    ["zeros", "drop"],
    "Replace by zeros, or drop, bodies and properties that no rule of --redact replaces.",
)
@shared.allow_empty
def copy_command(output: Output, store: str, out: str, **options: Any) -> None:
    """Copy a store, or the messages asked for, into the new store OUT, which a broker can serve.

    Configuration and consumer offsets come along. Queue offsets stay; where a message was left out
    between others an empty one stands in for it, unless --renumber closes the gap. A topic that was
    deleted stays deleted, unless --topic names it.

    Examples:
        mqstore copy /data/store /data/part -t orders --from -1d
        mqstore copy /data/store /data/shared --redact rules.toml --redact-default zeros
    """
    with refusals(), progress("copying") as advance:
        report = mqstore.copy(store, out, progress=advance, **options)
    output.document(report, lambda: _copy_lines(report))


def _copy_lines(report: mqstore.CopyReport) -> Lines:
    fields = as_document(report)
    left_as_is = fields.pop("left_as_is")
    yield from report_lines(fields)
    if left_as_is:
        yield ""
        yield "left as it is, since no rule replaces it:"
        yield from table_lines(left_as_is, _LEFT_AS_IS)


@command("diff", short_help="Compare the messages of two stores.")
@read_argument("a")
@read_argument("b", has_options=False)
@flag("--lost", "Only list the messages that B lacks, with their keys.")
def diff_command(output: Output, a: str, b: str, lost: bool, config: str | None) -> int:
    """Compare two stores queue by queue: what B lacks, has beside, or has with other content.

    Exits with 1 where they differ; with --lost, where B lacks a message or has an empty one that
    stands in for it. Where a message lies in the log makes no difference.

    Examples:
        mqstore diff /data/store /backup/store
        mqstore diff /data/a /data/b --lost
    """
    with progress("comparing", unit="queues") as advance:
        report = mqstore.diff(a, b, progress=advance, config=config)
    if lost:
        with mqstore.open(a, config=config) as first, mqstore.open(b, config=config) as second:
            count = output.rows(_lost_rows(first, second, report), _LOST)
        unlisted = sum(queue.missing + queue.extra + queue.different for queue in report.differing)
        if unlisted > len(report.differences):
            note(f"only the first {count_text(len(report.differences))} differences were looked at")
        return int(bool(count or report.missing))
    output.document(report, lambda: _diff_lines(report), rows="differences")
    return int(not report.ok)


def _lost_rows(first: Store, second: Store, report: mqstore.DiffReport) -> Rows:
    """The messages that the second store lacks, as the first has them."""

    def message(store: Store, found: Difference) -> StoredMessage | None:
        read = store.read(found.topic, found.queue_id, found.queue_offset, max_messages=1)
        return read.messages[0] if read.messages else None

    for found in report.differences:
        if found.kind == "extra":
            continue
        if found.kind == "different":
            there = message(second, found)
            if there is None or "MQSTORE_LEFT_OUT" not in there.properties:
                continue
        lost = message(first, found)
        yield {
            "topic": found.topic,
            "queue_id": found.queue_id,
            "queue_offset": found.queue_offset,
            **{name: getattr(lost, name, None) for name in _FOUND},
        }


def _diff_lines(report: mqstore.DiffReport) -> Lines:
    if report.differing:
        yield from table_lines(report.differing, _QUEUES)
        yield ""
        shown = report.differences[:_MOST_SHOWN]
        yield from table_lines(shown, _MESSAGES)
        total = report.missing + report.extra + report.different
        if total > len(shown):
            yield f"... {count_text(total)} in all; --jsonl lists them"
        yield ""
    same = count_text(report.messages)
    if report.ok:
        yield f"all {same} messages in {count_text(report.queues)} queues are the same"
    else:
        yield f"{same} messages are the same"


_FILES = columns(
    Column("path", title="FILE"),
    "bytes",
    "messages",
    Column("message_bytes", size_text, right=True, title="THEIR BYTES"),
    Column("other_ranges", count_text, right=True, title="OTHER RANGES"),
    Column("other_bytes", size_text, right=True, title="THEIR BYTES"),
)
_KNOWN_LOST = columns(
    "topic", "queue_id", "queue_offset", "store_timestamp_ms", "keys", "unique_key"
)
_MOST_NAMED = 20
_MOST_LISTED = 10_000


@command("salvage", short_help="Copy whole messages out of damaged files.")
@read_argument("source")
@option("--out", "DIR", "The new store to make of them.")
def salvage_command(output: Output, source: str, out: str | None, config: str | None) -> int:
    """Find every whole message in SOURCE, and with --out make a new store of them.

    SOURCE is a store, a folder with commit log files, a file, or a link to one: damaged, cut,
    renamed or joined, or the image of a disk. It is only read. Without --out nothing is written.

    With --out it exits with 0 when it saved every whole message, also where others are lost; with 1
    where a part of SOURCE could not be read or a process writes to it. Without --out it exits with
    1 where something other than whole messages was found, or one is missing. Messages that the
    source's queues know and that were not found are listed: topic, queue, queue offset, and the
    keys where they can still be read.

    Examples:
        mqstore salvage /data/store
        mqstore salvage /data/disk.img --out /data/saved
    """
    with progress("salvaging") as advance:
        report = mqstore.salvage(source, out, progress=advance, config=config)
    damaged = any(found.other_ranges or found.left for found in report.files)
    lacking = report.missing or report.conflict_count or report.passed_over_count
    with progress("looking for what is lost", unit="queues") as advance:
        found_lost = lost_messages(source, advance, config)
        lost = list(islice(found_lost, _MOST_LISTED))
        lost_count = len(lost) + sum(1 for _ in found_lost)
    document = as_document(report) | {
        "lost_count": lost_count,
        "lost": lost,
        "next": _next(report, config),
    }
    output.document(document, lambda: _salvage_lines(report, lost, lost_count), rows="files")
    if out is None:
        beside = Path() if is_remote(source) else Path(source).absolute().parent
        free = shutil.disk_usage(beside).free
        note(
            f"nothing was written; --out DIR makes a store of them: it needs about "
            f"{size_text(report.space_bytes)}, {size_text(free)} are free beside SOURCE"
        )
    if report.in_use:
        note(
            "a process writes to SOURCE: what it wrote since the salvage began is left behind; "
            "stop it and salvage again before the result takes its place"
        )
    note(f"next: {' ; '.join(_next(report, config))}")
    if out is not None:
        return int(
            report.in_use or bool(report.problems) or any(found.left for found in report.files)
        )
    return 1 if damaged or lacking or report.problems or lost else 0


def _next(report: mqstore.SalvageReport, config: str | None) -> list[str]:
    """The commands to go on with, in order."""
    is_url = has_scheme(report.source)
    source = Path(PurePosixPath(report.source).name if is_url else report.source)
    given = _broker_conf(config)
    if report.out is None:
        out = shlex.quote(f"{source}.salvaged")
        return [f"mqstore salvage {shlex.quote(report.source)} --out {out}{given}"]
    commands = [f"mqstore doctor {shlex.quote(report.out)}{given}"]
    if report.in_use:
        return commands
    own = source.absolute() / "commitlog"  # where a salvaged store has its log
    log = log_folders(report.source, config)
    if own.is_dir() and all(folder.absolute() == own for folder in log):
        moves = _native._swap_commands(report.source, report.out)  # noqa: SLF001 - our own
        commands += [move + given if move.startswith("mqstore ") else move for move in moves]
    return commands


def _salvage_lines(report: mqstore.SalvageReport, lost: list[Lost], lost_count: int) -> Lines:
    yield from table_lines(report.files, _FILES)
    yield ""
    counted = f"{count_text(report.messages)} whole messages, {size_text(report.bytes)}"
    yield f"{counted}, in {count_text(report.queues)} queues"
    if report.duplicates:
        yield f"{count_text(report.duplicates)} were found more than once, and are counted once"
    if report.conflict_count:
        yield f"{count_text(report.conflict_count)} name the place of another; both are kept:"
        for found in report.conflicts[:_MOST_NAMED]:
            yield escape(
                f"  {found.physical_offset}: {found.first_path} byte {found.first_offset}, "
                f"{found.second_path} byte {found.second_offset}"
            )
    if report.missing:
        kept = f"; {count_text(report.stand_ins)} stand-ins keep the others' offsets"
        missing = f"{count_text(report.missing)} queue offsets have no message"
        yield f"{missing}{kept if report.stand_ins else ''}"
    if report.renumbered:
        which = ", ".join(f"{topic}/{queue}" for topic, queue in report.renumbered[:_MOST_NAMED])
        more = len(report.renumbered) - _MOST_NAMED
        rest = f" and {count_text(more)} more" if more > 0 else ""
        yield escape(f"numbered anew, as they cannot keep their numbers: {which}{rest}")
    left = sum(found.left for found in report.files)
    if left:
        yield f"{count_text(left)} places looked like messages and were skipped: too many were not"
    if report.passed_over_count:
        yield f"{count_text(report.passed_over_count)} look like messages, and were skipped:"
        for passed in report.passed_over[:_MOST_NAMED]:
            yield escape(f"  {passed.path} byte {passed.offset}: {passed.reason}")
        if report.passed_over_count > _MOST_NAMED:
            yield "  ... --json lists more"
    if lost:
        yield f"{count_text(lost_count)} are known to the queues of the source, and lost:"
        yield from (f"  {line}" for line in table_lines(lost[:_MOST_NAMED], _KNOWN_LOST))
        if lost_count > _MOST_NAMED:
            yield f"  ... --json lists up to {count_text(_MOST_LISTED)}"
    for problem in report.problems:
        yield escape(f"{problem.path}: {problem.reason}")
    if report.out is not None:
        place = "at their old" if report.in_place else "at new"
        yield escape(f"written to {report.out}, {place} physical offsets")


def report_lines(report: object) -> Lines:
    """The fields by their names, in order; lists by their length, or their names."""
    fields = as_document(report)
    width = max(map(len, fields))
    for name, value in fields.items():
        yield f"{name.replace('_', ' '):<{width}}  {_text(name, value)}"


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return size_text(value) if name.endswith("bytes") else count_text(value)
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):
            return escape(", ".join(value)) or "-"
        return count_text(len(value))
    return "-" if value is None else escape(str(value))


_FOLDERS = ("consumequeue", "batchconsumequeue")


class Lost(NamedTuple):
    """A message that is lost."""

    topic: str
    """Its topic."""
    queue_id: int
    """Its queue."""
    queue_offset: int
    """Its number there."""
    physical_offset: int
    """Where its record was."""
    store_timestamp_ms: int | None
    """Its store time, where the record's head can still be read."""
    keys: tuple[str, ...] | None
    """Its keys, where they can still be read."""
    unique_key: str | None
    """Its unique key, where it can still be read."""


def lost_messages(source: str, advance: Advance, config: str | None = None) -> Iterator[Lost]:
    """Compares each queue entry of a store with the log, without opening the store.

    Entries that lead to before the first log file are not lost: retention deleted their messages.
    A queue whose files cannot be read is left out.

    Args:
        source: The store's root folder; nothing is lost in what has no queues.
        advance: Called with how many queues were compared and how many there are.
        config: Path of the ``broker.conf`` that says where the log is.
    """
    folders = _queue_folders(Path(source))
    with closing(LogFiles(log_folders(source, config))) as log:
        for done, folder in enumerate(folders):
            advance(done, len(folders))
            try:
                yield from _lost_of_queue(folder, log)
            except (mqstore.StoreError, OSError):
                continue


def _lost_of_queue(folder: Path, log: LogFiles) -> Iterator[Lost]:
    queue = mqstore.ConsumeQueue(folder)
    for entry in queue.entries(queue.min_offset, queue.max_offset):
        if entry.physical_offset < log.begin or log.has(entry):
            continue
        found = log.record(entry, verify_crc=False)
        yield Lost(
            folder.parent.name,
            int(folder.name),
            entry.queue_offset,
            entry.physical_offset,
            None if found is None else found.store_timestamp_ms,
            None if found is None else found.keys,
            None if found is None else found.unique_key,
        )


def _queue_folders(root: Path) -> list[Path]:
    return sorted(
        queue
        for kind in _FOLDERS
        for topic in _folders(root / kind)
        for queue in _folders(topic)
        if queue.name.isdecimal() and queue.name.isascii()
    )


def _folders(path: Path) -> list[Path]:
    if not path.is_dir() or path.is_symlink():
        return []
    return [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]
