"""``rebuild`` of the table of topics, from queues and log."""

import json
import shutil
import tarfile

import pytest

import mqstore
from helpers.running import GOLDEN, SETTINGS, messages

TABLE = "config/topics.json"


def topics(path):
    return json.loads(mqstore.read_config_json(path / TABLE))["topicConfigTable"]


def rebuilt(path, **options):
    report = mqstore.rebuild(path, what="topics", **options)
    return {topic.name: topic.queues for topic in report.topics}, report


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as opened:
        opened.append_many(messages())
    return path


@pytest.mark.parametrize("case", ["broker", "broker-55"])
def test_a_brokers_topics_are_made_again(tmp_path, case):
    with tarfile.open(GOLDEN / case / "store.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / "store"
    before = topics(path)
    for name in ("topics.json", "topics.json.bak"):
        (path / "config" / name).unlink()
    found, report = rebuilt(path)
    assert report.skipped_ranges == 0
    after = topics(path)
    assert set(after) == set(found)
    assert {"OrderTopic", "BatchInner", "Topic_s-x", "%RETRY%group-push-retry"} <= set(after)
    for name, topic in after.items():
        assert topic["attributes"] == before[name]["attributes"]
        assert topic["perm"] == before[name]["perm"]
        assert 0 < topic["readQueueNums"] <= before[name]["readQueueNums"]
    # Those that a broker makes at its start have numbers of queues of their own.
    assert "SCHEDULE_TOPIC_XXXX" not in after
    with mqstore.open(path) as opened:
        for queue in opened.queues():
            if queue.topic in after:
                assert queue.queue_id < after[queue.topic]["readQueueNums"]


def test_entries_that_can_be_read_stay(store):
    table = json.loads((store / TABLE).read_text())
    table["topicConfigTable"]["orders"] |= {"readQueueNums": 16, "writeQueueNums": 1, "perm": 4}
    entries = table["topicConfigTable"]
    entries["empty"] = entries["orders"] | {"topicName": "empty"}
    del entries["audit"]
    (store / TABLE).write_text(json.dumps(table))
    # Its messages are in the log, but neither table nor queue folder has it: it was deleted.
    shutil.rmtree(store / "consumequeue/audit")
    assert rebuilt(store, dry_run=True)[0] == {"orders": 16}
    assert topics(store) == table["topicConfigTable"]
    _, report = rebuilt(store)
    after = topics(store)
    assert (after["orders"]["readQueueNums"], after["orders"]["writeQueueNums"]) == (16, 2)
    assert (after["orders"]["perm"], "empty" in after, "audit" in after) == (4, True, False)
    assert [(topic.name, topic.was) for topic in report.topics] == [("orders", 16)]
    written = (store / TABLE).stat().st_mtime_ns
    rebuilt(store)
    assert (store / TABLE).stat().st_mtime_ns == written


def test_a_table_that_cannot_be_read_goes_to_quarantine(store):
    (store / TABLE).write_text("{")
    (store / f"{TABLE}.bak").write_text("}")
    found, report = rebuilt(store)
    assert found == {"audit": 1, "orders": 2}
    kept = store / "quarantine" / report.quarantine.rpartition("/")[2] / TABLE
    assert (kept.read_text(), kept.with_name("topics.json.bak").read_text()) == ("{", "}")
    assert set(topics(store)) == {"audit", "orders"}
    assert mqstore.verify(store).ok


def test_queues_without_a_log_and_a_log_without_queues_both_tell(store, tmp_path):
    (store / TABLE).unlink()
    shutil.rmtree(store / "consumequeue")
    assert rebuilt(store, dry_run=True)[0] == {"audit": 1, "orders": 2}
    found, report = rebuilt(store, out=tmp_path / "out")
    assert (report.applied, set(topics(tmp_path / "out"))) == (True, set(found))
    assert not (store / TABLE).exists()


def test_topics_of_waiting_messages_are_topics(store):
    with mqstore.open(store, "r+", config=SETTINGS) as opened:
        waits = {"REAL_TOPIC": "later", "REAL_QID": "2"}
        opened.append("SCHEDULE_TOPIC_XXXX", b"", delay_level=3, properties=waits)
    (store / TABLE).unlink()
    # The backup is older, so that it does not say which topics were deleted.
    assert rebuilt(store)[0] == {"audit": 4, "later": 3, "orders": 4}


def test_names_and_locks_are_respected(store, tmp_path):
    assert rebuilt(store, topics=["orders"], dry_run=True)[0] == {"orders": 4}
    with pytest.raises(mqstore.MessageNotFoundError, match="nope"):
        rebuilt(store, topics=["nope"])
    with pytest.raises(ValueError, match="'topics' alone"):
        mqstore.rebuild(store, what=["topics", "index"])
    with mqstore.open(store, "r+"), pytest.raises(mqstore.StoreLockedError):
        rebuilt(store)
    with pytest.raises(mqstore.ConfigError, match="outside of the store"):
        rebuilt(store, out=store / "out")
