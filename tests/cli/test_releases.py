"""Stores of RocketMQ 5.4 and 5.5 in the shell: ``query --tags``, ``info``, ``preflight``."""

import json
import shutil

import pytest

import mqstore
from helpers.golden import Case

SMALL = {"mapped_file_size_commit_log": 1024, "mapped_file_size_consume_queue": 20_000}


@pytest.fixture
def store(tmp_path):
    """A store of 5.5 with more than ten files of the log."""
    root = tmp_path / "store"
    settings = {**SMALL, "max_hash_slot_num": 50, "max_index_num": 400, "rocketmq_version": "5.5"}
    with mqstore.open(root, "a", config=settings) as opened:
        for number in range(100):
            opened.append("orders", b"x" * 20, tags=f"t{number % 2}", keys=f"k{number}")
    return root


def test_query_takes_tags_or_a_key(mq, store):
    found = mq("query", store, "-t", "orders", "--tags", "t1", "-n", 3, "--json").json
    assert [row["keys"] for row in found["messages"]] == [["k99"], ["k97"], ["k95"]]
    assert "either -k KEY or --tags TAGS" in mq("query", store, "-t", "orders", code=2).err
    both = ("-k", "a", "--tags", "b")
    assert "either -k KEY or --tags TAGS" in mq("query", store, "-t", "orders", *both, code=2).err


def test_info_says_which_releases_wrote_a_store_and_by_what_marks(mq, store, tmp_path):
    found = mq("info", store, "--json").json["versions"]
    assert found["can_be"] == ["5.5"]
    assert {mark["path"] for mark in found["marks"]} > {"checkpoint"}
    assert "RocketMQ                       5.5" in mq("info", store).out
    root = Case("rocksdb-55").unpack(tmp_path / "other")
    assert mq("info", root, "--json").json["warnings"] == []


def test_preflight_prints_what_would_be_lost_and_the_command_that_prevents_it(mq, store):
    assert "every message stays in its queue" in mq("preflight", store, "--to", "5.5").out
    shutil.rmtree(store / "consumequeue")
    lost = mq("preflight", store, "--to", "5.4", code=1)
    assert f"before: mqstore recover {store} --apply" in lost.out
    assert mq("preflight", store, "--to", "5.4", "--json", code=1).json["lost"] > 0
    mq("recover", store, "--apply")
    assert mq("preflight", store, "--to", "5.5", "--jsonl").jsonl == []


def test_preflight_counts_no_messages_of_a_lost_queue(mq, tmp_path):
    with mqstore.open(tmp_path, "a", config=SMALL) as opened:
        for number in range(10):
            opened.append("T", b"x", queue_id=number % 2)
    shutil.rmtree(tmp_path / "consumequeue/T/0")
    told = mq("preflight", tmp_path, "--to", "5.5", code=1).out
    assert told.startswith("error: it leaves the queues as they are: ")
    assert told.endswith("5.5 opens it, with the errors above\n")


@pytest.fixture
def lite(tmp_path):
    """A store with a lite topic of RocketMQ 5.5, a light queue and a message with a priority."""
    settings = {**SMALL, "enable_lmq": True, "enable_multi_dispatch": True}
    properties = {"__LITE_TOPIC": "c1", "INNER_MULTI_DISPATCH": "%LMQ%$P$c1,%LMQ%plain"}
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=settings) as opened:
        opened.append("P", b"x", properties=properties)
        opened.append("first", b"y", properties={"_SYS_MSG_PRIORITY_": "7"})
        opened.append("%RETRY%g", b"z")
    table = root / "config" / "topics.json"
    text = json.loads(table.read_text())
    rows = text["topicConfigTable"]
    rows["P"]["attributes"] = {"message.type": "LITE"}
    rows["first"]["attributes"] = {"message.type": "PRIORITY"}
    table.write_text(json.dumps(text))
    return root


def test_a_lite_topic_is_named_with_its_parent(mq, lite):
    rows = {row["topic"]: row for row in mq("queues", lite, "--json").json}
    found = rows["%LMQ%$P$c1"]
    assert (found["parent_topic"], found["lite_topic"]) == ("P", "c1")
    assert "lite_topic" not in rows["%LMQ%plain"]
    assert "lite_topic" not in rows["P"]


def test_topics_say_what_they_are(mq, lite):
    rows = {row["topic"]: row for row in mq("topics", lite, "--json").json}
    assert {topic: row["type"] for topic, row in rows.items()} == {
        "P": "lite",
        "first": "priority",
        "%LMQ%$P$c1": "lite topic",
        "%LMQ%plain": "light queue",
        "%RETRY%g": "retry",
    }
    assert (rows["%LMQ%$P$c1"]["parent_topic"], rows["%LMQ%$P$c1"]["lite_topic"]) == ("P", "c1")
    assert "light queue" in mq("topics", lite).out
    assert mq("info", lite, "--json").json["lite_topics"] == 1
    assert "5, 5; lite topics: 1" in mq("info", lite).out
    # A table that names no type, or something that is none.
    (lite / "config" / "topics.json").write_text('{"topicConfigTable": {"P": {"attributes": 7}}}')
    assert {row["topic"]: row["type"] for row in mq("topics", lite, "--json").json}["P"] is None


def test_messages_of_new_kinds_are_shown_for_what_they_are(mq, lite, tmp_path):
    rows = mq("cat", lite, "--json").json
    assert [(row["lite_topic"], row["priority"]) for row in rows] == [
        ("c1", None),
        (None, 7),
        (None, None),
    ]
    out = mq("cat", lite).out
    assert "lite_topic=c1" in out
    assert "priority=7" in out
    assert "lite_topic                   c1" in mq("get", lite, "0").out
    mq("report", lite, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "1 lite topics" in page
    assert '<small class="soft">lite</small>' in page
