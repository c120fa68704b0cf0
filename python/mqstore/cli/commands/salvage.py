"""``salvage``: whole messages out of damaged files, disk images and what else is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

import mqstore
from mqstore.cli.options import config_option, output_options
from mqstore.cli.output import Column, note, table_lines
from mqstore.cli.progress import progress
from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import SalvageReport
    from mqstore.cli.output import Output

_FILES = (
    Column("path", title="FILE"),
    Column("bytes", size_text, right=True),
    Column("messages", count_text, right=True),
    Column("message_bytes", size_text, right=True, title="THEIR BYTES"),
    Column("other_ranges", count_text, right=True, title="OTHER RANGES"),
    Column("other_bytes", size_text, right=True, title="THEIR BYTES"),
)
_MOST_NAMED = 20


@click.command("salvage", short_help="Copy whole messages out of damaged files.")
@click.argument("source", type=click.Path())
@click.option("--out", metavar="DIR", type=click.Path(), help="The new store to make of them.")
@config_option
@output_options
def salvage_command(output: Output, source: str, out: str | None, config: str | None) -> int:
    """Find every whole message in SOURCE, and with --out make a new store of them.

    SOURCE is a store, a folder with commit log files, or a file: damaged, cut, renamed or joined,
    or the image of a disk. It is only read. Without --out nothing is written.

    Exits with 1 where something other than whole messages was found, or one is missing.
    """
    with progress("salvaging") as tell:
        report = mqstore.salvage(source, out, progress=tell, config=config)
    if output.form == "jsonl":
        output.rows(found._asdict() for found in report.files)
    else:
        document = {
            **msgspec.to_builtins(report),
            "files": [found._asdict() for found in report.files],
            "conflicts": [found._asdict() for found in report.conflicts],
            "passed_over": [found._asdict() for found in report.passed_over],
            "problems": [found._asdict() for found in report.problems],
        }
        output.document(document, lambda: _lines(report))
    if out is None:
        note("nothing was written; --out DIR makes a store of them")
    damaged = any(found.other_ranges or found.left for found in report.files)
    lacking = report.missing or report.conflict_count or report.passed_over_count
    return 1 if damaged or lacking or report.problems else 0


def _lines(report: SalvageReport) -> Iterator[str]:
    yield from table_lines([found._asdict() for found in report.files], _FILES)
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
        yield f"{count_text(report.missing)} queue offsets have no message"
    if report.renumbered:
        which = ", ".join(f"{topic}/{queue}" for topic, queue in report.renumbered[:_MOST_NAMED])
        more = len(report.renumbered) - _MOST_NAMED
        rest = f" and {count_text(more)} more" if more > 0 else ""
        yield escape(f"numbered anew, as they are not complete: {which}{rest}")
    left = sum(found.left for found in report.files)
    if left:
        yield f"{count_text(left)} places looked like messages and were skipped: too many were not"
    if report.passed_over_count:
        yield f"{count_text(report.passed_over_count)} look like messages, and were skipped:"
        for passed in report.passed_over[:_MOST_NAMED]:
            yield escape(f"  {passed.path} byte {passed.offset}: {passed.reason}")
        if report.passed_over_count > _MOST_NAMED:
            yield "  ... --json lists more"
    for problem in report.problems:
        yield escape(f"{problem.path}: {problem.reason}")
    if report.out is not None:
        place = "at their old" if report.in_place else "at new"
        yield escape(f"written to {report.out}, {place} physical offsets")
