"""``mqstore sql`` on damaged stores, beside files, and at its limits."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mqstore
from helpers.running import command_line, environment
from helpers.stores import TINY


def rows(mq, *arguments, code=0):
    return mq("sql", *arguments, "--json", code=code).json


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store of ten messages, and where each begins."""
    path = tmp_path_factory.mktemp("small") / "broker" / "store"
    with mqstore.open(path, "a", config=mqstore.StoreConfig.embedded()) as store:
        offsets = [store.append("orders", b"%d" % n).physical_offset for n in range(10)]
    return path, offsets


@pytest.fixture
def damaged(small, tmp_path):
    """The same, with one record that is no record."""
    path, offsets = tmp_path / "store", small[1]
    shutil.copytree(small[0], path)
    with next((path / "commitlog").iterdir()).open("r+b") as file:
        file.seek(offsets[1])
        file.write(b"\xff\xff")
    return path


def test_a_process_ends_cleanly_after_damage(mq, damaged):
    for query in ("select count(*) from messages", "from messages a join messages b using (topic)"):
        ran = mq("sql", damaged, query, code=1, PYTHONUNBUFFERED="1")
        assert ran.err.count("\n") == 2, ran.err
        assert "--skip-damage" in ran.err


@pytest.mark.parametrize(
    "query",
    [
        "copy messages to '{root}/commitlog/00000000000000000000'",
        "COPY (select 'to ''x''' as a) /* to */ TO -- '\n '{link}/x.parquet' (format parquet)",
        "copy (select 1) to (concat('{root}', '/x'))",
        "copy (select 1) to '{parent}' (format csv, per_thread_output, overwrite)",
        "copy (select 1) to $${root}/x$$",
        "copy (select 1) to E'{root}/x'",
        "explain analyze copy (select 1) to '{root}/x.csv'",
        "prepare p as copy (select 1) to '{root}/x.csv'; execute p",
        "attach '{root}/x.db' as x; create table x.t as select 1",
        "attach if not exists 'file://{root}/x.db' as x",
        "attach '{root}' || '/x.db' as x",
        "attach getvariable('x') as x",
        "export database '{root}/x'",
        "copy (select 1) to 'file://localhost{root}/x.csv'",
        "copy (select 1) to '{parent}/../o' (per_thread_output, FILENAME_PATTERN '../{root}/x')",
        "copy (select 1) to '{parent}/../o' (per_thread_output, \"filename_pattern\" $${root}$$)",
        "copy (select 1) to '{parent}/../o' (per_thread_output, filename_pattern 'x' || '/../x')",
        "copy (select 1) to '{parent}/../o' (per_thread_output, file_extension 'x/../../{root}/x')",
    ],
)
def test_no_statement_writes_into_a_store(mq, small, tmp_path, query):
    root, link = small[0], tmp_path / "link"
    link.symlink_to(root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    text = query.format(root=root, link=link, parent=root.parent)
    ran = mq("sql", root, "--allow-files", text, code=2)
    assert ran.err.count("\n") == 1, ran.err
    assert re.search("inside of the store|holds the store|in single quotes", ran.err), ran.err
    with pytest.raises(mqstore.ConfigError, match=r"store|single quotes"):
        mqstore.sql(root, text, allow_files=True)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_explain_runs_nothing(mq, small, tmp_path):
    target = tmp_path / "x.csv"
    for statement in (
        f"copy (select topic from messages) to '{target}'",
        "create table b as from a",
    ):
        query = f"create temp table a as select 1 as n; explain {statement}; from a"
        mq("sql", small[0], "--allow-files", query)
        assert not target.exists()
    query = "create temp table a as select 1 as n; explain delete from a; select n from a"
    assert mq("sql", small[0], query).out.endswith("n\n1\n")
    query = "explain ( FORMAT json) select count(*) from messages where queue_id = 1"
    assert "pushed queue_ids=[1]" in mq("sql", small[0], query).out


def test_files_outside_are_written_where_they_are_allowed(mq, small, tmp_path):
    target = tmp_path / "it''s.csv"
    query = f"copy (select 1 as a) to '{target}'; attach '{tmp_path}/x.db' as x; "
    each = "per_thread_output true, filename_pattern 'x_{i}', file_extension 'txt'"
    query += f"copy (select 1 as a) to '{tmp_path}/many' (format csv, {each}); "
    query += f"create table x.t(a int); copy x.t from '{tmp_path}/it''s.csv'; select 2 as b"
    assert rows(mq, small[0], "--allow-files", query) == [{"b": 2}]
    assert (tmp_path / "it's.csv").read_text() == "a\n1\n"
    assert (tmp_path / "many/x_0.txt").read_text() == "a\n1\n"


def test_a_log_that_ends_too_early_is_reported(mq, small, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(small[0], path)
    with next((path / "commitlog").iterdir()).open("r+b") as file:
        file.truncate(small[1][6])
    ran = mq("sql", path, "select count(*) as n from messages", "--json", code=1)
    assert ran.json == [{"n": 6}]
    assert "know 4 messages" in ran.err
    for bound in ("store_timestamp < '2100-01-01'", "physical_offset < 1000000"):
        query = f"select count(*) as n from messages where {bound}"
        assert "know 4 messages" in mq("sql", path, query, code=1).err
    for bound in ("store_timestamp < '2020-01-01'", f"physical_offset < {small[1][3]}"):
        assert mq("sql", path, f"select count(*) from messages where {bound}").err == ""
    with pytest.warns(RuntimeWarning, match="know 4 messages"):
        mqstore.sql(path, "select count(*) from messages where topic = 'orders'").fetchall()


def test_records_that_no_queue_has_are_a_table_of_their_own(mq, tmp_path):
    golden = Path(__file__).parents[1] / "golden/transaction-55/store.tar.gz"
    shutil.unpack_archive(golden, tmp_path, filter="data")
    path = tmp_path / "store"
    with mqstore.open(path) as store:
        flags = [message.sys_flag & 12 for message in store.scan()]
    for condition in ("{}(queue_id) = 1", "{}(queue_offset) = 0"):
        bare, whole = condition.format(""), condition.format("abs")
        query = "select physical_offset from messages where {} order by 1"
        found = rows(mq, path, query.format(bare))
        assert found == rows(mq, path, query.format(whole))
        assert found
    count = "select count(*) as n from {}"
    assert rows(mq, path, count.format("messages")) == [{"n": sum(not flag & 4 for flag in flags)}]
    unqueued = rows(mq, path, "from unqueued where queue_id = 1")
    assert len(unqueued) == 7
    assert {row["sys_flag"] & 12 for row in unqueued} == {4, 12}


def test_more_than_one_result_is_a_table_only(mq, small, tmp_path):
    two = "select 1 as a; select 2 as b"
    assert mq("sql", small[0], two).out.split() == ["a", "1", "b", "2"]
    for form in ("--json", "--jsonl", "--csv", "--markdown", f"-o{tmp_path / 'x.parquet'}"):
        ran = mq("sql", small[0], form, two, code=2)
        assert (ran.out, ran.err.count("\n")) == ("", 1)
        assert "one result" in ran.err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(mqstore.ConfigError, match="one result"):
        mqstore.sql(small[0], two)
    one = "create temp table t as select 3 as c; select c from t"
    assert mqstore.sql(small[0], one).fetchall() == [(3,)]
    assert rows(mq, small[0], one) == [{"c": 3}]


def test_numbers_that_are_no_json(mq, tmp_path):
    bodies = [b"[NaN]", b'{"a": -Infinity}', b"[inf]", b'"NaN"', rb'["\"inf", "a\\", 1]']
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many(("orders", body) for body in bodies)
    found = rows(mq, tmp_path / "store", "select body_json as j from messages order by all")
    assert [row["j"] for row in found] == ["NaN", ['"inf', "a\\", 1], None, None, None]
    query = "select 'nan'::double as a, ['-inf'::double, 1] as b, 'NaN \"inf' as c"
    out = mq("sql", tmp_path / "store", f"{query}, 'inf'::float as nan", "--json").out
    found = json.loads(out, parse_constant=pytest.fail)
    assert found == [{"a": None, "b": [None, 1.0], "c": 'NaN "inf', "nan": None}]


def test_text_that_reads_like_a_number_is_json(tmp_path):
    """Random documents, and such with a number that is none."""
    chance = random.Random(5)
    pieces = ["\\", '"', "nan", "INF", "Infinity", "\n", "é", "a", ":", ",", "}", "]", "\x00"]

    def text():
        return "".join(chance.choices(pieces, k=chance.randrange(6)))

    def document(depth, number):
        if depth == 0 or (kind := chance.randrange(3)) == 0:
            return chance.choice([text(), number, 1, None, True])
        parts = [document(depth - 1, number) for _ in range(chance.randrange(4))]
        return parts if kind == 1 else {f"{text()} {n}": part for n, part in enumerate(parts)}

    numbers = (7, math.nan, -math.inf, math.inf)
    documents = [["ASAP\nfinance"]] + [document(3, chance.choice(numbers)) for _ in range(400)]
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        for n, one in enumerate(documents):
            body = json.dumps(one, ensure_ascii=chance.random() < 0.5).encode()
            store.append("T", body, properties={"n": str(n)})
    query = "select properties['n']::int, body_json from messages order by 1"
    found = mqstore.sql(tmp_path / "store", query).fetchall()

    def is_json(one):
        try:
            return json.dumps(one, allow_nan=False) != ""
        except ValueError:
            return False

    expected = [one if is_json(one) else None for one in documents]
    assert [None if row is None else json.loads(row) for _, row in found] == expected
    assert 50 < sum(one is None for one in expected) < 350


@pytest.mark.parametrize("options", [("--memory", "0"), ("--memory", "1k"), ("--threads", "0")])
def test_limits_that_are_too_low_are_one_error(mq, small, options):
    assert "Traceback" not in mq("sql", small[0], *options, "select 1", code=2).err
    for limits in ({"memory_bytes": -1}, {"memory_bytes": "1g"}, {"threads": 0}):
        with pytest.raises(mqstore.ConfigError, match="expected at least"):
            mqstore.sql(small[0], "select 1", **limits)


def test_a_huge_count_of_threads_is_not_begun(small, monkeypatch):
    monkeypatch.setattr("mqstore.database._MOST_THREADS", 3)
    asked = mqstore.sql(small[0], "select current_setting('threads')", threads=10**9)
    assert asked.fetchall() == [(3,)]


def test_arguments_that_do_not_fit(mq, small, tmp_path):
    root, folder = small[0], small[0].parent
    for arguments, expected in (
        (("select 1", root), "the query stands last"),
        ((root, "select 1", "select 2"), "the query stands last"),
        ((root, f"{folder}/../{folder.name}/store", "select 1"), "is named twice"),
        ((root, "--overwrite", "select 1"), "--overwrite replaces the file of -o"),
        ((root, "--json"), "standard input: expected a query, found none"),
    ):
        ran = mq("sql", *arguments, code=2)
        assert expected in ran.err
        assert ran.out == ""
    missing = tmp_path / "none"
    ran = mq("sql", root, "select 1", "-o", missing / "x.csv", code=5)
    assert "the folder is not there" in ran.err
    assert f"{missing}'\n" in ran.err
    with pytest.raises(mqstore.ConfigError, match="on_error: expected raise or skip, got 'x'"):
        mqstore.sql(root, "select 1", on_error="x")
    with pytest.raises(mqstore.ConfigError, match="named twice"):
        mqstore.sql([root, f"{root}/"], "select 1")
    with pytest.raises(TypeError, match="query: expected str or None, got int"):
        mqstore.sql(root, 1)


def test_parquet_of_odd_columns(mq, small, tmp_path):
    out = tmp_path / "x.parquet"
    query = 'select m.topic, q.topic, max(store_timestamp) - min(store_timestamp) as "a""b" '
    query += "from messages m, queues q group by all"
    mq("sql", small[0], query, "-o", out)
    table = pq.read_table(out)
    assert table.column_names == ["topic", "topic_1", 'a"b']
    assert table.column(2)[0].as_py().count(":") == 2
    for value in ("[interval 1 day]", "map{}", "union_value(k := 1)", "{}"):
        query = f"select 1 as a, {value} as b"
        ran = mq("sql", small[0], query, "-o", tmp_path / "y.parquet", code=2)
        assert ran.err.startswith("mqstore: column b: Parquet has no ")
    assert list(tmp_path.iterdir()) == [out]


def test_zones_that_duckdb_does_not_know(mq, small):
    query = "select timestamptz '2026-01-01 00:00Z' as t"
    for zone in ("+05:30", "+15:00"):
        ran = mq("sql", small[0], query, "--tz", zone, code=2)
        assert f"no time zone {zone}; name one" in ran.err
    ran = mq("sql", small[0], query, "--json", TZ="CET-1CEST,M3.5.0,M10.5.0/3", MQSTORE_TZ="")
    assert ran.json in ([{"t": "2026-01-01 01:00:00+01"}], [{"t": "2026-01-01 02:00:00+02"}])
    assert "all year" in ran.err
    for zone in ("+02:00", "Asia/Kolkata", "UTC"):
        assert mq("sql", small[0], query, "--tz", zone).err == ""


def test_words_that_are_no_query(mq, small, tmp_path):
    assert "name the store before it" in mq("sql", "select 1", code=2).err
    assert "name the store before it" in mq("sql", ".tables", code=2).err
    assert rows(mq, small[0], "-- a comment\nselect 1 as a") == [{"a": 1}]
    assert rows(mq, small[0], f"select 1 as a -- {'x' * 300}") == [{"a": 1}]
    done = subprocess.run(
        [*command_line(), "sql", small[0]],
        input=b"select '\xff'",
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr
    assert done.stderr.count(b"\n") == 1
    done = subprocess.run(
        [*command_line(), "sql", small[0]],
        input=b".foo",
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert b"expected .tables" in done.stderr
    mq("sql", small[0], "select 1 as a", "-o", tmp_path / "x.PARQUET")
    assert pq.read_table(tmp_path / "x.PARQUET").num_rows == 1


def test_damage_is_skipped_where_that_is_asked_for(mq, damaged):
    query = "select body_text as n from messages where topic = 'orders' order by all"
    ran = mq("sql", damaged, "--skip-damage", query, "--json", code=1)
    assert [row["n"] for row in ran.json] == list("023456789")
    assert "skipped 1 damaged ranges" in ran.err
    with pytest.warns(RuntimeWarning, match="skipped 1 damaged ranges"):
        assert len(mqstore.sql(damaged, query, on_error="skip").fetchall()) == 9
