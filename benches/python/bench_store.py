"""Append, read, query, scan and recovery of a store through Python; ids as in benches/store.rs."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from samples import CONFIG, Sample, append_all

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Benchmark = Any


def rounds_of(tmp_path: Path) -> Callable[[], tuple[tuple[mqstore.Store], dict[str, Any]]]:
    """A new store for each round, the one before closed and removed."""
    numbers = itertools.count()
    last: list[mqstore.Store] = []

    def new_store() -> tuple[tuple[mqstore.Store], dict[str, Any]]:
        while last:
            store = last.pop()
            store.close()
            shutil.rmtree(store.path)
        last.append(mqstore.open(tmp_path / f"{next(numbers)}", "a", config=CONFIG))
        return (last[0],), {}

    return new_store


def bench_append(benchmark: Benchmark, tmp_path: Path, messages: Sample) -> None:
    """One call a message, until queues and index are done."""

    def work(store: mqstore.Store) -> None:
        append_all(store, messages)
        store.wait_dispatched()

    benchmark.extra_info["messages"] = messages.count
    benchmark.pedantic(work, setup=rounds_of(tmp_path), rounds=3)


def bench_append_many(benchmark: Benchmark, tmp_path: Path, messages: Sample) -> None:
    """A list of messages that are made before."""
    batch = [
        mqstore.Message(
            "BenchTopic",
            messages.body,
            queue_id=number & 7,
            tags="tag",
            keys=key,
            unique_key=unique,
        )
        for number, (key, unique) in enumerate(
            zip(messages.keys, messages.unique_keys, strict=True)
        )
    ]

    def work(store: mqstore.Store) -> None:
        store.append_many(batch)
        store.wait_dispatched()

    benchmark.extra_info["messages"] = messages.count
    benchmark.pedantic(work, setup=rounds_of(tmp_path), rounds=3)


def bench_read_queue(benchmark: Benchmark, filled: mqstore.Store, messages: Sample) -> None:
    """32 messages of a queue."""
    offsets = itertools.cycle(range(0, messages.count // 8 - 32, 32))

    def work() -> None:
        read = filled.read("BenchTopic", 1, next(offsets), max_messages=32)
        assert len(read.messages) == 32

    benchmark(work)


def bench_key_query(benchmark: Benchmark, filled: mqstore.Store, messages: Sample) -> None:
    keys = itertools.cycle(messages.unique_keys[::7])

    def work() -> None:
        assert len(filled.query("BenchTopic", next(keys), max_messages=1)) == 1

    benchmark(work)


def bench_scan(benchmark: Benchmark, filled: mqstore.Store, messages: Sample) -> None:
    """Every message as an object."""

    def work() -> int:
        return sum(1 for _ in filled.scan())

    benchmark.extra_info["messages"] = messages.count
    assert benchmark.pedantic(work, rounds=3) == messages.count


@pytest.mark.parametrize(
    ("columns", "views"),
    [(None, False), (None, True), (["topic", "queue_offset", "store_timestamp"], False)],
    ids=["all", "all-views", "three"],
)
def bench_scan_arrow(
    benchmark: Benchmark,
    filled: mqstore.Store,
    messages: Sample,
    columns: list[str] | None,
    views: bool,
) -> None:
    """Batch after batch, none kept."""
    pa = pytest.importorskip("pyarrow")
    scan = filled.scan_arrow(columns=columns)
    like = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()} if views else {}
    schema = pa.schema([(f.name, like.get(f.type, f.type)) for f in pa.schema(scan)])

    def work() -> int:
        return sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(scan, schema))

    benchmark.extra_info["messages"] = messages.count
    assert benchmark.pedantic(work, rounds=3) == messages.count


def bench_recover(benchmark: Benchmark, tmp_path: Path, messages: Sample) -> None:
    """Opening after a crash that left nothing but the log."""
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=CONFIG) as store:
        append_all(store, messages)

    def crash() -> None:
        shutil.rmtree(path / "consumequeue")
        shutil.rmtree(path / "index")
        (path / "abort").write_text("1")

    def work() -> None:
        mqstore.open(path, "r+", config=CONFIG).close()

    benchmark.extra_info["messages"] = messages.count
    benchmark.pedantic(work, setup=crash, rounds=3)
