"""``recover``: what opening for writing would do, and doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import config_option, output_options, print_report, store_argument
from mqstore.cli.progress import progress
from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import RecoveryReport
    from mqstore.cli.output import Output

_STATES = {
    "new": "there was no store",
    "clean": "cleanly closed",
    "crash": "not closed",
}


@click.command("recover", short_help="Plan the recovery of a store; run it with --apply.")
@store_argument
@click.option("--apply", is_flag=True, help="Do it, and close the store cleanly.")
@config_option
@output_options
def recover_command(
    output: Output,
    store: str,
    apply: bool,  # noqa: FBT001 - click passes it by name
    config: str | None,
) -> int:
    """Say what opening for writing would do to a store: what it cuts, keeps aside and makes again.

    With --apply it is done, also where opening would refuse because whole messages lie behind
    damage: then the log ends there, and they are kept in the store's folder `quarantine`. Without,
    nothing is changed; exits with 1 where opening would refuse.
    """
    with progress("recovering" if apply else "reading") as tell:
        report = mqstore.recover(store, dry_run=not apply, progress=tell, config=config)
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
        yield f"opening for writing refuses: {escape(report.damage)}"
        yield f"whole messages beyond: {count_text(report.messages_beyond)}"
        yield f"what helps: {report.cure}"
    elif report.applied:
        yield "recovered, and cleanly closed"
    elif report.mode == "clean" and not report.cut and not report.rebuilt:
        yield "nothing to do"
    else:
        yield "nothing was changed; --apply does it, and so does opening for writing"
