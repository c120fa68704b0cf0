"""Collects a report's facts from a store's files, by the names that the page's template has."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

import mqstore
from mqstore._names import is_system_topic, lite_names, message_types
from mqstore._native import _survey
from mqstore.care.pending import PendingMessages
from mqstore.files.layout import index_files, list_files, open_index_files
from mqstore.html_report.now import lags, present_state, verdict
from mqstore.html_report.timeline import make_timeline
from mqstore.store import below, root_of, settings_of
from mqstore.text import count_text, size_text
from mqstore.text.zone import zone

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mqstore import Finding, Store, VerifyReport
    from mqstore._native import _Survey
    from mqstore.config import ConfigLike

_Progress: TypeAlias = "Callable[[int, int], object]"

# How many rows the tables have, so that the page stays small whatever the store holds.
_MOST_TOPICS = 40
_MOST_FILES = 60
_MOST_LAGS = 60
_MOST_EXAMPLES = 20
_QUANTILES = ((0.5, "Median"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "Longest"))
# Moods by severity, the worst first.
_MOODS = {"error": "bad", "warning": "warn", "info": "good"}
_STATES = {
    "open": "a process writes to it",
    "crashed": "not closed, and no process writes to it",
    "closed": "cleanly closed",
}


def gather(
    path: str | os.PathLike[str], *, progress: _Progress | None, config: ConfigLike
) -> SimpleNamespace:
    """Reads a store twice: to verify it, and to count what it holds."""
    began = time.monotonic()
    show = progress or (lambda _done, _total: None)

    def half(number: int) -> _Progress:
        return lambda done, total: show(number * total + done, 2 * total)

    report = mqstore.verify(path, config=config, progress=half(0))
    found = _survey(path, progress=half(1), settings=settings_of(config))
    with mqstore.open(path, config=config) as store:
        facts = _facts(store, report, found, config)
    facts.took_s = time.monotonic() - began
    return facts


def _facts(
    store: Store, report: VerifyReport, found: _Survey, config: ConfigLike
) -> SimpleNamespace:
    root = root_of(store)
    locked, _ = mqstore.lock_state(root)
    state = "open" if locked else "crashed" if below(root, "abort").exists() else "closed"
    files = list_files(root)
    begin, end = store.min_physical_offset, store.max_physical_offset
    topics = _topics(store, found)
    groups = lags(store)
    versions = store.versions()
    return SimpleNamespace(
        path=store.path,
        name=Path(store.path).name or store.path,
        made_ms=time.time_ns() // 1_000_000,
        state=state.capitalize(),
        state_text=_STATES[state],
        releases=" or ".join(versions["can_be"]),
        marks=[mark["path"] for mark in versions["marks"]],
        messages=sum(queue.max_offset - queue.min_offset for queue in store.queues()),
        records=sum(topic.messages for topic in topics) + found["others"][0],
        now=present_state(root, config, groups, PendingMessages(store).report(), files.groups),
        moods=_MOODS,
        min_physical_offset=begin,
        max_physical_offset=end,
        log_bytes=end - begin,
        unflushed_bytes=max(end - store.flushed_offset, 0),
        undispatched_bytes=max(end - store.dispatched_offset, 0),
        topic_count=len(store.topics()),
        lite_count=sum(lite_names(topic) is not None for topic in store.topics()),
        queue_count=len(store.queues()),
        first_ms=min((topic.first_ms for topic in topics), default=None),
        last_ms=max((topic.last_ms for topic in topics), default=None),
        files=files.groups,
        unknown=files.unknown,
        health=_health(report),
        timeline=make_timeline(
            [topic.name for topic in topics], found["step_ms"], _local_cells(found["cells"])
        ),
        topics=topics[:_MOST_TOPICS],
        more_topics=max(len(topics) - _MOST_TOPICS, 0),
        skipped_ranges=found["skipped_ranges"],
        skipped_bytes=found["skipped_bytes"],
        latency=_latency(found),
        index=_index(store),
        lags=groups[:_MOST_LAGS],
        more_lags=max(len(groups) - _MOST_LAGS, 0),
        zone=zone().name,
    )


def _health(report: VerifyReport) -> SimpleNamespace:
    """Result of ``mqstore.verify``, its findings by code."""
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_code[finding.code].append(finding)
    kinds = [
        SimpleNamespace(
            code=code,
            severity=found[0].severity,
            mood=_MOODS[found[0].severity],
            fix=found[0].fix,
            count=report.counts.get(code, 0),
            examples=found[:_MOST_EXAMPLES],
        )
        for code, found in by_code.items()
    ]
    kinds.sort(key=lambda kind: ([*_MOODS].index(kind.severity), kind.code))
    total = sum(kind.count for kind in kinds if kind.mood != "good")
    mood = kinds[0].mood if kinds else "good"
    counts = report.counts
    checked = [
        (text, size_text(counts[name]) if name == "log_bytes" else count_text(counts[name]))
        for name, text in (
            ("log_bytes", "Log"),
            ("messages", "Messages"),
            ("queue_entries", "Queue entries"),
            ("index_entries", "Index entries"),
        )
        if name in counts
    ]
    text = "Every record, queue entry and index entry was compared with the others."
    if not kinds:
        text += " No damage was found."
    elif not report.ok:
        text += " Nothing was changed; each cure says what to do."
    return SimpleNamespace(
        mood=mood,
        verdict=verdict(mood, total, "finding", "findings"),
        text=text,
        checked=checked,
        kinds=kinds,
    )


def _latency(found: _Survey) -> SimpleNamespace:
    """From born to stored: quantiles, and a histogram of ``(begin_ms, end_ms, messages)``."""
    latency = found["latency"]
    quantiles = latency["quantiles_ms"]
    return SimpleNamespace(
        messages=sum(messages for _, _, messages in latency["ranges"]),
        negative=latency["negative"],
        unknown=latency["unknown"],
        quantiles=[(text, quantiles[part]) for part, text in _QUANTILES],
        ranges=latency["ranges"],
    )


def _index(store: Store) -> SimpleNamespace:
    """How the index files are filled, the newest of them listed oldest first."""
    paths = index_files(root_of(store))
    text = "No index files."
    if paths and not store.index_usable:
        text = f"{len(paths)} index files do not fit these settings: give the broker's own."
        paths = []
    rows = []
    chains: Counter[int] = Counter()
    # Damage is among the findings.
    for path, file in open_index_files(store, paths, skip_damaged=True):
        try:
            lengths, entries = file.chain_lengths(), len(file)
        except mqstore.CorruptionError:
            continue
        chains.update(lengths)
        used = sum(lengths.values())
        row = SimpleNamespace(
            name=path.name,
            entries=entries,
            entries_part=entries / file.capacity if file.capacity else 0.0,
            used_slots=used,
            slots_part=used / file.slots,
            mean_chain=entries / used if used else 0.0,
            longest_chain=max(lengths, default=0),
        )
        rows.append(row)
    more = max(len(paths) - _MOST_FILES, 0)
    return SimpleNamespace(files=rows[-_MOST_FILES:], more=more, chains=chains, text=text)


def _topics(store: Store, found: _Survey) -> list[SimpleNamespace]:
    """The topics, and how evenly a topic's messages lie: the fullest queue by the mean."""
    counts: dict[str, list[int]] = defaultdict(list)
    types = message_types(store)
    for queue in store.queues():
        counts[queue.topic].append(queue.max_offset - queue.min_offset)
    return [
        SimpleNamespace(
            name=name,
            messages=messages,
            bytes=size,
            mean_bytes=size // max(messages, 1),
            first_ms=first_ms,
            last_ms=last_ms,
            is_system=is_system_topic(name),
            type=types.get(name, ""),
            queues=len(counts[name]),
            skew=max(counts[name]) * len(counts[name]) / sum(counts[name])
            if sum(counts[name]) > 0
            else None,
        )
        for name, messages, size, first_ms, last_ms in found["topics"]
    ]


def _local_cells(cells: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """The cells by the wall clock of the zone in force."""
    epoch = datetime.fromtimestamp(0, UTC)
    local = []
    for begin_ms, topic, messages, size in cells:
        try:
            moment = zone().local(epoch + timedelta(milliseconds=begin_ms))
            shift = moment.utcoffset() or timedelta()
        except (OverflowError, ValueError, OSError):
            shift = timedelta()
        local.append((begin_ms + round(shift.total_seconds() * 1000), topic, messages, size))
    return sorted(local)
