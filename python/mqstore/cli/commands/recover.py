"""``recover``: what opening for writing would do, and doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import (
    config_option,
    open_store,
    open_to_change,
    output_options,
    print_report,
    store_argument,
)
from mqstore.cli.output import Column, note
from mqstore.cli.progress import progress
from mqstore.cli.quarantine import folders, kept_messages, put_back
from mqstore.text import count_text, escape, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import RecoveryReport
    from mqstore.cli.output import Output

_UNREAD = "not read, since name and records do not tell their place"
_KEPT = (
    Column("topic"),
    Column("queue_id", right=True, title="QUEUE"),
    Column("queue_offset", right=True, title="OFFSET"),
    Column("store_timestamp_ms", time_text, title="STORED"),
    Column("keys", " ".join),
    Column("in_log", lambda known: "yes" if known else "no", title="IN THE LOG"),
    Column("folder"),
)
_STATES = {
    "new": "there was no store",
    "clean": "cleanly closed",
    "crash": "not closed",
}


@click.command("recover", short_help="Plan the recovery of a store; run it with --apply.")
@store_argument
@click.option("--apply", is_flag=True, help="Do it, and close the store cleanly.")
@click.option(
    "--drop-beyond",
    is_flag=True,
    help="End the log at damage although whole messages lie behind it; they go to the quarantine.",
)
@click.option(
    "--quarantine",
    is_flag=True,
    help="List the messages that repairs put aside; with --apply put them back.",
)
@config_option
@output_options
def recover_command(
    output: Output,
    store: str,
    apply: bool,  # noqa: FBT001 - click passes it by name
    drop_beyond: bool,  # noqa: FBT001
    quarantine: bool,  # noqa: FBT001
    config: str | None,
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
        return _quarantine(output, store, apply=apply, config=config)
    with progress("recovering" if apply else "reading") as advance:
        report = mqstore.recover(
            store, dry_run=not apply, drop_beyond=drop_beyond, progress=advance, config=config
        )
    messages = [
        {
            "physical_offset": message.physical_offset,
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "store_timestamp_ms": message.store_timestamp_ms,
        }
        for message in report.quarantined_messages
    ]
    document = {
        "mode": report.mode,
        "applied": report.applied,
        "end_physical_offset": report.end_physical_offset,
        "cut": report.cut,
        "cut_reason": report.cut_reason,
        "quarantine": report.quarantine,
        "quarantined_count": report.quarantined_count,
        "quarantined_messages": messages,
        "rebuilt": list(report.rebuilt),
        "dispatched": report.dispatched,
        "damage": report.damage,
        "messages_beyond": report.messages_beyond,
        "cure": report.cure,
    }
    print_report(output, document, "quarantined_messages", lambda: _lines(report))
    return 0 if report.damage is None else 1


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
        text.append(
            f"{count_text(done.left_out)} of transactions were left out: they stay in the folder"
        )
    text += [f"done: {escape(folder)}" for folder in done.folders]
    text += [f"{_UNREAD}: {escape(path)}" for path in done.unread]
    output.document(done._asdict(), lambda: iter(text))
    return int(bool(done.unread))


def _lines(report: RecoveryReport) -> Iterator[str]:
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
