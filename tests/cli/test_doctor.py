"""``mqstore doctor``: text, JSON, exit codes."""

import shutil


def test_a_sound_store(mq, store, conf):
    assert mq("doctor", store, "--config", conf).lines == ["nothing is wrong"]
    report = mq("doctor", store, "--config", conf, "--json").json
    assert report == {"path": str(store), "ok": True, "diagnoses": []}


def test_a_broken_one(mq, store, conf):
    shutil.rmtree(store / "index")
    ran = mq("doctor", store, "--config", conf, code=1)
    assert ran.lines[0].startswith("MQ-DOC-03  warning: ")
    cure = f"mqstore rebuild {store} --what index --apply --config {conf}"
    assert f"    cure: {cure}" in ran.lines
    report = mq("doctor", store, "--config", conf, "--json", code=1).json
    assert not report["ok"]
    assert [row["cure"] for row in report["diagnoses"]] == [cure]
    rows = mq("doctor", store, "--config", conf, "--jsonl", code=1).jsonl
    assert rows == report["diagnoses"]


def test_what_is_no_store(mq, tmp_path):
    assert mq("doctor", tmp_path, code=3).out == ""
