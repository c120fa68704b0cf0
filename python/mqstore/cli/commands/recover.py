"""``recover``: what opening for writing would do, and doing it."""

from __future__ import annotations

from typing import Any

import mqstore
from mqstore.cli.options import command, flag, open_store, open_to_change, store_argument
from mqstore.cli.output import Column, Lines, Output, columns, note
from mqstore.cli.progress import progress
from mqstore.cli.quarantine import folders, kept_messages, put_back
from mqstore.text import count_text, escape, size_text

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
_STATES = {
    "new": "there was no store",
    "clean": "cleanly closed",
    "crash": "not closed",
}


@command("recover", short_help="Plan the recovery of a store; run it with --apply.")
@store_argument
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
    """
    if quarantine:
        return _quarantine(output, store, apply=apply, config=options["config"])
    with progress("recovering" if apply else "reading") as advance:
        report = mqstore.recover(store, dry_run=not apply, progress=advance, **options)
    output.document(report, lambda: _lines(report), rows="quarantined_messages")
    return int(report.damage is not None)


def _quarantine(output: Output, store: str, *, apply: bool, config: str | None) -> int:
    """Lists what is in the quarantine, or puts it back."""
    with (open_to_change if apply else open_store)(store, config) as opened:
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


def _lines(report: mqstore.RecoveryReport) -> Lines:
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
    yield ""
    if report.damage is not None:
        yield f"recovery refuses: {escape(report.damage)}"
        yield f"whole messages beyond: {count_text(report.messages_beyond)}"
        yield f"what helps: {report.cure}"
    elif report.applied:
        yield "recovered, and cleanly closed"
    elif report.mode == "clean" and not report.cut and not report.rebuilt:
        yield "nothing to do"
    else:
        yield "nothing was changed; --apply does it, and so does opening for writing"
