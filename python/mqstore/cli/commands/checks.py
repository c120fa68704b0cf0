"""``verify`` and ``doctor``: find damage, name what is wrong with a store, and the cure."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import mqstore
from mqstore.cli import shared
from mqstore.cli.options import option, read_command
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines
from mqstore.cli.progress import progress
from mqstore.results import as_document
from mqstore.text import count_text, duration_text, escape, size_text, time_text

_COLUMNS = columns(
    "code", "severity", "path", Column("offset", right=True), "expected", "found", "fix"
)


@read_command("verify", short_help="Look for damage.")
@option(
    "--level", ["quick", "full"], "quick: frames, lengths, names and headers only.", default="full"
)
@shared.threads
def verify_command(output: Output, store: str, **options: Any) -> int:
    """Look for damage: the log; queues, index, checkpoint and configuration against it.

    Never writes. Exits with 1 where something is wrong; lists every damage, not only the first.

    Examples:
        mqstore verify /data/store
        mqstore verify /data/store --level quick --threads 2
    """
    began = time.monotonic()
    with progress("verifying") as advance:
        report = mqstore.verify(store, progress=advance, **options)
    took = time.monotonic() - began
    output.document(report, lambda: _verify_lines(report), rows="findings")
    log_bytes = report.counts.get("log_bytes", 0)
    note(f"looked at {size_text(log_bytes)} of log in {duration_text(took)}")
    return int(not report.ok)


def _verify_lines(report: mqstore.VerifyReport) -> Lines:
    for name, count in report.counts.items():
        yield f"{name.replace('_', ' '):<16} {count_text(count)}"
    if report.findings:
        yield ""
        yield from table_lines(report.findings, _COLUMNS)
    yield ""
    yield "no damage" if report.ok else _summary(report)


def _summary(report: mqstore.VerifyReport) -> str:
    codes = {finding.code for finding in report.findings}
    total = sum(count for name, count in report.counts.items() if name in codes)
    text = f"{count_text(total)} finding{'' if total == 1 else 's'}"
    listed = len(report.findings)
    return text if listed >= total else f"{text}, {count_text(listed)} of them listed"


_MOST_QUEUES = 10
_FATES = {
    "skips": "skips up to {} new messages of {}: its offset lies behind the end",
    "misses": "misses {} lost messages of {}",
    "deleted-unread": "has not read {} messages of {} that were deleted",
    "begins-anew": "begins anew in {1}: its offset is negative",
    "repeats": "repeats {} messages of {}: the backup of its offset is ahead of it",
    "may-repeat": "may repeat up to {} messages of {}: its last offsets may not have been written",
}
_UNKNOWN = "not known: what consumers took and had not committed; no file tells, and they repeat it"
_UNREAD = "not known before all can be read"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@read_command("doctor", short_help="Name what is wrong, and the commands that cure it.")
def doctor_command(output: Output, store: str, config: str | None) -> int:
    """Name the broken states that a store is in, and give a verdict.

    Each state comes with its evidence and cure. The verdict says whether RocketMQ starts, what is
    lost, which consumer groups are touched, and which commands to run in which order. Never writes.
    Exits with 1 where something is wrong; what is only worth knowing is printed too.

    Examples:
        mqstore doctor /data/store
        mqstore doctor /data/store --config broker.conf
    """
    with progress("examining") as advance:
        report = mqstore.doctor(store, progress=advance, config=config)
    verdict = as_document(report)
    del verdict["path"], verdict["diagnoses"]
    document = {
        "path": str(store),
        "ok": report.ok,
        "diagnoses": [
            as_document(diagnosis) | {"follows": dict(diagnosis.follows)} for diagnosis in report
        ],
        "verdict": verdict,
    }
    output.document(document, lambda: _doctor_lines(report), rows="diagnoses")
    return int(not report.ok)


def _doctor_lines(report: mqstore.DoctorReport) -> Lines:
    for diagnosis in report:
        yield f"{diagnosis.code}  {diagnosis.severity}: {escape(diagnosis.title)}"
        for line in diagnosis.evidence:
            yield f"    {_in_zone(escape(line))}"
        if diagnosis.follows:
            counted = ", ".join(f"{count_text(count)} {code}" for code, count in diagnosis.follows)
            yield f"    follows from it: {counted}"
        if diagnosis.cure is None:
            yield f"    what to do: {escape(diagnosis.fix)}"
        else:
            yield f"    cure: {escape(diagnosis.cure)}"
        yield ""
    if not len(report):
        yield "nothing is wrong"
        yield ""
    yield from _verdict(report)


def _verdict(report: mqstore.DoctorReport) -> Lines:
    if report.in_use:
        yield "verdict: a process writes to the store; stop it, and check again"
        return
    starts = "starts" if report.will_start else "does not start"
    yield f"verdict: RocketMQ {report.release} {starts} on this store"
    for obstacle in report.obstacles[:_MOST_QUEUES]:
        yield f"    {_in_zone(escape(obstacle))}"
    yield from _lost(report)
    yield from _groups(report)
    if report.commands:
        yield "run, in this order:"
        for number, command in enumerate(report.commands, 1):
            yield f"{number:>3}. {command}"
    if report.last_resort:
        yield "only if what this gives up is gone for good or not wanted:"
        for command in report.last_resort:
            yield f"     {command}"


def _is_unread(report: mqstore.DoctorReport) -> bool:
    return any(diagnosis.code == "MQ-FS-05" for diagnosis in report)


def _lost(report: mqstore.DoctorReport) -> Lines:
    if not report.lost:
        yield f"lost: {_UNREAD if _is_unread(report) else 'no message that queues or index know'}"
        return
    since = "the log's beginning" if report.lost_from_ms is None else time_text(report.lost_from_ms)
    until = "the end" if report.lost_to_ms is None else time_text(report.lost_to_ms)
    yield f"lost: {count_text(report.lost)} messages, stored between {since} and {until}"
    for lost in report.lost_queues[:_MOST_QUEUES]:
        where = f"queue {lost.queue_id} of {escape(lost.topic)}"
        yield f"    {count_text(lost.messages)} of {where}, {lost.first} to {lost.last}"
    if len(report.lost_queues) > _MOST_QUEUES:
        yield "    ... --json lists more queues"


def _groups(report: mqstore.DoctorReport) -> Lines:
    for fate in report.groups:
        text = _FATES[fate.fate].format(count_text(fate.messages), escape(fate.topic))
        yield f"group {escape(fate.group)} {text}"
    if any(diagnosis.code == "MQ-OFF-05" for diagnosis in report):
        yield "groups: each begins anew, and skips or repeats messages, as the offsets are gone"
    elif not report.groups:
        none = "none skips or repeats messages, by their offsets"
        yield f"groups: {_UNREAD if _is_unread(report) else none}"
    if len(report):
        yield _UNKNOWN


def _in_zone(text: str) -> str:
    """A text with its times in the zone in force."""

    def shown(found: re.Match[str]) -> str:
        return time_text(int(datetime.fromisoformat(found[0]).timestamp() * 1000))

    return _TIME.sub(shown, text)
