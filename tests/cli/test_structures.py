"""``info``, ``topics``, ``queues``, ``groups``, ``cq``, ``index``, ``checkpoint``, ``config``."""

import json
import struct

import pytest

import mqstore
from helpers.running import BEGIN_MS, SETTINGS


def test_topics(mq, store):
    rows = mq("topics", store, "--json").json
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [
        ("audit", 1, 10),
        ("orders", 2, 30),
    ]
    assert rows[1]["first_store_timestamp_ms"] == BEGIN_MS
    assert rows[1]["last_store_timestamp_ms"] == BEGIN_MS + 38_000
    sizes = [row["store_size"] for row in mq("cat", store, "-t", "audit", "--json").json]
    assert rows[0]["bytes"] == sum(sizes)
    assert "bytes" not in mq("topics", store, "--no-bytes", "--json").json[0]
    assert mq("topics", store).lines[1].split()[:4] == ["audit", "-", "1", "10"]


def test_queues(mq, store):
    rows = mq("queues", store, "--jsonl").jsonl
    assert [
        (row["topic"], row["queue_id"], row["min_offset"], row["max_offset"]) for row in rows
    ] == [
        ("audit", 0, 0, 10),
        ("orders", 0, 0, 20),
        ("orders", 1, 0, 10),
    ]
    assert {row["kind"] for row in rows} == {"SimpleCQ"}
    assert len(mq("queues", store, "-t", "orders", "--json").json) == 2
    assert mq("queues", store).lines[0].split() == [
        *("TOPIC", "QUEUE", "KIND", "MIN", "MAX", "MESSAGES", "BYTES", "FIRST", "LAST")
    ]


def test_groups_of_a_broker(mq, rocketmq_store):
    path, conf = rocketmq_store
    rows = mq("groups", path, "--config", conf, "-v", "--json").json
    found = {
        (row["group"], row["topic"], row["queue_id"]): (row["queue_offset"], row["lag"])
        for row in rows
    }
    assert found["group-pull-all", "OrderTopic", 0] == (9, 0)
    assert found["group-pull-some", "OrderTopic", 0] == (0, 9)
    only = mq("groups", path, "--config", conf, "-g", "group-pull-tag", "-v", "--json").json
    assert {row["group"] for row in only} == {"group-pull-tag"}
    assert [row["queue_offset"] for row in only] == [4, 7, 3]


def test_cq_prints_entries(mq, store):
    rows = mq("cq", store, "-t", "orders", "-q", 1, "--json").json
    read = mq("cat", store, "-t", "orders", "-q", 1, "--json").json
    assert [(row["queue_offset"], row["physical_offset"], row["store_size"]) for row in rows] == [
        (row["queue_offset"], row["physical_offset"], row["store_size"]) for row in read
    ]
    assert [row["tags_code"] for row in rows] == [mqstore.java_hash(row["tags"]) for row in read]
    some = mq("cq", store, "-t", "orders", "-q", 1, "-o", 4, "-n", 3, "--jsonl").jsonl
    assert some == rows[4:7]
    assert mq("cq", store, "-t", "orders", "-q", 1, "-o", 99, "--json").json == []
    assert "no queue 3" in mq("cq", store, "-t", "orders", "-q", 3, code=1).err


def test_cq_check_finds_each_wrong_entry(mq, store):
    options = ["cq", store, "-t", "orders", "-q", 1, "--check"]
    good = mq(*options, "--json")
    assert "10 entries compared with the log, 0 of them wrong" in good.err
    assert [row["problem"] for row in good.json] == [None] * 10
    entries = [(row["physical_offset"], row["store_size"], row["tags_code"]) for row in good.json]
    entries[1] = (entries[1][0], entries[1][1] + 1, entries[1][2])
    entries[2] = (entries[2][0] + 1, *entries[2][1:])
    entries[3] = (*entries[3][:2], 5)
    entries[4] = entries[5]
    entries[6] = (0, mq("get", store, 0, "--json").json["store_size"], 0)
    entries[7] = (1 << 40, 100, 0)
    with (store / "consumequeue" / "orders" / "1" / f"{0:020}").open("r+b") as file:
        file.write(b"".join(struct.pack(">qiq", *entry) for entry in entries))
    bad = mq(*options, "--json", code=1)
    problems = [row["problem"] for row in bad.json]
    assert [number for number, problem in enumerate(problems) if problem] == [1, 2, 3, 4, 6, 7]
    assert problems[1] == f"the record has {good.json[1]['store_size']} bytes"
    assert problems[3].startswith("the tags' code is ")
    assert problems[4] == "the record says queue offset 5"
    assert problems[6] == "the record is of orders/0"
    assert "6 of them wrong" in bad.err


def test_index_headers_and_entries(mq, store, conf):
    options = ["index", store, "--config", conf]
    rows = mq(*options, "--json").json
    # Three keys a message, and 39 entries a file.
    assert [row["entries"] for row in rows] == [39, 39, 39, 3]
    assert {(row["slots"], row["capacity"]) for row in rows} == {(7, 39)}
    assert rows[0]["begin_timestamp_ms"] == BEGIN_MS
    assert rows[0]["index_count"] == 40
    entries = mq(*options, "--entries", "--json").json
    assert len(entries) == 120
    assert [row["number"] for row in entries[:3]] == [1, 2, 3]
    assert entries[0]["key_hash"] == mqstore.key_hash("orders#U000")
    only = rows[1]["file"]
    assert {row["file"] for row in mq(*options, "--file", only, "--entries", "--json").json} == {
        only
    }
    assert len(mq(*options, "--entries", "-n", 50, "--json").json) == 50
    assert "no index file 'none'" in mq(*options, "--file", "none", code=1).err
    assert len(mq(*options).lines) == 5


def test_index_chain_of_a_key(mq, store, conf):
    options = ["index", store, "--config", conf, "--json"]
    ran = mq(*options, "--chain", "orders#order-5")
    key_hash = mqstore.key_hash("orders#order-5")
    assert f"orders#order-5: hash {key_hash}, slot {key_hash % 7} of 7" in ran.err
    assert ran.json == mq(*options, "-t", "orders", "--chain", "order-5").json
    assert [row["match"] for row in ran.json].count("yes") == 1
    hit = next(row for row in ran.json if row["match"] == "yes")
    assert mq("get", store, hit["physical_offset"], "--json").json["unique_key"] == "U010"
    assert {row["match"] for row in ran.json} <= {"yes", "another hash in this slot"}
    assert all(row["prev_entry"] < row["number"] for row in ran.json)
    assert "exclude each other" in mq(*options, "--entries", "--chain", "a", code=2).err


def test_index_with_a_key_of_the_same_hash(mq, tmp_path, conf):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append("T", b"1", keys="Aa")
        store.append("T", b"2", keys="BB")
    ran = mq("index", path, "--config", conf, "-t", "T", "--chain", "Aa", "--json")
    assert [row["match"] for row in ran.json] == ["another key with this hash", "yes"]


def test_index_files_that_do_not_fit_the_settings(mq, store, tmp_path):
    conf = tmp_path / "other.conf"
    conf.write_text("maxHashSlotNum=8\nmaxIndexNum=40\n")
    for command in ("index", "info"):
        err = mq(command, store, "--config", conf, code=2).err
        assert "max_hash_slot_num: does not fit the index file" in err


def test_checkpoint(mq, store):
    fields = mq("checkpoint", store, "--json").json
    raw = (store / "checkpoint").read_bytes()
    assert [
        fields[name]
        for name in (
            "physic_msg_timestamp_ms",
            "logics_msg_timestamp_ms",
            "index_msg_timestamp_ms",
            "master_flushed_offset",
            "confirm_physical_offset",
            "logics_physical_offset",
        )
    ] == list(struct.unpack(">6q", raw[:48]))
    assert fields["logics_msg_timestamp_ms"] == BEGIN_MS + 39_000
    assert "2023-11-14T22:13:59.000Z" in mq("checkpoint", store).out
    (store / "checkpoint").unlink()
    assert "no checkpoint" in mq("checkpoint", store, code=1).err


def test_config_of_a_broker(mq, rocketmq_store):
    path, conf = rocketmq_store
    ran = mq("config", path, "--config", conf, "--json")
    assert ran.json["settings"]["mapped_file_size_commit_log"] == 32768
    assert ran.json["settings"]["max_hash_slot_num"] == 500
    offsets = ran.json["files"]["consumerOffset.json"]["offsetTable"]
    assert offsets["OrderTopic@group-pull-all"] == {"0": 9, "1": 5, "2": 8}
    only = mq("config", path, "--file", "topics.json", "--config", conf, "--json").json
    assert list(only) == ["files", "from_backup"]
    assert "OrderTopic" in only["files"]["topics.json"]["topicConfigTable"]
    assert '"OrderTopic@group-pull-all": {' in mq("config", path, "--config", conf).out
    assert "no file 'none'" in mq("config", path, "--file", "none", code=1).err


def test_config_of_a_store_of_ours(mq, store):
    topics = json.loads(mq("config", store, "--json").out)["files"]["topics.json"]
    assert sorted(topics["topicConfigTable"]) == ["audit", "orders"]


def test_a_broken_json_file_is_named_and_the_others_shown(mq, store):
    (store / "config" / "consumerOffset.json").write_text("{not json")
    ran = mq("config", store, "--json")
    assert list(ran.json["files"]) == ["topics.json"]
    assert "consumerOffset.json" in ran.err


@pytest.mark.parametrize("damage", ["gone", "empty", "unreadable"])
@pytest.mark.parametrize(
    "name",
    ["consumerOffset.json", "topics.json", "subscriptionGroup.json", "delayOffset.json"],
)
def test_the_backup_of_a_json_file_is_shown_where_the_file_is_of_no_use(mq, store, name, damage):
    path = store / "config" / name
    kept = '{"topicConfigTable":{},"offsetTable":{}}'
    path.with_name(f"{name}.bak").write_text(kept)
    path.unlink(missing_ok=True)
    if damage != "gone":
        path.write_text({"empty": "", "unreadable": "{not json"}[damage])
    ran = mq("config", store, "--file", name, "--json")
    assert ran.json == {"files": {name: json.loads(kept)}, "from_backup": {name: damage}}
    assert f"{name} is {damage}" in ran.err
    assert f"config/{name}.bak, as the file is {damage}" in mq("config", store).out
    assert any(f"{name}.bak" in line for line in mq("info", store, "--json").json["warnings"])
    if name == "consumerOffset.json":
        ran = mq("groups", store, "--json")
        assert ran.json == []
        assert "consumerOffset.json.bak is read in its place" in ran.err


def test_info_of_a_closed_store(mq, store, conf):
    info = mq("info", store, "--config", conf, "--json").json
    assert info["state"] == "closed"
    assert (info["locked"], info["locked_by_pid"]) == (False, None)
    assert info["min_physical_offset"] == 0
    assert info["dispatched_offset"] == info["flushed_offset"] == info["max_physical_offset"]
    assert (info["topics"], info["queues"], info["messages"]) == (2, 3, 40)
    assert info["first_store_timestamp_ms"] == BEGIN_MS
    assert info["last_store_timestamp_ms"] == BEGIN_MS + 39_000
    assert info["index"]["usable"] is True
    assert (info["index"]["files"], info["index"]["entries"]) == (4, 120)
    assert info["index"]["end_timestamp_ms"] == BEGIN_MS + 39_000
    assert info["settings"]["mapped_file_size_commit_log"] == 4096
    assert info["settings"]["max_index_num"] == 40
    assert info["unknown"] == []
    files = {group["name"]: group["files"] for group in info["files"]}
    assert files["index"] == 4
    assert files["checkpoint"] == 1
    assert files["commitlog"] == len(list((store / "commitlog").iterdir()))
    text = mq("info", store, "--config", conf).out
    assert f"{'state':<30} closed\n" in text
    assert "unknown" not in text


def test_info_names_what_is_none_of_a_stores(mq, store):
    (store / "notes.txt").write_text("mine")
    (store / "commitlog" / "stray").write_text("")
    (store / "consumequeue" / "orders" / "x").mkdir()
    (store / "other").mkdir()
    (store / "other" / "below").write_text("")
    info = mq("info", store, "--json").json
    assert info["unknown"] == ["commitlog/stray", "consumequeue/orders/x", "notes.txt", "other"]
    assert f"{'unknown':<30} notes.txt\n" in mq("info", store).out


def test_info_of_a_crashed_store_and_of_one_in_use(mq, store):
    (store / "abort").write_text("4711")
    assert mq("info", store, "--json").json["state"] == "crashed"
    (store / "abort").unlink()
    with mqstore.open(store, "r+", config=SETTINGS) as opened:
        info = mq("info", store, "--json").json
        assert (info["state"], info["locked"]) == ("open", True)
        assert opened.mode == "r+"
    assert mq("info", store, "--json").json["state"] == "closed"


def test_looking_changes_nothing(mq, store, conf):
    def state():
        return {
            str(path.relative_to(store)): (path.stat().st_mtime_ns, path.stat().st_size)
            for path in [store, *store.rglob("*")]
        }

    before = state()
    for command in (
        ["info"],
        ["topics"],
        ["queues"],
        ["groups"],
        ["cat"],
        ["get", 0],
        ["query", "-t", "orders", "-k", "all"],
        ["at", "-t", "orders", 0],
        ["cq", "-t", "orders", "-q", 0, "--check"],
        ["index", "--entries"],
        ["checkpoint"],
        ["config"],
        ["verify"],
    ):
        mq(command[0], store, *command[1:], "--config", conf)
    assert state() == before


def test_the_printed_broker_conf_opens_the_store(mq, tmp_path):
    root = tmp_path / "store"
    config = mqstore.StoreConfig(
        mapped_file_size_commit_log=1 << 20, max_hash_slot_num=50, max_index_num=200
    )
    with mqstore.open(root, "a", config=config) as store:
        store.append("orders", b"one", keys="k")
    printed = mq("config", root, "--broker-conf").out
    conf = tmp_path / "broker.conf"
    conf.write_text(printed)
    assert printed.splitlines()[:4] == [
        f"storePathRootDir={root}",
        "mappedFileSizeCommitLog=1048576",
        "maxHashSlotNum=50",
        "maxIndexNum=200",
    ]
    read = mqstore.StoreConfig.from_broker_conf(conf)
    assert read == config
    lines = mq("config", root, "--broker-conf", "--json").json
    assert lines["maxIndexNum"] == "200"
    (root / "config" / "mqstore.json").unlink()
    assert mq("verify", root, "--config", conf).code == 0
    assert "got both" in mq("config", root, "--broker-conf", "--file", "a", code=2).err
