"""When messages were stored: bars of a handy length, the largest topics apart from the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqstore.text import count_text, utc_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BARS = 160
_MOST_SERIES = 6
# So many messages may lie so far away that showing them would leave one bar for all others.
_STRAY_PART = 0.005
_STRAY_SPANS = 20
# The years 1 to 9999, which an axis can show.
_CALENDAR_MS = range(-62_135_596_800_000, 253_402_300_800_000)
_SECOND_MS = 1_000
# Lengths that a survey may choose (``STEPS_MS`` of src/care/survey/mod.rs), with their names.
_STEPS = (
    (_SECOND_MS, "second"),
    (5 * _SECOND_MS, "5 seconds"),
    (10 * _SECOND_MS, "10 seconds"),
    (30 * _SECOND_MS, "30 seconds"),
    (60 * _SECOND_MS, "minute"),
    (300 * _SECOND_MS, "5 minutes"),
    (600 * _SECOND_MS, "10 minutes"),
    (1_800 * _SECOND_MS, "30 minutes"),
    (3_600 * _SECOND_MS, "hour"),
    (21_600 * _SECOND_MS, "6 hours"),
    (86_400 * _SECOND_MS, "day"),
    (604_800 * _SECOND_MS, "week"),
    (2_419_200 * _SECOND_MS, "4 weeks"),
    (31_449_600 * _SECOND_MS, "52 weeks"),
)

Cell = tuple[int, int, int, int]
"""When a step begins, the topic's number, messages, bytes."""


@dataclass(slots=True)
class Series:
    """A topic's bars; ``None`` is all the topics that have none of their own."""

    name: str | None
    messages: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Timeline:
    """Messages stored over time.

    Attributes:
        bars: When each bar begins that has messages, Unix milliseconds.
        step_ms: How long a bar is.
        step: The same in words.
        series: The bars of each topic, the largest first.
        text: From when to when, and what is left out.
    """

    bars: list[int] = field(default_factory=list)
    step_ms: int = _SECOND_MS
    step: str = "second"
    series: list[Series] = field(default_factory=list)
    text: str = ""


def make_timeline(topics: Sequence[str], step_ms: int, cells: Sequence[Cell]) -> Timeline:
    """The bars.

    Args:
        topics: Names by number, the largest first; a number behind the last is all others.
        step_ms: How long the steps of the cells are.
        cells: What was stored in each step, by time.
    """
    possible = [cell for cell in cells if cell[0] in _CALENDAR_MS]
    if not possible:
        return Timeline()
    begin, end = _window(possible, step_ms)
    shown = [cell for cell in possible if begin <= cell[0] <= end]
    length, words = _bar_length(shown[-1][0] - shown[0][0], step_ms)
    apart = min(len(topics), _MOST_SERIES)
    series = [Series(name) for name in topics[:apart]]
    rest = Series(None)
    for cell_begin, topic, messages, size in shown:
        one = series[topic] if topic < apart else rest
        bar = cell_begin // length * length
        one.messages[bar] = one.messages.get(bar, 0) + messages
        one.bytes[bar] = one.bytes.get(bar, 0) + size
    bars = sorted({cell[0] // length * length for cell in shown})
    series = [one for one in [*series, rest] if one.messages]
    left_out = sum(cell[2] for cell in cells) - sum(cell[2] for cell in shown)
    text = f"{_span(shown, step_ms)}, by store time."
    if left_out:
        text += (
            f" {count_text(left_out)} messages whose times lie far away are not shown "
            f"({_span(cells, step_ms)})."
        )
    return Timeline(bars, length, words, series, text)


def _span(cells: Sequence[Cell], step_ms: int) -> str:
    """From when to when the cells are, to the minute."""
    times = (utc_text(time_ms) for time_ms in (cells[0][0], cells[-1][0] + step_ms))
    return " to ".join(text[:16].replace("T", " ") for text in times)


def _bar_length(span_ms: int, step_ms: int) -> tuple[int, str]:
    for length, words in _STEPS:
        if length >= step_ms and span_ms // length < _MOST_BARS:
            return length, words
    length = max(step_ms, _STEPS[-1][0])
    while span_ms // length >= _MOST_BARS:
        length *= 10
    return length, f"{length // 86_400_000:,} days"


def _window(cells: Sequence[Cell], step_ms: int) -> tuple[int, int]:
    """From when to when to show: all, unless a few messages lie far away from all others."""
    first, last = cells[0][0], cells[-1][0]
    total = sum(cell[2] for cell in cells)
    seen = 0
    low, high = first, last
    for cell_begin, _, messages, _ in cells:
        if seen <= total * _STRAY_PART:
            low = cell_begin
        if seen < total * (1 - _STRAY_PART):
            high = cell_begin
        seen += messages
    span = max(high - low, step_ms)
    if last - first <= _STRAY_SPANS * span:
        return first, last
    return low - span, high + span
