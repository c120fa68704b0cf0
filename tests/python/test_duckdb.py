"""``mqstore.duckdb``: a relation, and what of a query reaches the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import mqstore
import mqstore.duckdb
from helpers.stores import TINY

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 3, 1, tzinfo=UTC)
COUNT = 120
CONDITIONS = [
    "topic = 'pay'",
    "topic in ('pay', 'nowhere')",
    "topic = 'pay' and tags = 'paid'",
    "topic = 'pay' or tags = 'paid'",
    "not topic = 'pay'",
    "tags is null",
    "tags = 'x\" and (physical_offset < 5) or ('",
    "store_timestamp >= timestamptz '2026-03-01 00:00:30+00' and topic = 'orders'",
    "store_timestamp < timestamptz '2026-03-01 00:00:10.001+00' and tags in ('paid', 'x')",
    "store_timestamp = timestamptz '2026-03-01 00:00:07+00'",
    "not (store_timestamp > timestamptz '2026-03-01 00:00:07+00' and queue_id = 1)",
    "physical_offset between 300 and 5000 and queue_id = 1",
    "unique_key like 'u1%' and physical_offset > 1000",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("duckdb") / "store"
    begin = int(START.timestamp() * 1000)
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            mqstore.Message(
                "pay" if n % 2 else "orders",
                b"%d" % n,
                queue_id=n % 3,
                tags=(None, "paid", 'x" and (physical_offset < 5) or (')[n % 3],
                unique_key=f"u{n}",
                store_timestamp_ms=begin + 1000 * n,
            )
            for n in range(COUNT)
        )
    return root


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_gives_the_rows_that_duckdb_itself_would(path: Path, condition: str) -> None:
    with duckdb.connect() as connection:
        lazy = mqstore.duckdb.relation(path, connection=connection)
        with mqstore.open(path) as store:
            whole = connection.from_arrow(store.scan_arrow().read_all())
        expected = whole.filter(condition).project("unique_key, body").fetchall()
        assert lazy.filter(condition).project("unique_key, body").fetchall() == expected
        (count,) = lazy.filter(condition).count("*").fetchall()
        assert count == (len(expected),)


@pytest.mark.parametrize(
    "query",
    [
        "select body from (select * from it limit 50) where topic = 'pay'",
        "select body from (select * from it limit 20 offset 9) where physical_offset < 3000",
        "select body from it where topic = 'pay' limit 5 offset 3",
        "select count(*) from (select * from it limit 50) where tags = 'paid'",
        "with a as (select * from it limit 40) select count(*) from a where queue_id = 1",
        "from (select body, topic, row_number() over () n from it) where topic = 'pay' and n < 20",
        "select body from it where physical_offset in (select physical_offset from it limit 5)",
        "select body from (from it order by physical_offset desc limit 20) where topic = 'pay'",
        "select count(*) from (from it using sample 10 rows)",
    ],
)
def test_p17_a_limit_keeps_its_place_beside_a_condition(path: Path, query: str) -> None:
    with duckdb.connect() as connection:
        with mqstore.open(path) as store:
            whole = connection.from_arrow(store.scan_arrow().read_all())
        lazy = mqstore.duckdb.relation(path, connection=connection)
        found, expected = (relation.query("it", query).fetchall() for relation in (lazy, whole))
        assert found == expected


def test_columns_and_filters_of_a_query_reach_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[dict[str, Any], list[str]]] = []
    narrow = mqstore.duckdb._narrow

    def seen(filters: dict[str, Any], condition: Any) -> dict[str, Any]:
        found = narrow(filters, condition)
        asked.append(found)
        return found

    monkeypatch.setattr(mqstore.duckdb, "_narrow", seen)
    with duckdb.connect() as connection:
        relation = mqstore.duckdb.relation(path, connection=connection)
        relation.filter(
            "topic = 'pay' and tags = 'paid' and physical_offset < 9000"
            " and store_timestamp >= timestamptz '2026-03-01 00:00:50+00'"
        ).project("body").fetchall()
        relation.filter("topic = 'pay' or physical_offset < 9000").project("body").fetchall()
    assert asked == [
        {
            "topics": ["pay"],
            "tags": "paid",
            "begin_ms": START + timedelta(seconds=50),
            "stop_physical_offset": 9001,
        },
        {},
    ]


def test_filters_hold_beside_those_of_a_query(path: Path) -> None:
    with duckdb.connect() as connection:
        relation = mqstore.duckdb.relation(path, connection=connection, topics=["orders"])
        assert relation.filter("topic = 'pay'").fetchall() == []
        assert relation.count("*").fetchall() == [(COUNT // 2,)]
        (row,) = connection.sql("select min(body) from relation").fetchall()
        assert row == (b"0",)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.duckdb.relation(path / "none")
