"""``mqstore.polars.scan``, and a scan as DuckDB, pandas and pyarrow take it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import mqstore
import mqstore.polars

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = 200


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("polars") / "store"
    with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 16_384}) as store:
        store.append_many(
            mqstore.Message(
                ("orders", "pay")[n % 2],
                b"body %d" % n,
                queue_id=n % 3,
                tags=("paid", "refunded", None)[n % 3],
                unique_key=f"u{n}",
                store_timestamp_ms=START + timedelta(seconds=n),
            )
            for n in range(COUNT)
        )
    return folder


AT, END = (pl.lit(START + timedelta(seconds=n)) for n in (50, 59))
PREDICATES = [
    pl.col("topic") == "orders",
    pl.col("topic").is_in(["pay", "none"]) & (pl.col("tags") == "paid"),
    pl.col("tags").is_in(["paid", "refunded"]),
    (pl.col("tags") == "paid") | (pl.col("topic") == "pay"),
    pl.col("tags").is_null(),
    (pl.col("store_timestamp") >= AT) & (pl.col("store_timestamp") < END),
    pl.col("physical_offset").is_between(1000, 3000),
    pl.col("unique_key").str.ends_with("7") & (pl.col("topic") != "pay"),
    pl.col("topic") == "no such topic",
    pl.col("store_timestamp") >= datetime(1970, 2, 1, tzinfo=UTC),
    pl.col("physical_offset") <= 2**63 - 1,
    ~(pl.col("topic") == "orders"),
]
# Columns of the predicates: a step that selects keeps them.
USED = ["topic", "tags", "store_timestamp", "physical_offset", "unique_key"]


def test_a_filter_on_the_offset_keeps_the_row_of_damage(path, tmp_path) -> None:
    store = shutil.copytree(path, tmp_path / "store")
    with mqstore.open(store) as opened:
        damaged = list(opened.scan())[20].physical_offset
    with (store / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(damaged + 90)
        log.write(b"\xff")
    rows = mqstore.polars.scan(store, on_error="report")
    whole = rows.collect()
    for keeps in (
        pl.col("physical_offset") == damaged,
        pl.col("physical_offset") >= damaged,
        pl.col("physical_offset") > damaged - 1,
    ):
        found = rows.filter(keeps).collect()
        assert_frame_equal(found, whole.filter(keeps))
        assert found["error"].is_not_null().sum() == 1


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_a_predicate_gives_the_rows_that_polars_itself_would(path, predicate) -> None:
    with mqstore.open(path) as store:
        whole = store.scan_arrow().to_polars()
    assert whole.height == COUNT
    lazy = mqstore.polars.scan(path)
    assert lazy.collect().equals(whole)
    assert lazy.filter(predicate).collect().equals(whole.filter(predicate))
    some = lazy.filter(predicate).select("unique_key", "body")
    assert some.collect().equals(whole.filter(predicate).select("unique_key", "body"))
    assert some.head(3).collect().height <= 3


def test_necessary_parts_of_a_predicate_reach_the_store() -> None:
    predicate = PREDICATES[1] & PREDICATES[5] & (pl.col("physical_offset") < 900)
    asked = mqstore.polars._narrow({"topics": ["pay", "orders"]}, predicate)
    at = START + timedelta(seconds=50)
    assert asked == {
        "topics": ["pay"],
        "tags": "paid",
        "begin_ms": at,
        "end_ms": at + timedelta(seconds=9),
        "stop_physical_offset": 901,
    }
    assert mqstore.polars._narrow({}, PREDICATES[3]) == {}
    assert mqstore.polars._narrow({}, pl.col("tags") == "a || b") == {}


def test_filters_hold_beside_those_of_polars(path) -> None:
    lazy = mqstore.polars.scan(path, topics=["orders"], tags="paid", begin_ms=START)
    found = lazy.filter(pl.col("topic").is_in(["orders", "pay"])).collect()
    assert found.height == len([n for n in range(COUNT) if n % 2 == 0 and n % 3 == 0])
    assert lazy.head(2).collect()["unique_key"].to_list() == ["u0", "u6"]
    without = mqstore.polars.scan(path, topics=None, tags=None, begin_ms=None)
    assert without.collect().equals(mqstore.polars.scan(path).collect())
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.polars.scan(path / "none")


def test_a_scan_is_a_table_a_frame_batches_and_a_relation(path) -> None:
    with mqstore.open(path) as store:
        scan = store.scan_arrow(columns=["topic", "unique_key"], batch_rows=64)
        assert scan.to_table().equals(scan.read_all())
        assert [type(batch) for batch in scan] == [pa.RecordBatch] * 4
        assert scan.to_polars().height == COUNT
        if find_spec("pandas"):
            assert scan.to_pandas().shape == (COUNT, 2)
        else:
            with pytest.raises(ModuleNotFoundError, match="pandas"):
                scan.to_pandas()
        relation = duckdb.from_arrow(pa.RecordBatchReader.from_stream(scan))
        assert relation.filter("topic = 'pay'").count("*").fetchall() == [(COUNT // 2,)]


ENGINES = ("in-memory", "streaming")
STEPS = ("head", "tail", "slice", "filter", "index", "select")
SEED = 20261126


def plan(random: Random) -> list[tuple[str, object]]:
    """Steps of a random plan, each with its arguments."""
    steps: list[tuple[str, object]] = []
    for kind in random.choices(STEPS, k=random.randint(1, 5)):
        match kind:
            case "slice":
                steps.append((kind, (random.randint(-80, 150), random.randint(0, 120))))
            case "filter":
                steps.append((kind, random.choice(PREDICATES)))
            case "select":
                others = random.sample(["body", "queue_id", "keys"], random.randint(0, 3))
                steps.append((kind, [*USED, *others]))
            case _:
                steps.append((kind, random.randint(0, 120)))
    if random.random() < 0.4:
        steps.append((random.choice(["len", "numbers"]), None))
    return steps


def result(frame: pl.LazyFrame, steps: list[tuple[str, object]], engine: str) -> pl.DataFrame:
    """The rows of a plan; a step that adds an index names it after its place."""
    for at, (kind, given) in enumerate(steps):
        match kind, given:
            case "filter", pl.Expr():
                frame = frame.filter(given)
            case "index", int(first):
                frame = frame.with_row_index(f"row {at}", first)
            case "select", list(names):
                kept = cs.by_name(*names, require_all=False) | cs.starts_with("row ")
                frame = frame.select(kept)
            case "slice", (int(first), int(length)):
                frame = frame.slice(first, length)
            case "numbers", _:
                frame = frame.with_row_index("row").select(cs.starts_with("row"))
            case "len", _:
                frame = frame.select(pl.len())
            case (("head" | "tail"), int(rows)):
                frame = frame.head(rows) if kind == "head" else frame.tail(rows)
    return frame.collect(engine=engine)  # type: ignore[call-overload]


@pytest.mark.parametrize("engine", ENGINES)
def test_p17_a_limit_comes_before_a_filter_that_follows_it(path, engine) -> None:
    lazy = mqstore.polars.scan(path)
    for first in (0, 1, 7, 50, COUNT + 1):
        found = lazy.head(first).filter(pl.col("topic") == "pay").collect(engine=engine)
        keys = [f"u{n}" for n in range(min(first, COUNT)) if n % 2]
        assert found["unique_key"].to_list() == keys
    later = lazy.filter(pl.col("topic") == "pay").head(50).collect(engine=engine)
    assert later["unique_key"].to_list() == [f"u{n}" for n in range(1, 100, 2)]


@pytest.mark.parametrize("engine", ENGINES)
def test_p17_every_plan_gives_what_it_gives_of_a_whole_read(path, engine) -> None:
    with mqstore.open(path) as store:
        whole = store.scan_arrow().to_polars().lazy()
    lazy = mqstore.polars.scan(path)
    random = Random(SEED)
    for number in range(500):
        steps = plan(random)
        found, expected = (result(frame, steps, engine) for frame in (lazy, whole))
        assert found.equals(expected), f"seed {SEED}, plan {number}: {steps}"
