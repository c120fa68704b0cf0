"""The report's figures, as plotly takes them.

Colours are names of the style sheet's, ``var(--ink)``, which the page's script looks up, so that a
figure follows the theme. Plotly reads a few tags in labels, so whatever comes out of a store is
escaped by ``label``.
"""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import SimpleNamespace

    from mqstore.html_report.timeline import Timeline

Figure: TypeAlias = dict[str, Any]

_MOST_BARS = 10
_LABEL_LENGTH = 22
_CHAINS_SHOWN = 12
_INDEX_FILES_SHOWN = 12
_UNITS_MS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_CLEAR = "var(--clear)"


def figures(facts: SimpleNamespace) -> dict[str, Figure]:
    """The figures by name, those that have something to show."""
    made: dict[str, Figure] = {}
    if facts.timeline.bars:
        made["messages"] = _over_time(facts.timeline, "messages")
        made["bytes"] = _over_time(facts.timeline, "bytes")
    if facts.topics:
        shown = [topic for topic in facts.topics if not topic.is_system] or facts.topics
        rows = [(topic.name, topic.bytes, size_text(topic.bytes)) for topic in shown]
        made["topics"] = _bars(rows, "bytes")
    if facts.latency.messages:
        made["latency"] = _latency(facts.latency)
    if facts.index.files:
        made["index_use"] = _index_use(facts)
        made["chains"] = _chains(facts.index.chains)
    if facts.lags:
        groups: Counter[str] = Counter()
        for lag in facts.lags:
            groups[lag.group] += lag.lag
        rows = [(name, lag, count_text(lag)) for name, lag in groups.most_common()]
        made["lag"] = _bars(rows, "messages")
    return made


def label(text: str, length: int = 200) -> str:
    """Text out of a store as plotly shows it: no tag, no control character, not too long."""
    text = escape(text)
    shown = text if len(text) <= length else text[: length - 1] + "…"
    return html.escape(shown, quote=False)


def _layout(height: int, **more: Any) -> Figure:  # noqa: ANN401 - JSON
    axis = {
        "gridcolor": "var(--line)",
        "tickangle": 0,
        "zeroline": False,
        "tickfont": {"color": "var(--soft)"},
        "fixedrange": True,
        "automargin": True,
    }
    x, y = more.pop("xaxis", {}), more.pop("yaxis", {})
    return {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8, "pad": 4},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"color": "var(--ink)", "size": 13},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
        },
        "dragmode": False,
        "bargap": 0.25,
        "showlegend": False,
        "xaxis": axis | {"showgrid": False} | x,
        "yaxis": axis | y,
        **more,
    }


def _over_time(timeline: Timeline, what: str) -> Figure:
    data = []
    for number, series in enumerate(timeline.series, 1):
        values: dict[int, int] = getattr(series, what)
        shown = size_text if what == "bytes" else count_text
        name = "other topics" if series.name is None else label(series.name, _LABEL_LENGTH)
        color = "var(--rest)" if series.name is None else f"var(--s{number})"
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": list(values),
                "y": list(values.values()),
                "offset": 0,
                "width": timeline.step_ms,
                "marker": {"color": color, "line": {"width": 0}},
                "customdata": [shown(value) for value in values.values()],
                "hovertemplate": "%{x}<br>%{customdata}<extra>%{fullData.name}</extra>",
            }
        )
    # Both figures have one width, so that their times align.
    y: Figure = {"rangemode": "tozero", "nticks": 5, "automargin": False}
    if what == "bytes":
        heights = (sum(one.bytes.get(bar, 0) for one in timeline.series) for bar in timeline.bars)
        y |= _byte_ticks(max(heights))
    first, last = timeline.bars[0], timeline.bars[-1] + timeline.step_ms
    layout = _layout(
        320,
        barmode="stack",
        bargap=0,
        margin={"l": 64, "r": 8, "t": 8, "b": 8},
        xaxis={"type": "date", "range": [first, last], "nticks": 6},
        yaxis=y,
    )
    return {"data": data, "layout": layout}


def _byte_ticks(most: int) -> Figure:
    """Ticks at round numbers of KiB, MiB, GiB."""
    unit = 1
    while most // unit >= 1024:
        unit *= 1024
    step = next(
        (step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if most / unit / step <= 5), 500
    )
    values = [unit * step * number for number in range(int(most / unit / step) + 2)]
    return {"tickvals": values, "ticktext": [size_text(v).replace(".0 ", " ") for v in values]}


def _bars(rows: Sequence[tuple[str, int, str]], what: str) -> Figure:
    """Bars to the right, the largest on top; rows beyond `_MOST_BARS` are counted in `meta`."""
    shown = list(rows[:_MOST_BARS])
    places = list(range(len(shown)))
    data = {
        "type": "bar",
        "orientation": "h",
        "x": [value for _, value, _ in shown],
        "y": places,
        "marker": {"color": "var(--s1)"},
        "text": [text for _, _, text in shown],
        "textposition": "auto",
        "insidetextfont": {"color": "var(--card)"},
        "outsidetextfont": {"color": "var(--ink)"},
        "customdata": [label(name) for name, _, _ in shown],
        "hovertemplate": f"%{{customdata}}<br>%{{text}}{' behind' if what == 'messages' else ''}"
        "<extra></extra>",
    }
    layout = _layout(
        56 + 34 * len(shown),
        meta=f"the {len(shown)} largest of {len(rows)}" if len(rows) > len(shown) else "",
        xaxis={"visible": False, "rangemode": "tozero"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": places,
            "ticktext": [label(name, _LABEL_LENGTH) for name, _, _ in shown],
            "tickfont": {"color": "var(--ink)"},
            "ticklabelstandoff": 4,
        },
    )
    return {"data": [data], "layout": layout}


def _latency(latency: SimpleNamespace) -> Figure:
    """A bar for each power of two of milliseconds."""
    counts: Counter[int] = Counter()
    for begin_ms, _, messages in latency.ranges:
        counts[begin_ms.bit_length()] += messages
    powers = range(min(counts), max(counts) + 1)
    values = [counts[power] for power in powers]
    data = {
        "x": [_time_label(power) for power in powers],
        "marker": {"color": "var(--s3)"},
        "customdata": [
            f"{_time_label(power)} to {_time_label(power + 1)}<br>{count_text(value)} messages"
            for power, value in zip(powers, values, strict=True)
        ],
        "hovertemplate": "%{customdata}, %{y:.3g} %<extra></extra>",
    }
    return _parts(data, values, latency.messages, bargap=0.12, xaxis={"nticks": 5})


def _parts(data: Figure, values: list[int], total: int, *, xaxis: Figure, **more: Any) -> Figure:  # noqa: ANN401 - JSON
    """A bar for each part of a total, in per cent."""
    axes = {
        "xaxis": {"type": "category", **xaxis},
        "yaxis": {"ticksuffix": " %", "rangemode": "tozero", "nticks": 5},
    }
    bars = {"type": "bar", "y": [100 * value / total for value in values], **data}
    return {"data": [bars], "layout": _layout(280, **axes, **more)}


def _time_label(power: int) -> str:
    """The least number of milliseconds that has so many binary digits."""
    least_ms = (1 << power) >> 1
    unit_ms, name = next((unit for unit in _UNITS_MS if least_ms >= unit[0]), (1, "ms"))
    return f"{least_ms / unit_ms:.2g} {name}" if unit_ms > 1 else f"{least_ms} ms"


def _index_use(facts: SimpleNamespace) -> Figure:
    files = facts.index.files[-_INDEX_FILES_SHOWN:]
    names = [file.name for file in files]
    places = list(range(len(files)))

    def bars(name: str, parts: list[float], color: str) -> Figure:
        return {
            "type": "bar",
            "name": name,
            "x": places,
            "y": [100 * part for part in parts],
            "marker": {"color": color},
            "customdata": names,
            "hovertemplate": "%{customdata}<br>%{y:.1f} %<extra>%{fullData.name}</extra>",
        }

    data = [
        bars("entries", [file.entries_part for file in files], "var(--s1)"),
        bars("slots", [file.slots_part for file in files], "var(--s2)"),
    ]
    layout = _layout(
        280,
        barmode="group",
        xaxis={
            "tickvals": places,
            "ticktext": [str(place + 1) for place in places],
            "range": [-0.75, max(len(files), 3) - 0.25],
        },
        yaxis={"ticksuffix": " %", "range": [0, 100], "nticks": 6},
    )
    return {"data": data, "layout": layout}


def _chains(chains: dict[int, int]) -> Figure:
    longest = max(chains, default=0)
    shown = list(range(1, min(longest, _CHAINS_SHOWN) + 1))
    values = [chains.get(length, 0) for length in shown]
    names = [str(length) for length in shown]
    if longest > _CHAINS_SHOWN:
        names.append(f"{_CHAINS_SHOWN + 1}+")
        values.append(sum(count for length, count in chains.items() if length > _CHAINS_SHOWN))
    data = {
        "x": names,
        "marker": {"color": "var(--s5)"},
        "customdata": [count_text(value) for value in values],
        "hovertemplate": "%{x} entries<br>%{customdata} slots, %{y:.3g} %<extra></extra>",
    }
    font = {"size": 12, "color": "var(--soft)"}
    title = {"text": "entries in a chain", "standoff": 8, "font": font}
    return _parts(data, values, sum(chains.values()) or 1, xaxis={"title": title})
