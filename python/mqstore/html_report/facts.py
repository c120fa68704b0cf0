"""Collects a report's facts from a store's files."""

from __future__ import annotations

import errno
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import mqstore
from mqstore._names import is_system_topic, lite_names, message_types
from mqstore._native import _survey
from mqstore.care.pending import PendingMessages
from mqstore.files.layout import index_files, list_files, open_index_file
from mqstore.html_report.now import LagRow, Mood, Now, lags, present_state
from mqstore.html_report.timeline import Timeline, make_timeline
from mqstore.store import below, root_of, settings_of
from mqstore.text import count_text, size_text
from mqstore.text.zone import zone

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mqstore import Finding, Store, VerifyReport
    from mqstore._native import _Survey
    from mqstore.config import ConfigLike
    from mqstore.files.layout import FileGroup

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


@dataclass(slots=True)
class FindingKind:
    """Findings of one code."""

    code: str
    severity: str
    mood: Mood
    fix: str
    count: int
    examples: list[Finding]


@dataclass(slots=True)
class Health:
    """Result of ``mqstore.verify``."""

    mood: Mood
    verdict: str
    text: str
    checked: list[tuple[str, str]]
    kinds: list[FindingKind]


@dataclass(slots=True)
class TopicRow:
    """A topic's messages."""

    name: str
    messages: int
    bytes: int
    mean_bytes: int
    first_ms: int
    last_ms: int
    part: float
    is_system: bool = False
    type: str = ""
    queues: int = 0
    skew: float | None = None


@dataclass(slots=True)
class Latency:
    """From born to stored: quantiles, and a histogram of ``(begin_ms, end_ms, messages)``."""

    messages: int = 0
    negative: int = 0
    unknown: int = 0
    quantiles: list[tuple[str, int]] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class IndexRow:
    """How one index file is filled."""

    name: str
    entries: int
    entries_part: float
    used_slots: int
    slots_part: float
    mean_chain: float
    longest_chain: int


@dataclass(slots=True)
class Index:
    """How the index files are filled, the newest of them listed oldest first."""

    files: list[IndexRow] = field(default_factory=list)
    more: int = 0
    chains: dict[int, int] = field(default_factory=dict)
    text: str = "No index files."


@dataclass(slots=True)
class Facts:
    """Everything that the page shows."""

    path: str
    name: str
    made_ms: int
    state: str
    state_text: str
    releases: str
    marks: list[str]
    messages: int
    min_physical_offset: int
    max_physical_offset: int
    unflushed_bytes: int
    undispatched_bytes: int
    topic_count: int
    lite_count: int
    queue_count: int
    first_ms: int | None
    last_ms: int | None
    records: int
    now: Now
    files: list[FileGroup]
    unknown: list[str]
    health: Health
    timeline: Timeline
    topics: list[TopicRow]
    more_topics: int
    skipped_ranges: int
    skipped_bytes: int
    latency: Latency
    index: Index
    lags: list[LagRow]
    more_lags: int
    zone: str
    took_s: float = 0.0

    @property
    def moods(self) -> dict[str, Mood]:
        """Moods by severity."""
        return _MOODS

    @property
    def log_bytes(self) -> int:
        """How long the log is."""
        return self.max_physical_offset - self.min_physical_offset


def gather(
    path: str | os.PathLike[str], *, progress: _Progress | None, config: ConfigLike
) -> Facts:
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


def _facts(store: Store, report: VerifyReport, found: _Survey, config: ConfigLike) -> Facts:
    locked, _ = mqstore.lock_state(root_of(store))
    state = "open" if locked else "crashed" if below(root_of(store), "abort").exists() else "closed"
    files = list_files(root_of(store))
    end = store.max_physical_offset
    topics = [
        TopicRow(name, messages, size, size // max(messages, 1), first_ms, last_ms, 0.0)
        for name, messages, size, first_ms, last_ms in found["topics"]
    ]
    largest = max((topic.bytes for topic in topics), default=1)
    for topic in topics:
        topic.part = topic.bytes / largest
    _add_queues(store, topics)
    groups = lags(store)
    versions = store.versions()
    other_messages = found["others"][0]
    return Facts(
        path=store.path,
        name=Path(store.path).name or store.path,
        made_ms=time.time_ns() // 1_000_000,
        state=state.capitalize(),
        state_text=_STATES[state],
        releases=" or ".join(versions["can_be"]),
        marks=[mark["path"] for mark in versions["marks"]],
        messages=sum(queue.max_offset - queue.min_offset for queue in store.queues()),
        records=sum(topic.messages for topic in topics) + other_messages,
        now=present_state(
            root_of(store), config, groups, PendingMessages(store).report(), files.groups
        ),
        min_physical_offset=store.min_physical_offset,
        max_physical_offset=end,
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


def _health(report: VerifyReport) -> Health:
    kinds: dict[str, FindingKind] = {}
    for finding in report.findings:
        code, severity, count = finding.code, finding.severity, report.counts.get(finding.code, 0)
        made = FindingKind(code, severity, _MOODS[severity], finding.fix, count, [])
        kind = kinds.setdefault(code, made)
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
    return Health(worst, verdict, text, checked, sorted_kinds)


def _findings(count: int) -> str:
    return f"{count_text(count)} finding{'' if count == 1 else 's'}"


def _latency(found: _Survey) -> Latency:
    latency = found["latency"]
    quantiles = latency["quantiles_ms"]
    return Latency(
        messages=sum(messages for _, _, messages in latency["ranges"]),
        negative=latency["negative"],
        unknown=latency["unknown"],
        quantiles=[(text, quantiles[part]) for part, text in _QUANTILES],
        ranges=latency["ranges"],
    )


def _index(store: Store) -> Index:
    paths = index_files(root_of(store))
    if not paths:
        return Index()
    if not store.index_usable:
        text = f"{len(paths)} index files do not fit these settings: give the broker's own."
        return Index(text=text)
    index = Index(more=max(len(paths) - _MOST_FILES, 0))
    for path in paths:
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
        for length, count in lengths.items():
            index.chains[length] = index.chains.get(length, 0) + count
        used = sum(lengths.values())
        row = IndexRow(
            name=path.name,
            entries=entries,
            entries_part=entries / capacity if capacity else 0.0,
            used_slots=used,
            slots_part=used / slots,
            mean_chain=entries / used if used else 0.0,
            longest_chain=max(lengths, default=0),
        )
        index.files.append(row)
    del index.files[:-_MOST_FILES]
    return index


def _add_queues(store: Store, topics: list[TopicRow]) -> None:
    """How evenly a topic's messages lie in its queues: the fullest queue by the mean."""
    counts: dict[str, list[int]] = defaultdict(list)
    types = message_types(store)
    for queue in store.queues():
        counts[queue.topic].append(queue.max_offset - queue.min_offset)
    for topic in topics:
        found = counts.get(topic.name, [])
        topic.is_system, topic.queues = is_system_topic(topic.name), len(found)
        topic.type = types.get(topic.name, "")
        if sum(found) > 0:
            topic.skew = max(found) * len(found) / sum(found)


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
