"""Cost of each kind of work as a store grows: `make bench-series`.

One store of messages of 128 B for each size, 8 queues, a tag, one key and a unique key. Each kind
of work runs in a process of its own, so that its processor time and its memory are its own. The
result is a table in `docs/performance.md`, a plot and every figure beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from document import put_section

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PERFORMANCE = ROOT / "docs" / "performance"
TOPIC = "BenchTopic"
BODY = random.Random(20261121).randbytes(128)
CHUNK = 10_000
LOOKUPS = 20_000

Figures = dict[str, float]


class Clock:
    """Wall time, and the processor time of all threads, of what runs between start and stop."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter() - self._wall
        self.cpu_s += time.process_time() - self._cpu


class OwnMemory:
    """The most memory of its own that this process held; pages of mapped files do not count."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            [held] = [line for line in lines if line.startswith("RssAnon:")]
            self.most_bytes = max(self.most_bytes, int(held.split()[1]) << 10)
            if self._done.wait(0.005):
                return


def append(folder: Path, count: int, clock: Clock) -> None:
    """`append_many`, 1,000 messages a call, until queues and index are done; default settings."""
    with mqstore.open(folder, "a") as store:
        for first in range(0, count, CHUNK):
            messages = [
                mqstore.Message(
                    TOPIC,
                    BODY,
                    queue_id=number & 7,
                    tags="paid",
                    keys=f"order-{number}",
                    unique_key=f"7F0000010000{number:020}",
                )
                for number in range(first, min(first + CHUNK, count))
            ]
            with clock:
                for start in range(0, len(messages), 1000):
                    store.append_many(messages[start : start + 1000])
                store.wait_dispatched()
        with clock:
            store.wait_dispatched()


def open_clean(folder: Path, count: int, clock: Clock) -> None:
    """Opening a store for writing that was closed in good order; the median of five."""
    times = []
    for _ in range(5):
        one = Clock()
        with one:
            store = mqstore.open(folder, "r+")
        times.append((one.wall_s, one.cpu_s))
        store.close()
    clock.wall_s, clock.cpu_s = statistics.median(times)
    assert count > 0


def lookup(folder: Path, count: int, clock: Clock) -> None:
    """20,000 random keys, one call a key, each message read and checked."""
    rng = random.Random(7)
    keys = [f"order-{rng.randrange(count)}" for _ in range(LOOKUPS)]
    with mqstore.open(folder) as store:
        store.query(TOPIC, keys[0])
        with clock:
            for key in keys:
                assert len(store.query(TOPIC, key, max_messages=1)) == 1


def scan(folder: Path, count: int, clock: Clock) -> None:
    """`scan_arrow`, every column."""
    import pyarrow as pa

    with mqstore.open(folder) as store, clock:
        reader = pa.RecordBatchReader.from_stream(store.scan_arrow())
        assert sum(batch.num_rows for batch in reader) == count


def verify(folder: Path, count: int, clock: Clock) -> None:
    """`mqstore.verify`: every structure against every other."""
    with clock:
        report = mqstore.verify(folder)
    assert report.counts["messages"] == count
    assert report.ok


def recover(folder: Path, count: int, clock: Clock) -> None:
    """Opening after a crash that left nothing but the log, until queues and index are made."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(folder / name)
    (folder / "checkpoint").unlink()
    (folder / "mqstore.seal").unlink(missing_ok=True)
    (folder / "abort").touch()
    with clock:
        store = mqstore.open(folder, "r+")
        store.wait_dispatched()
    with store:
        assert sum(queue.max_offset for queue in store.queues()) == count


WORKS: dict[str, Callable[[Path, int, Clock], None]] = {
    "append": append,
    "open": open_clean,
    "lookup": lookup,
    "scan": scan,
    "verify": verify,
    "recover": recover,
}


def point(work: str, folder: Path, count: int) -> Figures:
    """One work on one store, in this process."""
    clock, memory = Clock(), OwnMemory()
    with memory:
        WORKS[work](folder, count, clock)
    return {"wall_s": clock.wall_s, "cpu_s": clock.cpu_s, "memory_bytes": memory.most_bytes}


def in_its_own_process(work: str, folder: Path, count: int) -> Figures:
    done = subprocess.run(
        [sys.executable, __file__, "--point", work, str(folder), str(count)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: Figures = json.loads(done.stdout)
    return figures


def per_unit(work: str, count: int, figures: Figures) -> tuple[float, float, str]:
    """Wall and processor time as the table gives them."""
    if work == "open":
        return figures["wall_s"] * 1e3, figures["cpu_s"] * 1e3, "ms"
    of = LOOKUPS if work == "lookup" else count
    return figures["wall_s"] / of * 1e9, figures["cpu_s"] / of * 1e9, "ns each"


def table(series: dict[str, dict[int, Figures]]) -> str:
    """The result, for people."""
    counts = sorted(series["append"])
    lines = [
        "| work | time | " + " | ".join(f"{count:,}" for count in counts) + " |",
        "|---|---|" + "---:|" * len(counts),
    ]
    for work, of_work in series.items():
        units = {count: per_unit(work, count, of_work[count]) for count in counts}
        unit = units[counts[0]][2]
        for kind, place in (("wall", 0), ("processor", 1)):
            cells = " | ".join(f"{units[count][place]:,.0f}" for count in counts)
            lines.append(f"| {work} | {kind}, {unit} | {cells} |")
    for work in ("scan", "verify", "recover"):
        cells = " | ".join(f"{series[work][c]['memory_bytes'] / 2**20:,.0f}" for c in counts)
        lines.append(f"| {work} | own memory, MiB | {cells} |")
    return "\n".join(lines)


def plot(series: dict[str, dict[int, Figures]], path: Path) -> None:
    """The same as lines, drawn by plotly in the Chromium that the tests use."""
    import plotly.graph_objects as go
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs

    figure = go.Figure()
    for work, of_work in series.items():
        if work != "open":
            counts = sorted(of_work)
            each = [per_unit(work, count, of_work[count])[1] for count in counts]
            figure.add_scatter(x=counts, y=each, name=work, mode="lines+markers")
    figure.update_xaxes(type="log", title="messages in the store, 128 B each")
    figure.update_yaxes(type="log", title="processor time, ns each")
    figure.update_layout(template="plotly_white", width=800, height=450, margin={"t": 20})
    chromium = subprocess.run(
        [ROOT / "scripts" / "prerequisites.sh", "browser"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<div id=plot></div>")
        page.add_script_tag(content=get_plotlyjs())
        drawn = page.evaluate(
            "async figure => { await Plotly.newPlot('plot', figure);"
            " return Plotly.toImage('plot', {format: 'svg'}); }",
            json.loads(figure.to_json()),
        )
        browser.close()
    from urllib.parse import unquote

    path.write_text(unquote(drawn.partition(",")[2]) + "\n", encoding="utf-8")


def main() -> None:
    """Measures the series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=10_000_000, help="messages in the last store")
    parser.add_argument("--document", action="store_true", help="write into docs/performance.md")
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        work, folder, count = options.point
        json.dump(point(work, Path(folder), int(count)), sys.stdout)
        return
    counts = [count for count in (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
              if count <= options.most][-4:]  # fmt: skip
    series: dict[str, dict[int, Figures]] = {work: {} for work in WORKS}
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="mqstore-series-") as name:
            for work in WORKS:
                figures = in_its_own_process(work, Path(name) / "store", count)
                series[work][count] = figures
                wall, cpu, unit = per_unit(work, count, figures)
                print(
                    f"  {count:>11,} {work:8} {wall:12,.0f} {unit}, processor {cpu:,.0f}",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
    text = table(series)
    print(text)
    if options.document:
        PERFORMANCE.mkdir(exist_ok=True)
        written: dict[str, Any] = {"cores": os.cpu_count(), "series": series}
        (PERFORMANCE / "series.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
        plot(series, PERFORMANCE / "series.svg")
        put_section(ROOT / "docs" / "performance.md", "series", text)


if __name__ == "__main__":
    main()
