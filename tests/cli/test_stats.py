"""``stats``: counts by topic, queue, hour, day and tags."""

import json
from collections import Counter

import pytest

import mqstore
from helpers.running import BEGIN_MS, SETTINGS, messages

ALL = messages()


def test_stats_by_topic_and_hour(mq, store):
    assert mq("stats", store, "--json").json == [
        {
            "topic": topic,
            "hour_ms": BEGIN_MS // 3_600_000 * 3_600_000,
            "messages": count,
            "bytes": sum(row["store_size"] for row in rows),
            "first_store_timestamp_ms": first,
            "last_store_timestamp_ms": last,
            "messages_per_s": round(count / 3600, 3),
            "growth": None,
            "bytes_growth": None,
        }
        for topic, count, first, last in [
            ("audit", 10, BEGIN_MS + 3_000, BEGIN_MS + 39_000),
            ("orders", 30, BEGIN_MS, BEGIN_MS + 38_000),
        ]
        for rows in [mq("cat", store, "-t", topic, "--json").json]
    ]
    shown = mq("stats", store).lines
    assert shown[0].split() == [
        *("TOPIC", "HOUR", "MESSAGES", "/S", "GROWTH", "BYTES", "+BYTES", "FIRST", "LAST")
    ]
    assert shown[1].split()[:3] == ["audit", "2023-11-14T22:00", "10"]


def test_stats_by_queue_and_tags(mq, store):
    rows = mq("stats", store, "--by", "tags,queue_id", "--jsonl").jsonl
    expected = Counter((m.tags, m.queue_id) for m in ALL)
    assert {(row["tags"], row["queue_id"]): row["messages"] for row in rows} == expected
    assert list(rows[0])[:2] == ["tags", "queue_id"]


def test_stats_of_what_is_chosen(mq, store):
    options = ["--by", "", "--json", "-t", "orders", "--tags", "paid", "--from", BEGIN_MS + 20_000]
    chosen = [m for n, m in enumerate(ALL) if n >= 20 and (m.topic, m.tags) == ("orders", "paid")]
    (row,) = mq("stats", store, *options).json
    assert row["messages"] == len(chosen)


@pytest.mark.parametrize("by", ["topics", "topic,topic", "topic;hour"])
def test_stats_refuses_what_one_cannot_group_by(mq, store, by):
    assert "--by" in mq("stats", store, "--by", by, code=2).err


def test_stats_past_damage(mq, store):
    rows = mq("cat", store, "--json").json
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(rows[5]["physical_offset"] + 4)
        file.write(b"\0\0\0\0")
    assert mq("stats", store, code=1).out == ""
    ran = mq("stats", store, "--skip-damage", "--json", "--by", "", code=1)
    assert ran.json[0]["messages"] == 39
    assert f"skipped 1 damaged ranges, {rows[5]['store_size']} bytes" in ran.err


def test_stats_escapes_what_messages_say(mq, tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append("t", b"", properties={"TAGS": "\x1b[31m\u202e"})
    assert r"\x1b[31m\u202e" in mq("stats", path, "--by", "tags").out


def test_days_of_a_zone_off_the_full_hour(run, tmp_path):
    path, midnight = tmp_path / "store", 1_700_073_000_000  # 2023-11-16T00:00+05:30
    with mqstore.open(path, "a", config=SETTINGS) as store:
        times = [midnight - 1, midnight, midnight + 60_000, midnight + 86_400_000]
        store.append_many(mqstore.Message("t", b"", store_timestamp_ms=time) for time in times)
    code, out, _ = run("stats", path, "--by", "day", "--tz", "Asia/Kolkata", "--json")
    days = {row["day_ms"] - midnight: row["messages"] for row in json.loads(out)}
    assert (code, days) == (0, {-86_400_000: 1, 0: 2, 86_400_000: 1})


def test_groupings_that_are_repeated_are_all_taken(run, made_once):
    once = run("stats", made_once, "--by", "topic,tags", "--json")
    assert run("stats", made_once, "--by", "topic", "--by", "tags", "--json") == once
    assert run("stats", made_once, "--by", "topic", "--by", "topic")[0] == 2


def test_growth_needs_a_grouping_by_time(run, made_once):
    code, out, err = run("stats", made_once, "--by", "topic", "--sort", "growth")
    assert (code, out) == (2, "")
    assert "--sort growth needs one of minute, hour, day in --by; found 'topic'" in err
    assert run("stats", made_once, "--by", "topic,minute", "--sort", "growth")[0] == 0


def test_minutes_are_counted_in_bounded_memory(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(
            mqstore.Message("t", b"", store_timestamp_ms=BEGIN_MS + 20_000 * n) for n in range(9)
        )
    rows = list(mqstore.stats(path, by=["minute"]))
    assert [row["messages"] for row in rows] == [2, 3, 3, 1]
    assert rows[1]["minute_ms"] == BEGIN_MS + 40_000
    assert mqstore.stats(path, by="quarter_hour").schema is not None
