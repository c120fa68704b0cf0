"""``groups --reset-to``: groups get a new place, and negative offsets are told everywhere."""

import json
import re
import shlex
import subprocess

import pytest

import mqstore


def offsets(store):
    # Queue numbers are bare, as a broker writes them.
    text = (store / "config" / "consumerOffset.json").read_text()
    return json.loads(re.sub(r"(?<=[{,\s])(\d+):", r'"\1":', text))["offsetTable"]


def set_offsets(store, table):
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def test_a_group_is_set_to_the_first_the_last_or_a_time(mq, store, conf):
    set_offsets(store, {"orders@g": {"0": 3, "1": 1}})
    with mqstore.open(store) as opened:
        queues = [queue for queue in opened.queues() if queue.topic == "orders"]
        times = [message.store_timestamp_ms for message in opened.scan(topics=["orders"])]
    for to, expected in (
        ("earliest", {str(queue.queue_id): queue.min_offset for queue in queues}),
        ("latest", {str(queue.queue_id): queue.max_offset for queue in queues}),
        (str(times[0]), {str(queue.queue_id): queue.min_offset for queue in queues}),
    ):
        before = offsets(store)
        given = (store, "-g", "g", "--reset-to", to, "--config", conf)
        planned = mq("groups", *given, "--json").json
        assert offsets(store) == before
        done = mq("groups", *given, "--apply", "--json").json
        assert [row["queue_offset"] for row in done] == [row["queue_offset"] for row in planned]
        after = offsets(store)["orders@g"]
        assert {queue: after[queue] for queue in expected} == expected


def test_without_offsets_each_known_group_gets_a_place(mq, store, conf):
    (store / "config" / "subscriptionGroup.json").write_text(
        # A broker writes numbers as names without quotes.
        '{"subscriptionGroupTable":{"billing":{"subscriptionDataSet":{0:1}},"TOOLS_CONSUMER":{}}}'
    )
    told = mq("doctor", store, "--config", conf, "--json", code=1).json
    (diagnosis,) = [row for row in told["diagnoses"] if row["code"] == "MQ-OFF-05"]
    assert "offsets of 1 groups: billing" in diagnosis["evidence"][0]
    rows = mq("groups", store, "--reset-to", "latest", "--apply", "--config", conf, "--json").json
    assert {row["group"] for row in rows} == {"billing"}
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]


def test_a_negative_offset_is_told_by_every_command(mq, store, conf):
    set_offsets(store, {"orders@g": {"0": -3}})
    (row,) = mq("groups", store, "--config", conf, "--json").json
    assert (row["negative"], row["deleted_unread"]) == (True, 0)
    told = mq("doctor", store, "--config", conf, "--json", code=1).json
    assert [row["code"] for row in told["diagnoses"] if row["severity"] != "info"] == ["MQ-OFF-04"]
    assert told["verdict"]["groups"][0]["fate"] == "begins-anew"
    shown = mq("metrics", store, "--config", conf).out
    assert 'mqstore_consumer_negative_offsets{consumer_group="g",topic="orders"} 1.0' in shown


def test_apply_belongs_to_a_place(mq, store):
    assert "--reset-to" in mq("groups", store, "--apply", code=2).err


def test_a_table_that_cannot_be_read_is_kept_however_often(mq, store, conf):
    config = store / "config"
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"billing":{}}}')
    damaged = ["{one", "{two", "{three"]
    for text in damaged:
        (config / "consumerOffset.json").write_text(text)
        (config / "consumerOffset.json.bak").unlink(missing_ok=True)
        mq("groups", store, "--reset-to", "earliest", "--apply", "--config", conf)
        assert "orders@billing" in offsets(store)
    kept = sorted(config.glob("consumerOffset.json.damaged*"))
    assert [path.read_text() for path in kept] == damaged


def test_o12_an_offset_beyond_the_end_is_counted(mq, store, conf):
    set_offsets(store, {"orders@g": {"0": 9999}})
    (row,) = mq("groups", store, "--config", conf, "--json").json
    (queue,) = mq("groups", store, "-v", "--config", conf, "--json").json
    assert row["beyond_end"] == queue["beyond_end"] == 9999 - queue["max_offset"] > 0
    head, line = mq("groups", store, "--config", conf).lines
    assert head.endswith("BEYOND END")
    assert line.endswith(f"{queue['beyond_end']:,}")


def test_only_negative_offsets_are_reset_by_the_cure_of_a_negative_one(mq, store, conf):
    set_offsets(store, {"orders@g": {"0": -3, "1": 2}, "orders@other": {"0": 4}})
    told = mq("doctor", store, "--config", conf, "--json", code=1).json
    (cure,) = [row["cure"] for row in told["diagnoses"] if row["code"] == "MQ-OFF-04"]
    assert cure == (
        f"mqstore groups {store} --reset-to earliest --only-negative --apply --config {conf}"
    )
    mq(*shlex.split(cure)[1:])
    after = offsets(store)
    assert after["orders@g"] == {"0": 0, "1": 2}
    assert after["orders@other"] == {"0": 4}
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]
    again = mq(*shlex.split(cure)[1:], code=1)
    assert "nothing to reset" in again.err


def test_names_that_are_not_there_are_told_and_nothing_is_reset(mq, store, conf):
    set_offsets(store, {"orders@billing": {"0": 3}})
    before = offsets(store)
    given = ("groups", store, "--reset-to", "earliest", "--apply", "--config", conf)
    assert "did you mean 'billing'" in mq(*given, "-g", "biling", code=1).err
    assert "did you mean 'orders'" in mq(*given, "-t", "order", code=1).err
    assert offsets(store) == before


def test_a_table_stays_where_it_is_until_the_new_places_are_known(mq, store, conf):
    config = store / "config"
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"billing":{}}}')
    (config / "consumerOffset.json").write_text("{damaged")
    given = ("groups", store, "--reset-to", "earliest", "--apply", "--config", conf)
    mq(*given, "-t", "no-such-topic", code=1)
    assert (config / "consumerOffset.json").read_text() == "{damaged"


def test_only_the_damaged_table_is_put_aside(mq, store, conf):
    set_offsets(store, {"orders@billing": {"0": 3}})
    config = store / "config"
    sound = (config / "consumerOffset.json").read_text()
    (config / "lmqConsumerOffset.json").write_text("{bad")
    given = ("groups", store, "-g", "billing", "--reset-to", "latest", "--config", conf)
    assert "lmqConsumerOffset.json" in mq(*given, code=None).err
    assert (config / "consumerOffset.json").read_text() == sound
    told = mq(*given, "--apply", code=None).err
    assert not list(config.glob("consumerOffset.json.damaged*"))
    assert (config / "lmqConsumerOffset.json.damaged").read_text() == "{bad"
    assert "lmqConsumerOffset.json.damaged" in told
    assert offsets(store)["orders@billing"]["0"] > 3


def test_a_store_without_groups_says_so(mq, store, conf):
    assert "no group has committed an offset" in mq("groups", store, "--config", conf).err


def test_a_damaged_table_with_a_damaged_backup_is_put_aside_too(mq, store, conf):
    config = store / "config"
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"billing":{}}}')
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text("{damaged")
    told = mq("doctor", store, "--config", conf, "--json", code=1).json["verdict"]
    for command in told["commands"]:
        mq(*shlex.split(command)[1:])
    assert "orders@billing" in offsets(store)
    kept = [config / f"consumerOffset.json{name}.damaged" for name in ("", ".bak")]
    assert [path.read_text() for path in kept] == ["{damaged"] * 2
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]


def test_o4_cures_take_offsets_from_the_backup_and_keep_what_they_change(mq, store, conf):
    """Two wrong offsets in the table, the right ones in its backup: the printed cures."""
    config = store / "config"
    right = {"orders@billing": {"0": 2, "1": 1}, "orders@mail": {"0": 1}}
    set_offsets(store, right)
    (config / "consumerOffset.json").rename(config / "consumerOffset.json.bak")
    set_offsets(store, {"orders@billing": {"0": 5000, "1": 1}, "orders@mail": {"0": -7}})
    wrong = (config / "consumerOffset.json").read_bytes()
    told = mq("doctor", store, "--config", conf, "--json", code=1).json
    codes = {"MQ-OFF-01", "MQ-OFF-04"}
    cures = [row["cure"] for row in told["diagnoses"] if row["code"] in codes]
    assert len(cures) == len(codes)
    shown = mq(*shlex.split(cures[0])[1:], "--json").json
    changes = {(row["group"], row["queue_id"], row["was"], row["queue_offset"]) for row in shown}
    assert changes == {("billing", 0, 5000, 2), ("mail", 0, -7, 1)}
    mq(*shlex.split(cures[1])[1:], code=None)
    after = offsets(store)
    assert {place: after[place] for place in right} == right
    copies = sorted(config.glob("consumerOffset.json.mqstore-*"))
    assert copies[0].name == "consumerOffset.json.mqstore-1"
    assert copies[0].read_bytes() == wrong
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]


def test_o4_a_value_of_the_backup_outside_of_its_queue_is_not_taken(mq, store, conf):
    config = store / "config"
    set_offsets(store, {"orders@billing": {"0": 9999}})
    (config / "consumerOffset.json").rename(config / "consumerOffset.json.bak")
    set_offsets(store, {"orders@billing": {"0": -1}})
    told = mq("doctor", store, "--config", conf, "--json", code=1).json
    (cure,) = [row["cure"] for row in told["diagnoses"] if row["code"] == "MQ-OFF-04"]
    assert "--reset-to earliest --only-negative" in cure
    given = ("groups", store, "--reset-to", "backup", "--apply", "--config", conf)
    assert "nothing to reset" in mq(*given, code=1).err


@pytest.mark.parametrize("groups", [[], ["billing", "mail"]])
def test_o4_an_empty_table_is_taken_from_its_backup(mq, store, conf, groups):
    config = store / "config"
    set_offsets(store, right := {"orders@billing": {"0": 2, "1": 1}, "orders@mail": {"0": 1}})
    (config / "consumerOffset.json").rename(config / "consumerOffset.json.bak")
    if groups:
        table = {"subscriptionGroupTable": {name: {"groupName": name} for name in groups}}
        (config / "subscriptionGroup.json").write_text(json.dumps(table))
    for empty in ("{}", '{"offsetTable":{}}', '{"offsetTable":null}', "null"):
        (config / "consumerOffset.json").write_text(empty)
        verdict = mq("doctor", store, "--config", conf, "--json", code=1).json["verdict"]
        (command,) = verdict["commands"]
        assert command.startswith("cp ")
        subprocess.run(shlex.split(command), check=True)
        assert offsets(store) == right
        assert mq("doctor", store, "--config", conf, "--json").json["ok"]
    # Without the cure the backup's offsets are taken by a reset, and kept by any other change.
    (config / "consumerOffset.json").write_text("{}")
    given = ("groups", store, "--config", conf, "--reset-to")
    if not groups:
        assert "no consumer group is known" in mq(*given, "latest", code=1).err
        return
    mq(*given, "latest", "-g", "billing", "--apply")
    assert json.loads((config / "consumerOffset.json.bak.mqstore-1").read_text()) == {
        "offsetTable": right
    }
    (config / "consumerOffset.json").write_text("{}")
    (config / "consumerOffset.json.bak").write_text(json.dumps({"offsetTable": right}))
    mq(*given, "backup", "--apply")
    assert offsets(store) == right


def test_o4_recover_keeps_the_offsets_that_it_sets_back(mq, store, conf):
    set_offsets(store, {"orders@billing": {"0": 5000}})
    before = (store / "config" / "consumerOffset.json").read_bytes()
    planned = mq("recover", store, "--config", conf, code=None)
    assert "group billing stands at queue offset 5000 of queue 0 of topic orders" in planned.out
    assert "nothing to do" not in planned.out
    assert (store / "config" / "consumerOffset.json").read_bytes() == before
    done = mq("recover", store, "--apply", "--config", conf, "--json", code=None).json
    assert "group billing stood at queue offset 5000" in done["warnings"][0]
    end = offsets(store)["orders@billing"]["0"]
    assert end < 5000
    assert f"the queue's end {end}" in planned.out
    assert (store / "config" / "consumerOffset.json.mqstore-1").read_bytes() == before


@pytest.mark.parametrize("apply", [(), ("--apply",)])
def test_o4_a_reset_of_one_group_tells_what_opening_sets_back(mq, store, conf, apply):
    set_offsets(store, {"orders@g": {"0": 9999}, "orders@h": {"0": 9999, "1": 1}, "x@h": {"7": 1}})
    given = ("groups", store, "-g", "g", "--reset-to", "earliest", "--config", conf)
    ran = mq(*given, *apply, "--json")
    assert "2 of these lie beyond" in ran.err
    rows = {(row["group"], row["topic"], row["queue_id"]): row for row in ran.json}
    assert {place for place in rows if place[0] == "h"} == {("h", "orders", 0), ("h", "x", 7)}
    assert rows["h", "orders", 0]["was"] == 9999
    if apply:
        after = offsets(store)
        for (group, topic, queue_id), row in rows.items():
            assert after[f"{topic}@{group}"][str(queue_id)] == row["queue_offset"]
        assert after["orders@h"]["1"] == 1


def test_o4_a_commit_makes_no_numbered_copies(store):
    with mqstore.open(store, "r+") as opened:
        for _ in range(3):
            with opened.group("g") as group:
                assert group.poll("orders", max_messages=1)
                group.commit()
    assert not list((store / "config").glob("*.mqstore-*"))
