"""``mqstore doctor``: text, JSON, exit codes."""

import shutil
import subprocess

import pytest

import mqstore
from helpers.damaged_stores import (
    all_queues_gone,
    filled,
    index_gone,
    last_file_gone,
    make_base,
    run,
)


def test_a_sound_store(mq, store, conf):
    assert mq("doctor", store, "--config", conf).lines == [
        "nothing is wrong",
        "",
        "verdict: RocketMQ 5.3 starts on this store",
        "lost: no message that queues or index know",
        "groups: none skips or repeats messages, by their offsets",
    ]
    report = mq("doctor", store, "--config", conf, "--json").json
    assert (report["path"], report["ok"], report["diagnoses"]) == (str(store), True, [])
    assert report["verdict"]["commands"] == []


def test_a_broken_one(mq, store, conf):
    shutil.rmtree(store / "index")
    ran = mq("doctor", store, "--config", conf, code=1)
    assert ran.lines[0].startswith("MQ-DOC-03  warning: ")
    cure = f"mqstore rebuild {store} --what index --apply --config {conf}"
    assert f"    cure: {cure}" in ran.lines
    assert ran.lines[-2:] == ["run, in this order:", f"  1. {cure}"]
    report = mq("doctor", store, "--config", conf, "--json", code=1).json
    assert not report["ok"]
    assert [row["cure"] for row in report["diagnoses"]] == [cure]
    rows = mq("doctor", store, "--config", conf, "--jsonl", code=1).jsonl
    assert rows == report["diagnoses"]


def test_a_folder_that_is_no_store_is_refused(mq, tmp_path):
    assert mq("doctor", tmp_path, code=3).out == ""


def test_no_command_names_a_broker_conf_that_was_not_given(store):
    # An index of an unknown layout: its cure needs the settings.
    (store / "config" / "mqstore.json").unlink()
    (first, *_) = (store / "index").iterdir()
    first.write_bytes(first.read_bytes()[:-1])
    for report in (mqstore.doctor(store), mqstore.doctor(store, config={})):
        assert "MQ-IX-11" in {one.code for one in report}
        told = [one.cure for one in report if one.cure] + list(report.commands)
        assert not any("broker.conf" in one for one in told), told


def test_a_salvage_that_fails_leaves_the_store_in_its_place(mq, store, conf, tmp_path):
    log = store / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[90] ^= 1
    log.write_bytes(data)
    commands = mq("doctor", store, "--config", conf, "--json", code=1).json["verdict"]["commands"]
    assert commands[0].startswith("mqstore salvage ")
    # Without the salvaged store the rest changes nothing.
    for command in commands[1:]:
        subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert log.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [store.name]
    for command in commands:
        run(command, tmp_path)
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]


def test_gone_offsets_and_what_no_file_tells_are_in_the_verdict(mq, store, conf):
    (store / "config" / "subscriptionGroup.json").write_text(
        '{"subscriptionGroupTable":{"billing":{}}}'
    )
    shown = mq("doctor", store, "--config", conf, code=1).out
    assert "groups: each begins anew, and skips or repeats messages" in shown
    assert "not known: what consumers took and had not committed" in shown
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:3}}}')
    (store / "abort").write_text("1")
    assert "group g may repeat up to" in mq("doctor", store, "--config", conf, code=None).out


def test_times_in_evidence_are_in_the_zone_that_is_asked_for(mq, store, conf):
    checkpoint = store / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    data[16:24] = (4_102_444_800_000).to_bytes(8, "big")
    checkpoint.write_bytes(data)
    shown = mq("doctor", store, "--config", conf, code=1, MQSTORE_TZ="Asia/Tokyo").out
    assert "2100-01-01T09:00:00.000+09:00" in shown
    assert "4102444800000" not in shown


@pytest.mark.parametrize("place", ["log", "store/log"])
def test_salvage_with_a_log_elsewhere_names_what_is_lost_and_moves_nothing(mq, store, conf, place):
    log = store.parent / place.replace("store", store.name)
    (store / "commitlog").rename(log)
    data = bytearray((log / f"{0:020}").read_bytes())
    data[90] ^= 1
    (log / f"{0:020}").write_bytes(data)
    given = store.with_name("b.conf")
    given.write_text(f"{conf.read_text()}storePathCommitLog={log}\n")
    ran = mq("salvage", store, "--out", f"{store}.new", "--config", given, "--json", code=None)
    assert ran.json["lost_count"] == 1
    told = mq("doctor", store, "--config", given, "--json", code=1).json["verdict"]["commands"]
    assert told[0].startswith("mqstore salvage ")
    assert not any("mv " in command for command in [*ran.json["next"], *told])


def test_stray_files_in_queues_are_moved_out_of_the_way(mq, store, conf, tmp_path):
    queue = store / "consumequeue" / "orders"
    (queue / "0" / "notes").write_text("do not touch")
    told = mq("doctor", store, "--config", conf, "--json", code=1).json["verdict"]
    assert not told["will_start"]
    assert told["commands"] == [f"mv -n -T {queue}/0/notes {store}/notes"]
    shutil.rmtree(queue / "1")
    (queue / "1").write_text("no folder")
    for _ in range(2):
        told = mq("doctor", store, "--config", conf, "--json", code=None).json["verdict"]
        for command in told["commands"]:
            run(command, tmp_path)
    assert mq("doctor", store, "--config", conf, "--json").json["ok"]
    assert (store / "notes").read_text() == "do not touch"
    assert (store / "1").read_text() == "no folder"


def test_a_disk_of_the_log_that_is_not_mounted_is_told_and_no_command_gives_it_up(mq, tmp_path):
    store, disks = tmp_path / "store", [tmp_path / "disk-0", tmp_path / "disk-1"]
    sizes = {"mapped_file_size_commit_log": 4096}
    with mqstore.open(store, "a", config=sizes) as opened:
        opened.append_many(mqstore.Message("orders", bytes(100), queue_id=0) for _ in range(200))
    for disk in disks:
        disk.mkdir()
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        file.rename(disks[number % 2] / file.name)
    conf = tmp_path / "broker.conf"
    paths = ",".join(map(str, disks))
    conf.write_text(f"storePathCommitLog={paths}\nmappedFileSizeCommitLog=4096\n")
    assert mqstore.doctor(store, config=conf).ok
    disks[1].rename(tmp_path / "not mounted")
    for mount_point in (False, True):
        if mount_point:
            disks[1].mkdir()
        report = mqstore.doctor(store, config=conf)
        assert report.lost > 50
        assert report.commands == ()
        evidence = [line for one in report for line in one.evidence]
        assert f"{disks[1]}: no file; is its disk mounted?" in evidence
    ran = mq("doctor", store, "--config", conf, code=1)
    assert "is its disk mounted?" in ran.out


def test_a_linked_log_is_read_as_one_that_the_setting_names(mq, store, conf, tmp_path):
    (store / "commitlog").rename(tmp_path / "log")
    (store / "commitlog").symlink_to(tmp_path / "log")
    assert mq("doctor", store, "--config", conf).lines[0] == "nothing is wrong"
    assert mq("info", store, "--config", conf).out.count("commitlog") >= 1
    named = tmp_path / "named.conf"
    named.write_text(conf.read_text() + f"\nstorePathCommitLog={tmp_path / 'log'}\n")
    assert mq("doctor", store, "--config", named).lines[0] == "nothing is wrong"


def test_an_archive_below_the_log_stays_and_a_missing_file_comes_back_from_there(tmp_path):
    store = make_base("closed-53", tmp_path)
    first, middle = filled(store)[0], filled(store)[3]
    archive = store / "commitlog" / "archive"
    archive.mkdir()
    first.rename(archive / first.name)
    middle.rename(archive / middle.name)
    report = mqstore.doctor(store, config=tmp_path / "broker.conf")
    assert report.commands[0].split()[-2:] == [str(archive / middle.name), str(middle)]
    assert not any(first.name in command for command in report.commands)


def test_a_log_without_its_end_queues_and_index_says_that_files_may_be_missing(tmp_path):
    store = make_base("closed-53", tmp_path)
    last_file_gone(store)
    all_queues_gone(store)
    index_gone(store)
    report = mqstore.doctor(store, config=tmp_path / "broker.conf")
    evidence = [line for one in report for line in one.evidence]
    assert any("missing: the file" in line for line in evidence), evidence
