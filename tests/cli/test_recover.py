"""``recover``: says what opening for writing would do, and does it when told."""

import mqstore


def damaged(mq, store, number):
    place = mq("cat", store, "--json").json[number]
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(place["physical_offset"] + 90)
        byte = file.read(1)[0]
        file.seek(place["physical_offset"] + 90)
        file.write(bytes([byte ^ 1]))
    return place["physical_offset"]


def files(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_nothing_to_do(mq, store, conf):
    before = files(store)
    ran = mq("recover", store, "--config", conf)
    assert "cleanly closed" in ran.out
    assert ran.out.endswith("nothing to do\n")
    assert files(store) == before
    said = mq("recover", store, "--config", conf, "--json").json
    assert (said["mode"], said["applied"], said["cut"], said["rebuilt"]) == ("clean", False, 0, [])


def test_rc10_damage_is_told_with_what_helps(mq, store, conf):
    at = damaged(mq, store, 5)
    before = files(store)
    said = mq("recover", store, "--config", conf, "--json", code=1).json
    assert said["end_physical_offset"] == at
    assert said["messages_beyond"] == 34
    assert len(said["quarantined_messages"]) == 34
    assert "checksum" in said["damage"]
    shown = mq("recover", store, "--config", conf, code=1).out
    assert "whole messages beyond: 34" in shown
    assert "`mqstore salvage` copies every whole message" in shown
    assert files(store) == before
    refused = mq("recover", store, "--config", conf, "--apply", code=None)
    assert refused.code != 0
    assert "34 whole messages lie beyond" in refused.err
    assert {path.name: files(store)[path] for path in before} == {
        path.name: data for path, data in before.items()
    }
    done = mq("recover", store, "--config", conf, "--apply", "--drop-beyond", "--json").json
    assert (done["applied"], done["cut"], done["quarantined_count"]) == (True, said["cut"], 34)
    assert len(mq("cat", store, "--json").json) == 5
    (kept,) = (store / "quarantine").iterdir()
    assert str(kept) == done["quarantine"]
    assert mq("recover", store, "--config", conf).out.endswith("nothing to do\n")
    assert mq("verify", store, "--config", conf).code == 0


def test_what_is_refused(mq, store, conf, tmp_path):
    with mqstore.open(store, "r+", config=conf):
        for more in ((), ("--apply",)):
            assert mq("recover", store, "--config", conf, *more, code=4).out == ""
    assert "no folder `commitlog`" in mq("recover", tmp_path, code=3).err
    first = store / "commitlog" / f"{0:020}"
    first.rename(first.with_name(f"{1:020}"))
    said = mq("recover", store, "--config", conf, code=1)
    assert "put the missing or whole file back" in said.out


def test_what_was_dropped_is_reported_until_it_is_put_back(mq, store, conf):
    before = {row["unique_key"] or str(row["keys"]) for row in mq("cat", store, "--json").json}
    damaged(mq, store, 5)
    mq("recover", store, "--config", conf, "--apply", "--drop-beyond")
    (told,) = mq("doctor", store, "--config", conf, "--json", code=1).json["diagnoses"]
    assert told["code"] == "MQ-DOC-15"
    assert told["evidence"][0].endswith(": 34 whole messages")
    listed = mq("recover", store, "--quarantine", "--config", conf, "--json").json
    assert len(listed) == 34
    assert not any(row["in_log"] for row in listed)
    assert told["cure"] == f"mqstore recover {store} --quarantine --apply --config {conf}"
    done = mq("recover", store, "--quarantine", "--apply", "--config", conf, "--json").json
    assert done == {"put_back": 34, "in_log": 0}
    assert mq("doctor", store, "--config", conf, "--json", code=None).json["ok"]
    after = {row["unique_key"] or str(row["keys"]) for row in mq("cat", store, "--json").json}
    assert len(before - after) == 1
