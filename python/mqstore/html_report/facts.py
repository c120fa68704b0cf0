"""Collects a report's facts from a store's files."""

from __future__ import annotations

import errno
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
from mqstore.files.layout import index_files, list_files, open_index_file
from mqstore.html_report.now import Mood, lags, present_state
from mqstore.html_report.timeline import make_timeline
from mqstore.store import below, root_of, settings_of
from mqstore.text import count_text, size_text
from mqstore.text.zone import zone

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mqstore import Store, VerifyReport
    from mqstore._native import _Survey
    from mqstore.config import ConfigLike

_Progress: TypeAlias = "Callable[[int, int], object]"

# How many rows the tables have, so that the page stays small whatever the store holds.
_MOST_TOPICS = 40
_MOST_FILES = 60
_MOST_LAGS = 60
_MOST_EXAMPLES = 20
_QUANTILES = (
    (0.5, "Median"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (1.0, "Longest"),
)
_MOODS: dict[str, Mood] = {"error": "bad", "warning": "warn", "info": "good"}
_STATES = {
    "open": "a process writes to it",
    "crashed": "not closed, and no process writes to it",
    "closed": "cleanly closed",
}


def gather(
    path: str | os.PathLike[str], *, progress: _Progress | None, config: ConfigLike
) -> SimpleNamespace:
    """Everything that the page shows; reads a store twice: to verify it, and to count."""
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
    locked, _ = mqstore.lock_state(root_of(store))
    state = "open" if locked else "crashed" if below(root_of(store), "abort").exists() else "closed"
    files = list_files(root_of(store))
    end = store.max_physical_offset
    topics = _topics(store, found)
    groups = lags(store)
    versions = store.versions()
    return SimpleNamespace(
        moods=_MOODS,
        path=store.path,
        name=Path(store.path).name or store.path,
        made_ms=time.time_ns() // 1_000_000,
        state=state.capitalize(),
        state_text=_STATES[state],
        releases=" or ".join(versions["can_be"]),
        marks=[mark["path"] for mark in versions["marks"]],
        messages=sum(queue.max_offset - queue.min_offset for queue in store.queues()),
        records=sum(topic.messages for topic in topics) + found["others"][0],
        now=present_state(
            root_of(store), config, groups, PendingMessages(store).report(), files.groups
        ),
        min_physical_offset=store.min_physical_offset,
        max_physical_offset=end,
        log_bytes=end - store.min_physical_offset,
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
    """Result of ``mqstore.verify``; of each code some examples."""
    kinds: dict[str, SimpleNamespace] = {}
    for finding in report.findings:
        made = SimpleNamespace(
            code=finding.code,
            severity=finding.severity,
            mood=_MOODS[finding.severity],
            fix=finding.fix,
            count=report.counts.get(finding.code, 0),
            examples=[],
        )
        kind = kinds.setdefault(finding.code, made)
        if len(kind.examples) < _MOST_EXAMPLES:
            kind.examples.append(finding)
    order: dict[Mood, int] = {"bad": 0, "warn": 1, "good": 2}
    sorted_kinds = sorted(kinds.values(), key=lambda kind: (order[kind.mood], kind.code))
    worst: Mood = sorted_kinds[0].mood if sorted_kinds else "good"
    total = sum(kind.count for kind in sorted_kinds if kind.mood != "good")
    verdict = {
        "good": "Healthy",
        "warn": f"{_findings(total)} to look at",
        "bad": f"Damaged: {_findings(total)}",
    }[worst]
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
    if not sorted_kinds:
        text += " No damage was found."
    elif not report.ok:
        text += " Nothing was changed; each cure says what to do."
    return SimpleNamespace(
        mood=worst, verdict=verdict, text=text, checked=checked, kinds=sorted_kinds
    )


def _findings(count: int) -> str:
    return f"{count_text(count)} finding{'' if count == 1 else 's'}"


def _latency(found: _Survey) -> SimpleNamespace:
    """From born to stored: quantiles, and a histogram of ``(begin_ms, end_ms, messages)``."""
    latency = found["latency"]
    quantiles = latency["quantiles_ms"]
    return SimpleNamespace(
        **latency,
        messages=sum(messages for _, _, messages in latency["ranges"]),
        quantiles=[(text, quantiles[part]) for part, text in _QUANTILES],
    )


def _index(store: Store) -> SimpleNamespace:
    """How the index files are filled, the newest of them listed oldest first."""
    paths = index_files(root_of(store))
    chains: Counter[int] = Counter()
    files: list[SimpleNamespace] = []
    text = "No index files."
    if paths and not store.index_usable:
        text = f"{len(paths)} index files do not fit these settings: give the broker's own."
    for path in paths if store.index_usable else ():
        try:
            with open_index_file(store, path) as file:
                lengths, entries = file.chain_lengths(), len(file)
                capacity, slots = file.capacity, file.slots
        except mqstore.CorruptionError:
            continue  # among the findings
        except mqstore.StoreIOError as error:
            if error.errno == errno.ENOENT:
                continue  # deleted meanwhile
            raise
        chains.update(lengths)
        used = sum(lengths.values())
        row = SimpleNamespace(
            name=path.name,
            entries=entries,
            entries_part=entries / capacity if capacity else 0.0,
            used_slots=used,
            slots_part=used / slots,
            mean_chain=entries / used if used else 0.0,
            longest_chain=max(lengths, default=0),
        )
        files.append(row)
    more = max(len(paths) - _MOST_FILES, 0)
    return SimpleNamespace(files=files[-_MOST_FILES:], more=more, chains=chains, text=text)


def _topics(store: Store, found: _Survey) -> list[SimpleNamespace]:
    """The messages of each topic, and how evenly they lie in its queues."""
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
            skew=_skew(counts[name]),
        )
        for name, messages, size, first_ms, last_ms in found["topics"]
    ]


def _skew(messages: list[int]) -> float | None:
    """The fullest queue by the mean."""
    return max(messages) * len(messages) / sum(messages) if sum(messages) > 0 else None


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
