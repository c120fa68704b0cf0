"""``salvage``: whole messages out of damaged files, disk images and what else is left."""

from __future__ import annotations

import shlex
import shutil
from itertools import islice
from pathlib import Path, PurePosixPath

import click

import mqstore
from mqstore import _native
from mqstore.cli.lost import Lost, lost_messages
from mqstore.cli.options import command, option, read_argument
from mqstore.cli.output import Column, Lines, Output, as_document, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.files.log_files import log_folders
from mqstore.store import _broker_conf, has_scheme, is_remote
from mqstore.text import count_text, escape, size_text

_FILES = columns(
    Column("path", title="FILE"),
    "bytes",
    "messages",
    Column("message_bytes", size_text, right=True, title="THEIR BYTES"),
    Column("other_ranges", count_text, right=True, title="OTHER RANGES"),
    Column("other_bytes", size_text, right=True, title="THEIR BYTES"),
)
_LOST = columns("topic", "queue_id", "queue_offset", "store_timestamp_ms", "keys", "unique_key")
_MOST_NAMED = 20
_MOST_LISTED = 10_000


@command("salvage", short_help="Copy whole messages out of damaged files.")
@read_argument("source")
@option("--out", "DIR", "The new store to make of them.", type=click.Path())
def salvage_command(output: Output, source: str, out: str | None, config: str | None) -> int:
    """Find every whole message in SOURCE, and with --out make a new store of them.

    SOURCE is a store, a folder with commit log files, or a file: damaged, cut, renamed or joined,
    or the image of a disk. It is only read. Without --out nothing is written.

    With --out it exits with 0 when it saved every whole message, also where others are lost; with 1
    where a part of SOURCE could not be read or a process writes to it. Without --out it exits with
    1 where something other than whole messages was found, or one is missing. Messages that the
    source's queues know and that were not found are listed: topic, queue, queue offset, and the
    keys where they can still be read.
    """
    in_use = _native.lock_state(source)[0]
    with progress("salvaging") as advance:
        report = mqstore.salvage(source, out, progress=advance, config=config)
    in_use = in_use or _native.lock_state(source)[0]
    damaged = any(found.other_ranges or found.left for found in report.files)
    lacking = report.missing or report.conflict_count or report.passed_over_count
    with progress("looking for what is lost", unit="queues") as advance:
        found_lost = lost_messages(source, advance, config)
        lost = list(islice(found_lost, _MOST_LISTED))
        lost_count = len(lost) + sum(1 for _ in found_lost)
    document = as_document(report) | {
        "lost_count": lost_count,
        "lost": lost,
        "in_use": in_use,
        "next": _next(report, config, in_use=in_use),
    }
    output.document(document, lambda: _lines(report, lost, lost_count), rows="files")
    if out is None:
        beside = Path() if is_remote(source) else Path(source).absolute().parent
        free = shutil.disk_usage(beside).free
        note(
            f"nothing was written; --out DIR makes a store of them: it needs about "
            f"{size_text(report.space_bytes)}, {size_text(free)} are free beside SOURCE"
        )
    if in_use:
        note(
            "a process writes to SOURCE: what it wrote since the salvage began is left behind; "
            "stop it and salvage again before the result takes its place"
        )
    note(f"next: {' ; '.join(_next(report, config, in_use=in_use))}")
    if out is not None:
        return int(in_use or bool(report.problems) or any(found.left for found in report.files))
    return 1 if damaged or lacking or report.problems or lost else 0


def _next(report: mqstore.SalvageReport, config: str | None, *, in_use: bool) -> list[str]:
    """The commands to go on with, in order."""
    is_url = has_scheme(report.source)
    source = Path(PurePosixPath(report.source).name if is_url else report.source)
    given = _broker_conf(config)
    if report.out is None:
        out = shlex.quote(f"{source}.salvaged")
        return [f"mqstore salvage {shlex.quote(report.source)} --out {out}{given}"]
    commands = [f"mqstore doctor {shlex.quote(report.out)}{given}"]
    if in_use:
        return commands
    log = log_folders(report.source, config)
    in_root = all(source.absolute() in folder.absolute().parents for folder in log)
    if in_root and any(folder.is_dir() for folder in log):
        moves = _native._swap_commands(report.source, report.out)  # noqa: SLF001 - our own
        commands += [move + given if move.startswith("mqstore ") else move for move in moves]
    return commands


def _lines(report: mqstore.SalvageReport, lost: list[Lost], lost_count: int) -> Lines:
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
        yield from (f"  {line}" for line in table_lines(lost[:_MOST_NAMED], _LOST))
        if lost_count > _MOST_NAMED:
            yield f"  ... --json lists up to {count_text(_MOST_LISTED)}"
    for problem in report.problems:
        yield escape(f"{problem.path}: {problem.reason}")
    if report.out is not None:
        place = "at their old" if report.in_place else "at new"
        yield escape(f"written to {report.out}, {place} physical offsets")
