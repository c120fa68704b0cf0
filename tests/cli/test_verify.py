"""``verify``: damage, and the exit code for it."""


def test_verify(mq, store, conf):
    good = mq("verify", store, "--config", conf, "--json")
    assert good.json["ok"] is True
    assert good.json["findings"] == []
    assert good.json["counts"]["messages"] == 40
    assert good.json["counts"]["queue_entries"] == 40
    assert good.json["counts"]["index_entries"] == 120
    assert "no damage" in mq("verify", store, "--config", conf).out
    assert mq("verify", store, "--config", conf, "--level", "quick", "--threads", 1).code == 0
    offset = mq("cat", store, "--json").json[5]["physical_offset"]
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(offset + 90)
        byte = file.read(1)[0]
        file.seek(offset + 90)
        file.write(bytes([byte ^ 1]))
    bad = mq("verify", store, "--config", conf, "--json", code=1)
    assert bad.json["ok"] is False
    [finding] = bad.json["findings"]
    assert finding["path"] == f"commitlog/{0:020}"
    assert finding["offset"] == offset + 8  # where the record holds the body's checksum
    assert finding["code"].startswith("MQ-LOG-")
    assert finding["severity"] == "error"
    assert mq("verify", store, "--config", conf, "--jsonl", code=1).jsonl == [finding]
    shown = mq("verify", store, "--config", conf, code=1).out
    assert finding["code"] in shown
    assert shown.endswith("\n1 finding\n")
