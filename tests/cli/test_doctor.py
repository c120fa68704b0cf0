"""``mqstore doctor``: text, JSON, exit codes."""

import shutil


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


def test_what_is_no_store(mq, tmp_path):
    assert mq("doctor", tmp_path, code=3).out == ""
