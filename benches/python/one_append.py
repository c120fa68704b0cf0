"""Opening a small store, one append and closing it, beside SQLite that flushes, in turns.

    python benches/python/one_append.py [--rounds 41]

Prints medians in milliseconds, and the ratio.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import mqstore

BODY = b"x" * 200


def by_mqstore(folder: Path) -> list[float]:
    times = [time.perf_counter()]
    store = mqstore.open(folder / "store", "a")
    times.append(time.perf_counter())
    store.append("work", BODY, keys="k")
    times.append(time.perf_counter())
    store.close()
    return [*times, time.perf_counter()]


def by_sqlite(folder: Path) -> list[float]:
    times = [time.perf_counter()]
    connection = sqlite3.connect(folder / "queue.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS work (id INTEGER PRIMARY KEY, key, body)")
    connection.execute("CREATE INDEX IF NOT EXISTS keys ON work (key)")
    times.append(time.perf_counter())
    connection.execute("INSERT INTO work (key, body) VALUES ('k', ?)", (BODY,))
    times.append(time.perf_counter())
    connection.close()
    return [*times, time.perf_counter()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Times one append of a short program.")
    parser.add_argument("--rounds", type=int, default=41)
    given = parser.parse_args()
    sides = {"mqstore": by_mqstore, "SQLite, FULL": by_sqlite}
    rows: dict[str, list[list[float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for turn in range(given.rounds + 1):
            for side, work in sides.items():
                times = work(Path(folder))
                if turn:  # The first one makes the files.
                    parts = [later - time for time, later in pairwise(times)]
                    rows[side].append([*parts, sum(parts)])
    print("| ms | open | append | close | all |\n|---|---:|---:|---:|---:|")
    medians = {}
    for side, taken in rows.items():
        medians[side] = [1000 * statistics.median(column) for column in zip(*taken, strict=True)]
        print(f"| {side} | {' | '.join(f'{each:.1f}' for each in medians[side])} |")
    ours, other = (medians[side][-1] for side in sides)
    print(f"\nratio {ours / other:.1f}")


if __name__ == "__main__":
    main()
