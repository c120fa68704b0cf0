"""Costs of ``append``, ``Message`` and ``append_many`` beside an empty Python function.

    python benches/python/calls.py [--rounds 15]

Each round times all kinds in turn, by the processor time of the calling thread; medians count. The
empty function is called with the same arguments. Bodies have 200 bytes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 20_000
BODY = b"x" * 200
KEYS = [f"order-{n}" for n in range(CALLS)]


def named(  # the parameters of `append`
    topic, body, *, queue_id=0, tags=None, keys=(), unique_key=None, properties=None, flag=0,
    born_timestamp_ms=None, born_host=None, delay_level=0, delay=None,
):  # fmt: skip
    """Does nothing."""


def each(call: Callable[..., object]) -> float:
    """Nanoseconds of one call."""
    begin = time.thread_time_ns()
    for key in KEYS:
        call("orders", BODY, queue_id=1, tags="paid", keys=key)
    return (time.thread_time_ns() - begin) / CALLS


def plain(call: Callable[..., object]) -> float:
    begin = time.thread_time_ns()
    for _ in KEYS:
        call("orders", BODY)
    return (time.thread_time_ns() - begin) / CALLS


def many(store: mqstore.Store, rows: list[object]) -> float:
    begin = time.thread_time_ns()
    store.append_many(rows, summary=True)
    return (time.thread_time_ns() - begin) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the cost of calls.")
    parser.add_argument("--rounds", type=int, default=15)
    tuples = [("orders", BODY, 1, "paid", key) for key in KEYS]
    names = ("topic", "body", "queue_id", "tags", "keys")
    dicts = [dict(zip(names, row, strict=True)) for row in tuples]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder, mqstore.open(folder, "a") as store:
        kinds: dict[str, Callable[[], float]] = {
            "empty function, 2 arguments": lambda: plain(named),
            "append, 2 arguments": lambda: plain(store.append),
            "Message, 2 arguments": lambda: plain(mqstore.Message),
            "empty function, 5 arguments": lambda: each(named),
            "append, 5 arguments": lambda: each(store.append),
            "Message, 5 arguments": lambda: each(mqstore.Message),
            "append_many of tuples": lambda: many(store, tuples),
            "append_many of dicts": lambda: many(store, dicts),
            "append_many of messages": lambda: many(
                store, [mqstore.Message(*row[:2], **dict(zip(names[2:], row[2:], strict=True)))
                        for row in tuples]
            ),
        }  # fmt: skip
        for _ in range(parser.parse_args().rounds):
            for kind, work in kinds.items():
                found.setdefault(kind, []).append(work())
    print("| call | ns, median | ratio to the empty function |\n|---|---|---|")
    for kind, times in found.items():
        base = found[f"empty function, {2 if ', 2 ' in kind else 5} arguments"]
        median = statistics.median(times)
        print(f"| {kind} | {median:,.0f} | {median / statistics.median(base):.1f} |")


if __name__ == "__main__":
    main()
