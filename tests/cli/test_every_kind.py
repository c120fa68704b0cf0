"""Every kind of message and queue through the commands, on stores that RocketMQ wrote."""

import json
import tarfile

import pytest

from helpers.running import GOLDEN

KINDS = (
    *("batch", "broker", "cqext", "delay", "lmq", "transaction"),
    *("batch-55", "broker-54", "broker-55", "delay-55", "lmq-55", "transaction-55"),
)


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """A golden store and its broker.conf, by the name of its case."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            with tarfile.open(GOLDEN / name / "store.tar.gz") as tar:
                tar.extractall(folder, filter="data")
            params = json.loads((GOLDEN / name / "params.json").read_text())
            params["storeConfig"].pop("mappedFileSizeTimerLog", None)
            conf = folder / "broker.conf"
            lines = (f"{key}={json.dumps(value)}" for key, value in params["storeConfig"].items())
            conf.write_text("\n".join(lines).replace('"', ""))
            made[name] = folder / "store", conf
        return made[name]

    return get


def expected(name, kind):
    with (GOLDEN / name / "expected.jsonl").open() as lines:
        return [row for row in map(json.loads, lines) if row["type"] == kind]


@pytest.mark.parametrize("name", KINDS)
def test_cat_gives_each_record_and_says_what_it_is(mq, golden, name):
    path, conf = golden(name)
    rows = mq("cat", path, "--config", conf, "--json").json
    wanted = expected(name, "message")
    assert [(r["physical_offset"], r["topic"], r["sys_flag"], r["properties"]) for r in rows] == [
        (r["phyOffset"], r["topic"], r["sysFlag"], r["properties"]) for r in wanted
    ]
    assert len(mq("cat", path, "--config", conf).lines) == len(wanted)
    states = {0x4: "prepared", 0x8: "commit", 0xC: "rollback", 0: "none"}
    assert [r["transaction"] for r in rows] == [states[r["sysFlag"] & 0xC] for r in wanted]
    assert [r["delay_level"] for r in rows] == [
        int(r["properties"].get("DELAY", 0)) for r in wanted
    ]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_found_by_queue_by_key_and_by_time(mq, golden, name):
    path, conf = golden(name)
    messages = {row["phyOffset"]: row for row in expected(name, "message")}
    queues = mq("queues", path, "--config", conf, "--json").json
    seen = set()
    # Each is a process; the golden tests of the package read every queue.
    for queue in queues[:: max(1, len(queues) // 6)]:
        of = ("-t", queue["topic"], "-q", queue["queue_id"], "--config", conf, "--json")
        # A light queue leads to messages of another topic.
        found = [row["physical_offset"] for row in mq("cat", path, *of).json]
        assert found
        seen.update(found)
    first = messages[found[0]]["storeTimestamp"]
    (at,) = mq("at", path, *of, first).json
    assert at["queue_offset"] == at["min_offset"] == queue["min_offset"]
    assert seen <= set(messages)
    keyed = {(m["topic"], m["keys"].split(" ")[0]): o for o, m in messages.items() if m["keys"]}
    for (topic, key), offset in list(keyed.items())[:: max(1, len(keyed) // 4)]:
        if messages[offset]["sysFlag"] & 0xC == 0xC:
            continue
        ran = mq("query", path, "-t", topic, "-k", key, "-n", 64, "--config", conf, "--json")
        assert offset in [row["physical_offset"] for row in ran.json["messages"]]


@pytest.mark.parametrize("name", KINDS)
def test_verify_finds_no_damage(mq, golden, name):
    path, conf = golden(name)
    report = mq("verify", path, "--config", conf, "--json").json
    assert report["ok"] is True
    assert report["counts"]["messages"] == len(expected(name, "message"))


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("batch", {"batchconsumequeue": 6, "consumequeue": 2, "compaction": 1}),
        ("broker", {"batchconsumequeue": 2, "config": 17}),
        ("cqext", {"consumequeue_ext": 8, "consumequeue": 2}),
        ("lmq", {"consumequeue": 5}),
    ],
)
def test_info_names_every_file(mq, golden, name, folders):
    path, conf = golden(name)
    info = mq("info", path, "--config", conf, "--json").json
    assert info["unknown"] == []
    files = {group["name"]: (group["files"], group["what"]) for group in info["files"]}
    assert {folder: files[folder][0] for folder in folders} == folders
    assert all(what for _, what in files.values())


def test_queues_say_of_which_kind_they_are(mq, golden):
    path, conf = golden("broker")
    rows = mq("queues", path, "--config", conf, "--json").json
    assert {row["topic"] for row in rows if row["kind"] == "BatchCQ"} == {"BatchInner"}
    assert {row["kind"] for row in rows} == {"BatchCQ", "SimpleCQ"}


def test_cat_shows_the_messages_of_a_batch(mq, golden):
    path, conf = golden("batch")
    at = ("-t", "InnerTopic", "-q", 0, "--config", conf)
    rows = mq("cat", path, *at, "--json").json
    counts = [int(row["properties"].get("INNER_NUM", 0)) for row in rows]
    assert [len(row["batch"] or ()) for row in rows] == counts
    for row in rows:
        numbers = [member["queue_offset"] for member in row["batch"] or ()]
        assert numbers == list(range(row["queue_offset"], row["queue_offset"] + len(numbers)))
        members = row["batch"] or ()
        assert all({"body", "body_base64"} & set(member) for member in members)
    first = next(row for row in rows if row["batch"])
    (line,) = (
        line
        for line in mq("cat", path, *at).lines
        if line.split(maxsplit=1)[0] == str(first["physical_offset"])
    )
    assert f"batch={len(first['batch'])} messages" in line
    page = mq("get", path, first["physical_offset"], "--config", conf).out
    for member in first["batch"]:
        assert f"@{member['queue_offset']}" in page
        assert member.get("body", "") in page
    gotten = mq("get", path, first["physical_offset"], "--config", conf, "--json").json
    assert gotten == first


def test_cat_says_what_a_message_waits_for_and_where_else_it_is(mq, golden):
    path, conf = golden("delay")
    rows = mq("cat", path, "-t", "SCHEDULE_TOPIC_XXXX", "--config", conf, "--json").json
    assert rows
    assert {row["purpose"] for row in rows} == {"delayed"}
    assert all(row["real_topic"] == row["properties"].get("REAL_TOPIC") for row in rows)
    waits = {row["physical_offset"]: row for row in rows if row["deliver_timestamp_ms"]}
    assert waits
    for line in mq("cat", path, "-t", "SCHEDULE_TOPIC_XXXX", "--config", conf).lines:
        row = waits.get(int(line.split()[0]))
        assert "purpose=delayed" in line
        assert ("deliver=" in line) == (row is not None)
        if row is not None:
            assert row["deliver_timestamp_ms"] > row["store_timestamp_ms"]
            assert f"delay_level={row['delay_level']}" in line
    path, conf = golden("lmq")
    rows = mq("cat", path, "--config", conf, "--json").json
    light = next(row for row in rows if row["multi_dispatch"])
    (first, *_) = light["multi_dispatch"]
    assert first["topic"].startswith("%LMQ%")
    page = mq("get", path, light["physical_offset"], "--config", conf).out
    assert f"{first['topic']}@{first['queue_offset']}" in page
    assert "real_topic" not in page
    template = mq("cat", path, "--config", conf, "--format", "{purpose} {multi_dispatch}").lines
    assert any(f"normal {first['topic']}@" in line for line in template)


def test_cq_prints_and_checks_the_entries_of_a_batch_queue(mq, golden, tmp_path):
    path, conf = golden("batch")
    at = ("-t", "InnerTopic", "-q", 0, "--config", conf)
    rows = mq("cq", path, *at, "--json").json
    assert [row["message_count"] for row in rows] == [4, 1, 5, 1, 5, 1]
    assert "6 entries compared with the log" in mq("cq", path, *at, "--check").err


def test_groups_show_the_lag_that_the_brokers_file_tells(mq, golden):
    path, conf = golden("broker")
    ends = {
        (row["topic"], row["queue_id"]): row["max_offset"]
        for row in mq("queues", path, "--config", conf, "--json").json
    }
    files = mq("config", path, "--config", conf, "--json").json["files"]
    wanted = {
        (group, topic, int(queue)): (offset, max(ends.get((topic, int(queue)), 0) - offset, 0))
        for place, offsets in files["consumerOffset.json"]["offsetTable"].items()
        for topic, group in [place.split("@")]
        for queue, offset in offsets.items()
    }
    rows = mq("groups", path, "--config", conf, "-v", "--json").json
    assert wanted == {
        (row["group"], row["topic"], row["queue_id"]): (row["queue_offset"], row["lag"])
        for row in rows
    }
    assert any(lag for _, lag in wanted.values())


def test_config_shows_each_of_the_brokers_files(mq, golden):
    path, conf = golden("broker")
    files = mq("config", path, "--config", conf, "--json").json["files"]
    names = {"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"}
    assert names <= set(files)


def test_a_broker_conf_of_a_deployment_is_one_warning_and_no_refusal(mq, golden, tmp_path):
    path, conf = golden("broker")
    own = tmp_path / "broker.conf"
    own.write_text(
        "# the shop's\nbrokerClusterName = shop\nbrokerName: broker-a\nbrokerId=0\n"
        "namesrvAddr=10.20.0.11:9876;\\\n    10.20.0.12:9876\nbrokerRole=ASYNC_MASTER\n"
        "storePathRootDir=/data/rocketmq/store\nstorePathCommitLog=/data/rocketmq/store/commitlog\n"
        "deleteWhen=04\nfileReservedTime=120\nshopsOwnSetting=1\nshopsOther=2\n" + conf.read_text()
    )
    for command in (("cat", path, "-n", 1), ("groups", path), ("verify", path)):
        ran = mq(*command, "--config", own)
        warned = [line for line in ran.err.splitlines() if "warning" in line]
        assert warned == [
            f"mqstore: warning: {own}: not settings of a store: shopsOther, shopsOwnSetting"
        ]
