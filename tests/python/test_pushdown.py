"""Conditions of polars, DuckDB and SQL that queues and index answer, without losing a row."""

from __future__ import annotations

import operator
import os
import shutil
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import mqstore
import mqstore.duckdb
import mqstore.polars
from helpers.shifted import CONFIG, plain
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = datetime(2026, 3, 1, tzinfo=UTC)
SEED = 20261127
COUNT = 600
MOST_BYTES = 1 << 20
LARGE = 100_000
TOPICS = ["orders", "pay", "%LMQ%own", "Ünï"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of odd keys, tags, topics and kinds over several files."""
    root = tmp_path_factory.mktemp("pushdown") / "store"
    random = Random(SEED)
    config = {**TINY, "validate_topic_names": False}
    with mqstore.open(root, "a", config=config) as store:
        store.append_many(
            mqstore.Message(
                random.choice(TOPICS),
                b"%d" % n,
                queue_id=random.randrange(3),
                tags=random.choice([None, "paid", "refunded", "a b"]),
                keys=random.choice([(), (f"k{n % 50}",), (f"k{n % 7}", "all"), ("ü\\'",)]),
                unique_key=random.choice([None, f"u{n}", f"k{n % 7}"]),
                properties={"INNER_MULTI_DISPATCH": "%LMQ%x"} if n % 9 == 0 else {},
                store_timestamp_ms=START + timedelta(seconds=n),
            )
            for n in range(COUNT)
        )
    return root


Condition = tuple[str, str, Any]


def conditions(random: Random) -> Iterator[list[Condition]]:
    """Predicates: comparisons that must all hold, some of them beside another in an ``or``."""
    numbers = ("=", "<", "<=", ">", ">=", "in", "between")
    texts = ("=", "in")
    kinds: list[tuple[str, tuple[str, ...], Callable[[], Any]]] = [
        ("topic", texts, lambda: random.choice([*TOPICS, "%LMQ%x", "no"])),
        ("queue_id", (*numbers, "="), lambda: random.randrange(-1, 4)),
        ("queue_offset", numbers, lambda: random.randrange(-2, 70)),
        ("physical_offset", numbers, lambda: random.randrange(0, 90_000)),
        ("tags", texts, lambda: random.choice(["paid", "refunded", "a b", "none"])),
        ("unique_key", texts, lambda: random.choice([f"u{random.randrange(COUNT)}", "k3", "no"])),
        ("keys", ("has",), lambda: random.choice(["all", "k3", "k41", "ü\\'", "no"])),
        (
            "store_timestamp",
            numbers,
            lambda: START + timedelta(seconds=random.randrange(-9, COUNT + 9)),
        ),
    ]
    while True:
        chosen = random.sample(kinds, random.randint(1, 4))
        predicate: list[Condition] = []
        for column, ops, value in chosen:
            op = random.choice(ops)
            many = {"in": random.randint(1, 4), "between": 2}.get(op, 1)
            values = [value() for _ in range(many)]
            predicate.append((column, op, sorted(values) if many > 1 else values))
        yield predicate


OPS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def of_polars(column: str, op: str, values: list[Any]) -> pl.Expr:
    it = pl.col(column)
    match op:
        case "has":
            return it.list.contains(values[0])
        case "in":
            return it.is_in(values)
        case "between":
            return it.is_between(values[0], values[-1])
    return OPS[op](it, pl.lit(values[0]))


def of_sql(column: str, op: str, values: list[Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, datetime):
            return f"timestamptz '{value.isoformat()}'"
        return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

    if op == "has":
        return f"list_contains(keys, {shown(values[0])})"
    if op == "in":
        return f"{column} in ({', '.join(map(shown, values))})"
    if op == "between":
        return f"{column} between {shown(values[0])} and {shown(values[-1])}"
    return f"{column} {op} {shown(values[0])}"


@pytest.mark.parametrize("engine", ["polars", "duckdb", "sql"])
def test_random_predicates_give_the_rows_of_a_whole_read(path: Path, engine: str) -> None:
    with mqstore.open(path) as store:
        whole = store.scan_arrow().to_polars()
    connection = duckdb.connect() if engine != "sql" else mqstore.sql(path)
    assert isinstance(connection, duckdb.DuckDBPyConnection)
    lazy = mqstore.polars.scan(path)
    relation = mqstore.duckdb.relation(path, connection=connection) if engine == "duckdb" else None
    random = Random(SEED)
    found_some = 0
    for number, predicate in zip(range(200), conditions(random), strict=False):
        how = random.choice(["and", "and", "and", "or", "not"])
        parts = [of_polars(*one) for one in predicate]
        texts = [of_sql(*one) for one in predicate]
        expected, text = reduce(operator.and_, parts), " and ".join(texts)
        if how == "or":
            expected, text = expected | parts[0], f"({text}) or {texts[0]}"
        elif how == "not":
            expected, text = ~expected, f"not ({text})"
        rows = whole.filter(expected)["physical_offset"].to_list()
        found_some += bool(rows)
        if engine == "polars":
            table = lazy.filter(expected).select("physical_offset").collect()
            got = table["physical_offset"].to_list()
        else:
            query = f"select physical_offset from messages where {text}"
            asked = connection.sql(query) if relation is None else relation.filter(text)
            got = [row for (row,) in asked.project("physical_offset").fetchall()]
        assert got == rows, f"seed {SEED}, predicate {number}: {text}"
    assert found_some > 60


def test_a_key_gives_the_messages_that_have_it(path: Path) -> None:
    with mqstore.open(path) as store:
        whole = store.scan_arrow().to_polars()
    for key in ("all", "k3", "ü\\'", "no"):
        has_it = pl.col("keys").list.contains(key) | (pl.col("unique_key") == key).fill_null(False)
        rows = whole.filter(has_it)["physical_offset"].to_list()
        relation = mqstore.duckdb.relation(path, key=key)
        assert [at for (at,) in relation.project("physical_offset").fetchall()] == rows
        connection = mqstore.sql(path)
        assert isinstance(connection, duckdb.DuckDBPyConnection)
        query = "select physical_offset from messages_by_key(?)"
        assert [at for (at,) in connection.execute(query, [key]).fetchall()] == rows
    with pytest.raises(duckdb.Error, match="messages_by_key: expected a text"):
        connection.sql("from messages_by_key((select max(tags) from messages))").fetchall()


def test_a_log_with_damage_is_read_as_before(path: Path) -> None:
    lazy = mqstore.polars.scan(path, on_error="skip")
    asked = mqstore.polars._narrow({"on_error": "skip"}, pl.col("unique_key") == "u3")
    with mqstore.open(path) as store:
        assert mqstore.exchange.narrowing._looked_up(store, asked) is None
    found, expected = (
        frame.filter(pl.col("unique_key") == "k3").collect()
        for frame in (lazy, mqstore.polars.scan(path))
    )
    assert found.equals(expected)
    assert found.height > 0


def test_explain_names_what_was_pushed_and_what_is_read(path: Path) -> None:
    where = "topic = 'pay' and queue_id = 1 and queue_offset < 9"
    answer = mqstore.sql(path, f"explain select body from messages where {where}")
    assert answer is not None
    ((_, text),) = [row for row in answer.fetchall() if row[0] == "read"]
    assert "pushed last_queue_offset=9, queue_ids=[1], topics=['pay']" in text
    assert "reads 10 records of the log, which queues or index name" in text
    for source in (
        "messages_by_key('k3')",
        "messages where list_contains(keys, 'k3') and (flag = 0 or tags = 'x')",
        "(select * from messages m where tags = 'paid' and list_has(m.keys, 'k3'))",
    ):
        answer = mqstore.sql(path, f"explain select body from {source}")
        assert answer is not None
        ((_, text),) = [row for row in answer.fetchall() if row[0] == "read"]
        assert "pushed keys=['k3']" in text


QUERIES_BY_KEY = r"""
select {} from messages where list_contains(keys, 'k3') or tags = 'paid';
select {} from messages "a""b" where list_contains("a""b".keys, 'k3');
with messages as (select 1 as physical_offset, ['k3'] as keys)
    select {} from messages where list_contains(keys, 'k3');
select (select max(a.body) from messages a where list_has(a.keys, 'all')), {}
    from messages as m where array_has(keys, 'ü\''');
select m.{0} from messages m join messages n using ({0})
    where list_contains(m.keys, 'k3') and list_has(n.keys, 'all');
select {} from messages where list_contains(keys, 'k3')
    and queue_id in (select queue_id from messages where list_has(keys, 'all'));
select {} from messages m where (select count(*) from messages where list_has(m.keys, 'k3')) > 500;
select {} from messages M where list_contains(m.Keys, 'k3');
with MESSAGES as (select 1 as physical_offset, ['k3'] as keys)
    select {} from messages where list_contains(keys, 'k3')
"""


@pytest.mark.parametrize("query", QUERIES_BY_KEY.split(";\n"))
def test_a_query_that_asks_the_index_gives_what_it_gave(path: Path, query: str) -> None:
    query = query.format("physical_offset")
    connection = mqstore.sql(path)
    assert isinstance(connection, duckdb.DuckDBPyConnection)
    answer = mqstore.sql(path, query)
    assert answer is not None
    rows = answer.fetchall()
    assert rows
    assert sorted(rows) == sorted(connection.sql(query).fetchall())


def test_a_view_of_the_query_itself_is_asked(path: Path) -> None:
    query = "create or replace temp view messages as select ['k3'] as keys; "
    answer = mqstore.sql(path, f"{query} select count(*) from messages where list_has(keys, 'k3')")
    assert answer is not None
    assert answer.fetchall() == [(1,)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large") / "store"
    with mqstore.open(root, "a") as store:
        store.append_many(
            mqstore.Message(
                ("orders", "pay")[n % 2],
                b"%0100d" % n,
                queue_id=n // 2 % 2,  # of 4
                keys=f"k{n}",
                unique_key=f"u{n}",
            )
            for n in range(LARGE)
        )
    return root


def bytes_read(path: Path, read: Callable[[], int]) -> tuple[int, int]:
    """Bytes that calls read, and bytes that came from the disk, by map or call, in this process."""
    read()  # Modules and libraries are loaded.
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def counts() -> tuple[int, int]:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["rchar"]), int(lines["read_bytes"])

    before = counts()
    assert read() > 0
    after = counts()
    return after[0] - before[0], after[1] - before[1]


QUERIES: dict[str, tuple[pl.Expr, str]] = {
    "key": (pl.col("keys").list.contains("k77777"), ""),
    "unique key": (pl.col("unique_key") == "u50001", "unique_key = 'u50001'"),
    "key and topic": (
        (pl.col("unique_key") == "u50001") & (pl.col("topic") == "pay"),
        "unique_key = 'u50001' and topic = 'pay'",
    ),
    "offsets": (
        (pl.col("topic") == "pay")
        & (pl.col("queue_id") == 1)
        & pl.col("queue_offset").is_between(12_000, 12_009),
        "topic = 'pay' and queue_id = 1 and queue_offset between 12000 and 12009",
    ),
    "first offsets": (
        (pl.col("topic") == "orders") & (pl.col("queue_offset") < 10),
        "topic = 'orders' and queue_offset < 10",
    ),
    "offsets alone": (pl.col("queue_offset") == 12_000, "queue_offset = 12000"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_few_rows_of_a_large_store_read_a_mebibyte_at_most(large: Path, name: str) -> None:
    expression, text = QUERIES[name]
    lazy = mqstore.polars.scan(large)
    assert sum(file.stat().st_size for file in large.glob("commitlog/*")) > 20 << 20

    def polars() -> int:
        return lazy.filter(expression).collect().height

    whole = mqstore.duckdb.relation(large, key=None if text else "k77777")
    connection = mqstore.sql(large)
    assert isinstance(connection, duckdb.DuckDBPyConnection)

    def relation() -> int:
        return len(whole.filter(text or "true").fetchall())

    def sql() -> int:
        source = f"messages where {text}" if text else "messages_by_key('k77777')"
        return len(connection.sql(f"select * from {source}").fetchall())

    for read in (polars, relation, sql):
        called, from_disk = bytes_read(large, read)
        assert called <= MOST_BYTES, f"{read.__name__}: {called} bytes by calls"
        # The system reads ahead, by 128 KiB at a time.
        assert from_disk <= 2 * MOST_BYTES, f"{read.__name__}: {from_disk} bytes from the disk"


@pytest.mark.parametrize("numbers", [[0, 1, 2, 4, 5, 6], [5, 6, 7, 8, 9]], ids=str)
def test_a_number_is_that_of_the_record_where_its_entry_has_another(
    tmp_path: Path, numbers: list[int]
) -> None:
    plain(tmp_path, numbers)
    scan = mqstore.polars.scan(tmp_path, config=CONFIG)
    everything = scan.collect()
    relation = mqstore.duckdb.relation(tmp_path, config=CONFIG)
    for number in range(-1, 11):
        for op, compare in OPS.items():
            expected = everything.filter(compare(pl.col("queue_offset"), number))
            found = scan.filter(compare(pl.col("queue_offset"), number)).collect()
            assert found.equals(expected), (op, number)
            rows = relation.filter(f"queue_offset {op} {number}").fetchall()
            assert len(rows) == expected.height, (op, number)


@pytest.mark.parametrize("lost", ["orders/1", "orders/3", "orders", "pay/0"])
def test_messages_of_a_lost_queue_are_found_in_the_log(tmp_path: Path, lost: str) -> None:
    with mqstore.open(tmp_path, "a") as store:
        store.append_many(
            mqstore.Message(topic, b"x", queue_id=n % 4)
            for n in range(40)
            for topic in ("orders", "pay")
        )
    shutil.rmtree(tmp_path / "consumequeue" / lost)
    scan = mqstore.polars.scan(tmp_path)
    orders, first = pl.col("topic") == "orders", pl.col("queue_offset") < 5
    for queue in (0, 1, 3):
        own = pl.col("queue_id") == queue
        assert scan.filter(orders & own & first).collect().height == 5
        assert scan.filter(own & first).collect().height == 10
    assert scan.filter(orders & first).collect().height == 20
    assert scan.filter(first).collect().height == 40


def test_entries_that_lead_nowhere_let_the_log_be_read(tmp_path: Path) -> None:
    plain(tmp_path, [0, 1, 0, 1])
    scan = mqstore.polars.scan(tmp_path, config=CONFIG)
    assert scan.filter(pl.col("queue_offset") >= 0).collect().height == 4


def test_a_column_beside_another_is_no_bound(path: Path) -> None:
    relation = mqstore.duckdb.relation(path)
    for condition in ("topic = tags", "queue_offset > queue_id", "tags = unique_key"):
        pushed = relation.filter(condition).count("*").fetchall()
        left, op, right = condition.split()
        rows = relation.project(f"{left}, {right}").fetchall()
        same = sum(None not in row and OPS[op](*row) for row in rows)
        assert pushed == [(same,)], condition


def test_a_deep_query_is_answered(path: Path) -> None:
    deep = "+".join(["1"] * 400)
    nested = "(" * 150 + "queue_id" + "+0)" * 150
    for query, expected in [
        (f"select {deep}", 400),
        (f"select count(*) from messages where {nested} >= 0", COUNT),
    ]:
        assert mqstore.sql(path, query).fetchall() == [(expected,)]
