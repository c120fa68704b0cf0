"""Times go in and come out in one zone, which is named: ``--tz``, ``MQSTORE_TZ``, the system's."""

import json
from datetime import UTC, datetime

import pytest

import mqstore
from helpers.running import BEGIN_MS
from mqstore.cli import command
from mqstore.text import parse_time


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "2023-11-14T22:13:20.000Z"),
        ("Europe/Berlin", "2023-11-14T23:13:20.000+01:00"),
        ("+05:30", "2023-11-15T03:43:20.000+05:30"),
        ("-0330", "2023-11-14T18:43:20.000-03:30"),
    ],
)
def test_a_zone_holds_for_what_goes_in_and_what_comes_out(run, made_once, zone, shown):
    assert shown in run("cat", made_once, "-n", 1, "--tz", zone)[1]
    local = shown[:19].replace("T", " ")
    code, out, _ = run("cat", made_once, "--to", local, "--tz", zone, "--json")
    assert (code, [row["store_timestamp_ms"] for row in json.loads(out)]) == (0, [BEGIN_MS])
    head = run("topics", made_once, "--tz", zone)[1].splitlines()[0]
    assert ("FIRST" if zone == "UTC" else f"FIRST ({zone})") in head


def test_the_zone_is_the_environments_or_the_systems(run, made_once, monkeypatch, mq):
    monkeypatch.setenv("MQSTORE_TZ", "Asia/Tokyo")
    assert "2023-11-15T07:13:20.000+09:00" in run("cat", made_once, "-n", 1)[1]
    assert "2023-11-14T22:13:20.000Z" in run("cat", made_once, "-n", 1, "--tz", "UTC")[1]
    shown = mq("topics", made_once, MQSTORE_TZ="", TZ="America/New_York").lines
    assert "FIRST (America/New_York)" in shown[0]
    assert "2023-11-14T17:13:20.000-05:00" in shown[2]
    code, _, err = run("info", made_once, "--tz", "Europe/Berln")
    assert (code, "'Europe/Berln' is no time zone" in err) == (2, True)


def test_a_relative_time_is_no_option(run, made_once):
    assert run("at", made_once, "-t", "orders", "-2h")[0] == 0
    assert "Usage: mqstore at" in run("at", "-h")[1]


@pytest.mark.parametrize(
    "name",
    [
        *("info", "topics", "queues", "groups", "cat", "tail", "get", "query", "at", "index"),
        *("checkpoint", "verify", "stats", "doctor", "recover", "clean"),
    ],
)
def test_text_for_people_has_no_milliseconds(run, made_once, name):
    assert name in command.list_commands(None)
    least = {"get": [0], "query": ["-k", "all"], "at": ["-t", "orders", BEGIN_MS]}
    _, out, _ = run(name, made_once, *least.get(name, []))
    assert str(BEGIN_MS)[:7] not in out


def test_a_zone_that_is_none_is_refused_by_the_name_it_came_by(run, made_once, monkeypatch, mq):
    monkeypatch.setenv("MQSTORE_TZ", "Bad/Zone")
    code, _, err = run("cat", made_once)
    assert (code, "mqstore: MQSTORE_TZ: 'Bad/Zone' is no time zone" in err) == (2, True)
    assert "--tz'" not in err
    assert run("cat", made_once, "--tz", "UTC")[0] == 0
    ran = mq("cat", made_once, MQSTORE_TZ="", TZ="Bad/Zone", code=2)
    assert "mqstore: TZ: 'Bad/Zone' is no time zone" in ran.err
    assert mq("cat", made_once, "--tz", "UTC", TZ="Bad/Zone").err == ""
    for name in ("CET-1CEST", ":Europe/Berlin", "<+0330>-3:30"):
        mq("cat", made_once, MQSTORE_TZ="", TZ=name)


def test_the_zone_may_stand_before_the_command(run, made_once):
    behind = run("cat", made_once, "--tz", "+05:30")
    assert run("--tz", "+05:30", "cat", made_once) == behind
    assert run("--tz", "UTC", "cat", made_once, "--tz", "+05:30") == behind
    assert run("--tz", "Bad/Zone", "cat", made_once)[0] == 2
    assert run("--no-pager", "cat", made_once)[0] == 0


def test_times_of_early_1970_are_said_with_a_date(mq, tmp_path):
    # In milliseconds they look like today's seconds.
    day_ms = 86_400_000
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 4096}) as store:
        store.append_many(
            mqstore.Message(
                "t", b"x", keys="k", store_timestamp_ms=datetime.fromtimestamp(day * 86_400, UTC)
            )
            for day in (1, 40, 60, 100)
        )
    wanted = ("--from", "1970-02-01T00:00:00Z", "--to", "1970-03-20T00:00:00Z", "--json")
    for command_line in (("cat", tmp_path), ("query", tmp_path, "-k", "k")):
        found = mq(*command_line, *wanted).json
        rows = found["messages"] if isinstance(found, dict) else found
        assert sorted(row["store_timestamp_ms"] for row in rows) == [40 * day_ms, 60 * day_ms]
    at = mq("at", tmp_path, "-t", "t", "1970-02-01T00:00:00Z", "--json").json
    assert [row["queue_offset"] for row in at] == [1]
    said = mq("cat", tmp_path, "--from", 40 * day_ms, code=2).err
    assert "looks like seconds" in said
    assert "1970-02-10T00:00:00.000Z" in said
    assert parse_time("1970-02-10T00:00:00.000Z") == 40 * day_ms
