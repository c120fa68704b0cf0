"""An export beside polars' own sink of the same rows: one run, in turns.

    python benches/python/export.py [--messages 500000] [--rounds 5]

Prints medians in seconds, and the ratio. JSON has no bytes, so polars encodes them as base64, as
the export does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import polars as pl

import mqstore
import mqstore.polars

if TYPE_CHECKING:
    from collections.abc import Callable

Format = Literal["parquet", "arrow", "jsonl"]


def sink(store: Path, target: Path, format: Format) -> None:  # noqa: A002
    rows = mqstore.polars.scan(store)
    match format:
        case "parquet":
            rows.sink_parquet(target, compression="zstd")
        case "arrow":
            rows.sink_ipc(target)
        case "jsonl":
            rows.with_columns(pl.col(pl.Binary).bin.encode("base64")).sink_ndjson(target)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares exports.")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("| format | export_store, s | polars, s | ratio |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        store = folder / "store"
        with mqstore.open(store, "a") as opened:
            opened.append_many(
                mqstore.Message("orders", b"%0200d" % n, queue_id=n % 4, tags="paid", keys=f"k{n}")
                for n in range(given.messages)
            )
        for format in get_args(Format):  # noqa: A001
            ours, theirs = [], []
            for turn in range(given.rounds):
                target = folder / f"{format}-{turn}"
                ours.append(
                    seconds(lambda: mqstore.export_store(store, target, format=format))  # noqa: B023
                )
                theirs.append(seconds(lambda: sink(store, target / "polars", format)))  # noqa: B023
            mine, others = statistics.median(ours), statistics.median(theirs)
            print(f"| {format} | {mine:.2f} | {others:.2f} | {mine / others:.2f} |", flush=True)


if __name__ == "__main__":
    main()
