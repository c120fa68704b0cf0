"""Questions of an operator: who is behind, what grew, what would be lost."""

import json
import os

import pytest

import mqstore
from helpers.running import BEGIN_MS, SETTINGS
from mqstore.html_report.now import lags


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """A store whose first messages are deleted, with a group that has read some of the rest."""
    path = tmp_path_factory.mktemp("behind") / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(
            mqstore.Message(
                topic,
                bytes(200),
                keys=f"{topic}-{n}",
                unique_key=f"{topic}{n}",
                store_timestamp_ms=BEGIN_MS + 30_000 * n,
            )
            for n in range(40)
            for topic in ("orders", "audit")
        )
    (path / "config/consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{"0":2},"audit@billing":{"0":40},"audit@stock":{"0":35}}}'
    )
    os.utime(path / "config/consumerOffset.json", (1_700_000_500, 1_700_000_500))
    mqstore.clean(path, dry_run=False, config=SETTINGS | {"keep_bytes": 8_192})
    return path


def test_groups_say_how_far_each_is_behind(run, behind):
    first = {
        row["topic"]: row["min_offset"] for row in json.loads(run("queues", behind, "--json")[1])
    }
    assert first["orders"] > 2
    rows = json.loads(run("groups", behind, "--json")[1])
    assert [(row["group"], row["topic"], row["lag"]) for row in rows] == [
        ("billing", "audit", 0),
        ("billing", "orders", 38),
        ("stock", "audit", 5),
    ]
    late = rows[1]
    assert late["deleted_unread"] == first["orders"] - 2
    assert late["oldest_unread_timestamp_ms"] == BEGIN_MS + 30_000 * first["orders"]
    assert late["offsets_timestamp_ms"] == 1_700_000_500_000
    assert (rows[0]["oldest_unread_timestamp_ms"], rows[0]["deleted_unread"]) == (None, 0)
    assert rows[2]["oldest_unread_timestamp_ms"] == BEGIN_MS + 30_000 * 35
    text = run("groups", behind)[1]
    assert "OLDEST UNREAD  DELETED UNREAD  OFFSETS AS OF" in text
    assert "2023-11-14T22:21:40.000Z" in text
    (queue,) = json.loads(run("groups", behind, "-g", "stock", "-v", "--json")[1])
    assert (queue["queue_id"], queue["queue_offset"], queue["max_offset"]) == (0, 35, 40)


def test_the_notice_groups_metrics_and_the_report_count_what_a_group_missed_alike(run, tmp_path):
    """The group has an offset in one queue of the topic only."""
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(
            mqstore.Message("orders", bytes(200), queue_id=n % 2, store_timestamp_ms=BEGIN_MS + n)
            for n in range(80)
        )
        with store.group("billing") as group:
            group.seek("orders", 0, 2)
            group.commit()
    plan = mqstore.clean(path, dry_run=False, config=SETTINGS | {"keep_bytes": 8_192})
    told = sum(unread.messages for unread in plan.unread)
    assert {unread.queue_id for unread in plan.unread} == {0, 1}
    (row,) = json.loads(run("groups", path, "--json")[1])
    assert row["deleted_unread"] == told
    samples = json.loads(run("metrics", path, "--json")[1])
    names = {row["name"]: row["value"] for row in samples}
    assert names["mqstore_consumer_deleted_messages"] == told
    with mqstore.open(path) as store:
        assert [lag.deleted for lag in lags(store)] == [told]


def test_stats_by_minute_show_growth_and_the_largest_first(run, tmp_path):
    path = tmp_path / "store"
    counts = {0: 3, 1: 5, 3: 2}
    with mqstore.open(path, "a", config=SETTINGS) as store:
        for minute, count in counts.items():
            for _ in range(count):
                time_ms = BEGIN_MS + 60_000 * minute
                store.append_many([mqstore.Message("t", b"", store_timestamp_ms=time_ms)])
    rows = json.loads(run("stats", path, "--by", "minute", "--json")[1])
    begin = BEGIN_MS // 60_000 * 60_000
    assert [(row["minute_ms"], row["messages"], row["growth"]) for row in rows] == [
        (begin, 3, None),
        (begin + 60_000, 5, 2),
        (begin + 180_000, 2, 2),
    ]
    sizes = [row["bytes"] for row in rows]
    grown = [row["bytes_growth"] for row in rows]
    assert grown == [None, sizes[1] - sizes[0], sizes[2]]
    code, out, err = run("stats", path, "--by", "minute", "--top", 1, "--json")
    assert (code, [row["messages"] for row in json.loads(out)]) == (0, [5])
    assert "2 more rows; --top 1 was the limit" in err
    rows = json.loads(run("stats", path, "--by", "minute", "--sort", "last", "--json")[1])
    assert [row["messages"] for row in rows] == [2, 5, 3]


def test_stats_by_minute_and_by_local_day_count_as_the_extension_does(run, behind):
    by_hour = json.loads(run("stats", behind, "--by", "topic", "--json")[1])
    for by in ("topic,minute", "topic,day"):
        rows = json.loads(run("stats", behind, "--by", by, "--json", "--tz", "+05:30")[1])
        for whole in by_hour:
            parts = [row for row in rows if row["topic"] == whole["topic"]]
            assert sum(row["messages"] for row in parts) == whole["messages"]
            assert sum(row["bytes"] for row in parts) == whole["bytes"]
            firsts = [row["first_store_timestamp_ms"] for row in parts]
            assert min(firsts) == whole["first_store_timestamp_ms"]
    # 22:13 in UTC is the next day there, which began at 18:30.
    assert {row["day_ms"] for row in rows} == {1_699_986_600_000}


def test_clean_begins_with_disk_use_and_the_groups_that_have_not_read(run, behind):
    lines = run("clean", behind, "--keep-bytes", 4_096)[1].splitlines()
    assert lines[0].startswith("disk ")
    assert " used before, " in lines[0]
    assert lines[1].startswith("files below ")
    unread = [number for number, line in enumerate(lines) if "has not read" in line]
    assert unread
    assert max(unread) < next(at for at, line in enumerate(lines) if line.startswith("FATE"))
    disk = json.loads(run("clean", behind, "--keep-bytes", 4_096, "--json")[1])["disk"]
    assert disk["used_bytes_after"] < disk["used_bytes"] <= disk["total_bytes"]


def test_salvage_names_what_is_lost(run, store):
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
        file.seek(820)
        file.write(b"\xff" * 300)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    code, out, _ = run("salvage", store, "--json")
    found = json.loads(out)
    assert (code, found["messages"], found["lost_count"]) == (1, 37, 3)
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in found["lost"]]
    assert places == [("orders", 0, 0), ("orders", 0, 3), ("orders", 1, 1)]
    # The first has a damaged body only.
    assert found["lost"][0]["keys"] == ["order-0", "all"]
    assert found["lost"][0]["unique_key"] == "U000"
    assert found["lost"][1]["keys"] is None
    assert "3 are known to the queues of the source, and lost:" in run("salvage", store)[1]
    (store / "commitlog" / f"{4096:020}").unlink()
    assert json.loads(run("salvage", store, "--json")[1])["lost_count"] == 19
    assert {path: path.stat().st_mtime_ns for path in before if path.exists()} == {
        path: time for path, time in before.items() if path.exists()
    } | {store / "commitlog": (store / "commitlog").stat().st_mtime_ns}


def test_diff_lost_names_each_message_that_is_gone(run, made_once, tmp_path):
    for name, renumber in (("in-place", []), ("renumbered", ["--renumber"])):
        assert run("copy", made_once, tmp_path / name, "--tags", "paid", *renumber)[0] == 0
    # A message that an empty one stands in for is lost too.
    code, out, _ = run("diff", made_once, tmp_path / "in-place", "--lost", "--json")
    lost = {(row["topic"], row["unique_key"]) for row in json.loads(out)}
    with mqstore.open(made_once) as store:
        paid = {message.unique_key for message in store.scan(tags="paid")}
        everything = {(message.topic, message.unique_key) for message in store.scan()}
    assert code == 1
    assert lost == {(topic, key) for topic, key in everything if key not in paid}
    assert run("diff", made_once, made_once, "--lost")[:2] == (0, "")
    text = run("diff", made_once, tmp_path / "renumbered", "--lost")[1]
    assert text.splitlines()[0].split()[:5] == ["TOPIC", "QUEUE", "OFFSET", "STORED", "TAGS"]
