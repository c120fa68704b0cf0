"""``mqstore sql``: tables, predicates, bodies, output, safety."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mqstore
from helpers.running import command_line, environment, messages, on_terminal, read_terminal
from helpers.stores import TINY

SEED = int(os.environ.get("MQSTORE_SEED", "45"))
# For a long run: MQSTORE_SQL_MESSAGES=10000000.
MANY = int(os.environ.get("MQSTORE_SQL_MESSAGES", "20000"))
BEGIN_MS = 1_700_000_000_000
BODIES = (b'{"id": 7}', b"\xff\xfe", b"plain", b"\x1b[31m<b>|x\x00", b"[" * 900, b"")
COMMANDS = {
    "queues": "queues",
    "topics": "topics",
    "groups": "groups",
    "group_queues": "groups -v",
    "files": "info",
    "findings": "verify",
    "index_entries": "index --entries",
    "pending": "pending",
}
NAMES = {"group": "consumer_group", "offset": "byte_offset"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store with a group, dead letters, retries, damage, and an index that no query believes."""
    path = tmp_path_factory.mktemp("sql") / "broker-a" / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        store.append_many(
            mqstore.Message(
                ("orders", "pay", "%DLQ%billing", "%RETRY%billing")[n % 4],
                BODIES[n % len(BODIES)],
                queue_id=n % 3 if n % 4 < 2 else 0,
                tags=(None, "paid", "x' or 1=1 --")[n % 3],
                keys=[f"k{n // 2}", f"o-{n}"],
                unique_key=f"u{n}",
                properties={"a": str(n), "RETRY_TOPIC": "orders", "\x1b[1m": "\u202e"},
                store_timestamp_ms=BEGIN_MS + 1000 * n,
            )
            for n in range(120)
        )
        with store.group("billing") as group:
            group.poll("orders", max_messages=10)
            group.commit()
    for queue in (path / "consumequeue/pay").iterdir():
        last = max(queue.iterdir())
        last.write_bytes(b"\x7f" * 20 + last.read_bytes()[20:])
    return path


def rows(mq, *arguments, code=0):
    return mq("sql", *arguments, "--json", code=code).json


@pytest.mark.parametrize("table", COMMANDS)
def test_table_equals_the_json_of_the_command_of_that_name(mq, root, table):
    name, *options = COMMANDS[table].split()
    expected = mq(name, root, *options, "--json", code=None).json
    if table in {"files", "findings"}:
        expected = expected[table]
    if table == "pending":
        states = ("half", "overdue", "dead_letters", "retries")
        expected = [row | {"state": state} for state in states for row in expected[state]]
    found = mq("sql", root, f"from {table}", "--json", code=None).json
    assert len(found) == len(expected)
    assert expected or table == "files"
    for one, other in zip(found, expected, strict=True):
        other = {NAMES.get(field, field): value for field, value in other.items()}
        assert one["broker"] == "broker-a"
        for field, value in other.items():
            assert one[field] == value or field.startswith(("age", "late")), field
        # All else is null, or a time again.
        for field in one.keys() - other.keys() - {"broker"}:
            stamp = one.get(f"{field}_ms")
            if stamp is not None:
                moment = datetime.fromisoformat(one[field])
                assert round(moment.timestamp() * 1000) == stamp
            else:
                assert one[field] is None, field


def test_every_field_of_a_command_is_a_column():
    from helpers.json_page import sections
    from mqstore.database.tables import columns_of

    for table, command in COMMANDS.items():
        fields = sections()[command]
        if table in {"files", "findings"}:
            fields = [name.partition("[].")[2] for name in fields if name.startswith(f"{table}[].")]
        if table == "pending":
            fields = [name.partition("[].")[2] for name in fields if "[]." in name]
        # A query has no chain of one key.
        fields = set(fields) - {"match"}
        columns = set(columns_of(table))
        assert {NAMES.get(name, name) for name in fields} <= columns, table


def predicate(chance, depth=2):
    """A random condition on columns that reach the store, and on others."""
    if depth and chance.random() < 0.6:
        joined = f" {chance.choice(['and', 'and', 'or'])} ".join(
            predicate(chance, depth - 1) for _ in range(2)
        )
        return f"({joined})" if chance.random() < 0.8 else f"not ({joined})"
    op = chance.choice(["=", "<", ">", "<=", ">=", "<>"])
    n = chance.randrange(-5, 125)
    moment = datetime.fromtimestamp(BEGIN_MS / 1000 + n, UTC).isoformat()
    return chance.choice(
        [
            f"topic {op} '{chance.choice(['orders', 'pay', '%DLQ%billing', 'none'])}'",
            f"topic in ('pay', '{chance.choice(['orders', 'none'])}')",
            f"tags = '{chance.choice(['paid', 'none'])}'",
            "tags is null",
            "tags = 'x'' or 1=1 --'",
            f"queue_id {op} {n % 4}",
            f"queue_offset {op} {n % 12}",
            f"physical_offset {op} {n * 180}",
            f"store_timestamp {op} timestamptz '{moment}'",
            f"unique_key = 'u{n}'",
            f"unique_key in ('u{n}', 'u3')",
            f"list_contains(keys, 'k{n // 2}')",
            f"keys = ['k{n // 2}', 'o-{n}']",
            f"properties['a'] = '{n}'",
            f"broker = '{chance.choice(['broker-a', 'none'])}'",
            f"body_json->>'$.id' = '{n % 9}'",
            "body_text is null",
        ]
    )


def test_random_predicates_equal_a_full_read(root):
    chance = random.Random(SEED)
    connection = mqstore.sql(root)
    connection.execute("create temp table whole as from messages")
    for _ in range(200):
        condition = predicate(chance)
        query = f"select physical_offset from {{}} where {condition} order by 1"
        expected = connection.sql(query.format("whole")).fetchall()
        found = connection.sql(query.format("messages")).fetchall()
        assert found == expected, f"seed {SEED}: {condition}"


def test_conditions_that_reach_the_store_are_explained(mq, root):
    query = (
        "explain select count(*) from messages join group_queues using (topic, queue_id) "
        "where topic = 'orders' and tags = 'paid' and physical_offset >= 300"
    )
    shown = mq("sql", root, query).out
    line = next(line for line in shown.splitlines() if ": messages: " in line)
    assert "pushed start_physical_offset=300, tags=paid, topics=['orders']; " in line
    assert "columns topic, queue_id, physical_offset, tags" in line
    assert "reads at most the log from 300 to " in line
    assert f"{root}: group_queues: pushed nothing" in shown
    assert "Aggregates: count_star()" in shown


def test_bodies_and_properties(mq, root):
    found = rows(
        mq,
        root,
        "select body_text, body_json, body_json->>'$.id' as id, properties['a'] as a "
        "from messages order by physical_offset limit 6",
    )
    texts = ['{"id": 7}', None, "plain", "\x1b[31m<b>|x\x00", "[" * 900, ""]
    assert [row["body_text"] for row in found] == texts
    assert [row["body_json"] for row in found] == [{"id": 7}] + [None] * 5
    assert [row["id"] for row in found] == ["7"] + [None] * 5
    assert [row["a"] for row in found] == list("012345")
    ids = rows(mq, root, "select body->>'$.id' i from messages_text where body[1:2] = '{\"'")
    assert {row["i"] for row in ids} == {"7"}
    assert (
        "Malformed JSON" in mq("sql", root, "select body->>'$.id' from messages_text", code=2).err
    )


@pytest.mark.filterwarnings("ignore::mqstore.config.ConfigWarning")
def test_compressed_bodies_come_decompressed(rocketmq_store):
    path, conf = rocketmq_store
    with mqstore.open(path, config=conf) as store:
        expected = {message.physical_offset: message.body for message in store.scan()}
        assert any(message.body != message.raw_body for message in store.scan())
    connection = mqstore.sql(path, config=conf)
    assert dict(connection.sql("select physical_offset, body from messages").fetchall()) == expected


def test_several_stores_have_their_brokers(mq, root, tmp_path, monkeypatch):
    other = tmp_path / "broker-b" / "store"
    with mqstore.open(other, "a", config=TINY) as store:
        store.append("orders", b"one", keys="o-4")
    query = "select broker, count(*) n from messages group by all order by all"
    assert rows(mq, root, other, query) == [
        {"broker": "broker-a", "n": 120},
        {"broker": "broker-b", "n": 1},
    ]
    joined = "from messages a join messages b using (topic) where a.broker = 'broker-b' "
    joined += "and b.broker = 'broker-a' and list_has_any(a.keys, b.keys)"
    assert rows(mq, root, other, f"select b.unique_key {joined}") == [{"unique_key": "u4"}]
    shown = mq("sql", root, other, "explain from messages where broker = 'broker-b'").out
    assert f"{other}: messages" in shown
    assert f"{root}: messages" not in shown
    assert "is named twice" in mq("sql", root, root, code=2).err
    (tmp_path / "show").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    assert {"broker": "show", "n": 120} in rows(mq, other, "show", query)
    assert "put it in quotes" in mq("sql", root, "select", "topic", "from", "topics", code=2).err
    assert "(line 2)" in mq("sql", root, "select topic\nfrom topics where and", code=2).err


def test_forms_of_output(mq, root, tmp_path):
    query = "select body_text, queue_id, body from messages order by physical_offset limit 5"
    shown = mq("sql", root, query).out
    assert "\x1b" not in shown
    assert r"\x1b[31m<b>|x\x00" in shown
    table = list(csv.reader(io.StringIO(mq("sql", root, query, "--csv").out)))
    assert table[0] == ["body_text", "queue_id", "body"]
    assert table[1] == ['{"id": 7}', "0", r"{\x22id\x22: 7}"]
    lines = mq("sql", root, query, "--markdown").lines
    assert lines[1] == "| --- | --- | --- |"
    assert len(lines) == 7
    assert r"\x1b\[31m\<b\>\|x" in lines[5]
    assert len(mq("sql", root, query, "--jsonl").jsonl) == 5
    for suffix in ("csv", "json", "jsonl", "md", "parquet"):
        out = tmp_path / f"out.{suffix}"
        assert mq("sql", root, query, "-o", out).out == ""
        assert out.stat().st_size > 40
        assert "--overwrite" in mq("sql", root, query, "-o", out, code=5).err
        mq("sql", root, query, "-o", out, "--overwrite")
    assert pq.read_table(tmp_path / "out.parquet").column("body")[1].as_py() == b"\xff\xfe"
    assert len(json.loads((tmp_path / "out.json").read_text())) == 5
    assert "inside of the store" in mq("sql", root, query, "-o", root / "x.csv", code=2).err
    assert "suffix" in mq("sql", root, query, "-o", tmp_path / "x.txt", code=2).err
    mq("sql", root, query, "--json", "--csv", code=2)
    assert list(root.glob("**/*.csv")) == []


def test_empty_result_keeps_its_columns(mq, root, tmp_path):
    query = "select topic from messages where topic = 'none'"
    assert mq("sql", root, query).err == "0 rows\n"
    assert mq("sql", root, query, "--csv").out == "topic\n"
    assert mq("sql", root, query, "--json").json == []
    mq("sql", root, query, "-o", tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").column_names == ["topic"]


@pytest.mark.parametrize(
    "query",
    [
        "selec 1",
        "select nothing from messages",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')",
        "select * from '/etc/passwd'",
        "copy messages to 'stolen.parquet'",
        "attach 'other.db'",
        "export database 'folder'",
        "install httpfs",
        "load './evil.duckdb_extension'",
        "set enable_external_access = true",
        "reset lock_configuration",
        "set temp_directory = '/tmp'",
        "set threads = 64",
        "pragma enable_profiling; pragma profiling_output='profile.json'",
        "select * from sys",
        "select body::int from messages",
    ],
)
def test_sql_that_is_wrong_or_not_allowed_is_one_line(mq, root, query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = mq("sql", root, query, code=2)
    assert ran.err.startswith("mqstore: ")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_files_are_read_where_they_are_allowed(mq, root, tmp_path):
    (tmp_path / "names.csv").write_text("topic,team\norders,shop\n")
    query = f"select distinct team from messages join '{tmp_path / 'names.csv'}' using (topic)"
    assert rows(mq, root, "--allow-files", query) == [{"team": "shop"}]


def test_limits(mq, root, tmp_path):
    assert mqstore.sql(root, "select current_setting('threads')").fetchall() == [(2,)]
    assert mqstore.sql(root, "select current_setting('memory_limit')").fetchall() == [("1.0 GiB",)]
    query = "select list(range) from range(20_000_000)"
    assert "--memory" in mq("sql", root, "--memory", "32m", query, code=2).err
    assert "inside of the store" in mq("sql", root, "--spill", root / "x", "select 1", code=2).err
    sort = "select count(*) from (select range r, hash(range) h from range(3_000_000) order by h)"
    mq("sql", root, "--memory", "64m", "--spill", tmp_path, sort)


def test_damage_is_not_hidden(mq, root, tmp_path):
    path = tmp_path / "torn"
    shutil.copytree(root, path)
    last = max((path / "consumequeue/orders/0").iterdir())
    last.write_bytes(last.read_bytes()[:70])
    query = "select bytes from queues where topic = 'orders' and queue_id = 0"
    ran = mq("sql", path, query, "--json", code=None)
    assert mq("queues", path, code=None).code == ran.code, ran
    assert ran.code == 0 or (ran.json == [{"bytes": None}] and "orders" in ran.err)
    assert mq("sql", path, "select topic, messages from queues", "--json").err == ""
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        store.append_many(messages())
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    ran = mq("sql", path, "select count(*) from messages", code=1)
    assert "body-crc" in ran.err
    assert ran.out == ""


def test_query_from_standard_input(root):
    done = subprocess.run(
        [*command_line(), "sql", root, "--jsonl"],
        input=b"create temp view a as from messages;\n-- two\nselect count(*) as n from a;",
        capture_output=True,
        env=environment(),
        check=True,
    )
    assert done.stdout == b'{"n":120}\n'


def test_tables_and_columns_are_explained(mq, root):
    from mqstore.database import Session

    assert {*COMMANDS, "messages", "messages_text", "unqueued"} == {
        row["name"] for row in rows(mq, root, ".tables")
    }
    session = Session(root)
    for (name,) in session.run("show tables").fetchall():
        described = session.run(f"describe {name}").fetchall()
        assert described == session.run(f".schema {name}").fetchall()
        assert all(meaning for _, _, meaning in described)
        relation = session.connection.sql(f"from {name}")
        kinds = [
            str(kind).replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ") for kind in relation.types
        ]
        found = list(zip(relation.columns, kinds, strict=True))
        assert found == [(column, kind) for column, kind, _ in described]
    assert len(session.run(".schema").fetchall()) > 100


def test_prompt(root, tmp_path):
    typed = ".tables\nselect\n count(*)\nfrom messages;\nselect nothing;\n.help\n.quit\n"
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*command_line(), "sql", root, "--no-pager"],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment(TERM="dumb", XDG_STATE_HOME=str(tmp_path)),
    )
    os.close(child)
    os.write(parent, typed.encode())
    shown = read_terminal(parent).decode()
    assert process.wait(timeout=60) == 0
    assert "count_star()" in shown
    assert "120" in shown
    assert "Binder Error" in shown
    assert "group_queues" in shown
    assert "Ctrl-C ends a query" in shown
    assert "select nothing" in (tmp_path / "mqstore/sql_history").read_text()


def test_each_result_of_the_prompt_has_a_pager_of_its_own(root, tmp_path):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*command_line(), "sql", root],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment(
            TERM="xterm",
            LINES="10",
            XDG_STATE_HOME=str(tmp_path),
            MQSTORE_PAGER="sh -c 'head -n 1; echo left the pager'",
        ),
    )
    os.close(child)
    os.write(parent, b"from range(100000);\nselect 6 * 7;\nfrom range(100);\n.quit\n")
    shown = read_terminal(parent).decode()
    assert process.wait(timeout=60) == 0
    assert shown.count("left the pager") == 2
    assert re.search(r"left the pager.*sql> .*42\s.*left the pager", shown, re.DOTALL), shown


def test_table_fits_the_terminal(root):
    def lines(query):
        code, out, _ = on_terminal(["sql", str(root), query], COLUMNS="80", NO_COLOR="1")
        assert code == 0
        return out.decode().splitlines()

    # Too many columns for a table: a line for each.
    assert "topic                        orders" in lines("select * from messages limit 1")
    table = lines("select body_text, topic, unique_key from messages limit 9")
    assert max(map(len, table)) <= 80
    assert "…" in "".join(table)


def test_interrupt_ends_a_query_at_once(root):
    process = subprocess.Popen(
        [*command_line(), "sql", root, "select 1; select count(*) from range(1e12::bigint) a"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED="1"),
    )
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert err == b"interrupted\n"


def test_a_long_query_stays_within_its_memory(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a") as store:
        for first in range(0, MANY, 10_000):
            store.append_many(
                (
                    mqstore.Message("orders", b"%032d" % n, keys=f"o-{n}", tags=f"t{n % 100}")
                    for n in range(first, min(first + 10_000, MANY))
                ),
                summary=True,
            )
    code = (
        "import re, sys\nfrom mqstore.cli import main\n"
        "code = main(sys.argv[1:])\n"
        # `ru_maxrss` counts the memory of the process that was forked, too.
        "status = open('/proc/self/status').read()\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', status)[1], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    query = "select tags, count(*) n, max(body_text) from messages group by all order by all"
    done = subprocess.run(
        [sys.executable, "-c", code, "sql", path, query, "--csv"],
        capture_output=True,
        check=True,
        text=True,
        env=environment(),
    )
    assert len(done.stdout.splitlines()) == 101
    assert int(done.stderr.split()[-1]) < 1 << 20


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="[fadvise] Linux has it")
def test_pages_that_only_the_query_read_leave_the_cache(root, tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config={"mapped_file_size_commit_log": 8 << 20}) as store:
        store.append_many((("t", bytes(1000)) for _ in range(2000)), summary=True)
    file = max((path / "commitlog").iterdir(), key=lambda one: one.stat().st_blocks)

    def cached() -> int:
        return resident(file)

    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached():
        pytest.skip("[tmpfs] pages of this file system are its files")
    subprocess.run(
        [*command_line(), "sql", path, "select count(body) from messages"],
        check=True,
        capture_output=True,
        env=environment(),
    )
    assert cached() < 64
    subprocess.run([*command_line(), "stats", path], check=True, capture_output=True)
    assert cached() > 300


def resident(path: Path) -> int:
    """Pages of a file in the page cache."""
    import ctypes
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
        libc = ctypes.CDLL(None, use_errno=True)
        pages = (len(mapped) + 4095) // 4096
        found = (ctypes.c_ubyte * pages)()
        begin = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(len(mapped)), found) == 0
        return sum(one & 1 for one in found)


@pytest.mark.filterwarnings("ignore::mqstore.config.ConfigWarning")
def test_recipes_run_on_a_store_of_rocketmq(rocketmq_store):
    path, conf = rocketmq_store
    page = Path(__file__).parents[2] / "docs/sql.md"
    recipes = re.findall(r'^\$ mqstore sql .*? "(.*?)"', page.read_text("utf-8"), re.MULTILINE)
    assert len(recipes) >= 22
    connection = mqstore.sql(path, config=conf)
    for recipe in recipes:
        if not recipe.startswith(("describe", "explain")):
            assert connection.sql(recipe).columns
            connection.sql(recipe).fetchall()
