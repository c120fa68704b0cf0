"""``rebuild``: what it says, what it replaces, and what it refuses."""

import shutil

import mqstore


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index_bytes(store):
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


def test_it_only_says_unless_told(mq, store, conf):
    before = files(store)
    said = mq("rebuild", store, "--config", conf, "--json").json
    assert (said["applied"], said["messages"], said["index_keys"]) == (False, 40, 120)
    assert sum(queue["entries"] for queue in said["queues"]) == 40
    assert all(queue["was"] == [0, queue["max_offset"]] for queue in said["queues"])
    assert mq("rebuild", store, "--config", conf, "--jsonl").jsonl == said["queues"]
    shown = mq("rebuild", store, "--config", conf)
    assert "nothing was changed; --apply replaces them" in shown.out
    assert "same span" in shown.out
    assert files(store) == before


def test_apply(mq, store, conf):
    queues, index = files(store / "consumequeue"), index_bytes(store)
    shutil.rmtree(store / "consumequeue" / "orders")
    shown = mq("rebuild", store, "--config", conf, "--apply")
    assert "replaced; the old ones are in" in shown.out
    assert files(store / "consumequeue") == queues
    assert index_bytes(store) == index
    (kept,) = (store / "quarantine").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["consumequeue", "index"]
    assert mq("verify", store, "--config", conf).code == 0
    unknown = mq("info", store, "--config", conf, "--json").json["unknown"]
    assert unknown == []


def test_another_folder(mq, store, conf, tmp_path):
    out, before = tmp_path / "out", files(store)
    shown = mq("rebuild", store, "--config", conf, "--out", out, "--what", "consumequeue")
    assert f"made in {out}" in shown.out
    assert [path.name for path in out.iterdir()] == ["consumequeue"]
    assert files(out / "consumequeue") == files(store / "consumequeue")
    assert files(store) == before


def test_an_impossible_call_is_refused(mq, store, conf, tmp_path):
    before = files(store)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    refused = {
        ("-t", "nope"): (1, "no topic 'nope' in "),
        ("--out", tmp_path / "full"): (2, "which has x"),
        ("--out", store / "index" / "x"): (2, "outside of the store"),
        ("--out", tmp_path / "y", "--apply"): (2, "--apply and --out exclude each other"),
        ("--what", "commitlog"): (2, "is not one of"),
        ("--threads", 0): (2, "not in the range"),
    }
    for arguments, (code, text) in refused.items():
        ran = mq("rebuild", store, "--config", conf, *arguments, code=code)
        assert text in ran.err, arguments
        assert ran.out == ""
    assert files(store) == before
    assert "no folder `commitlog`" in mq("rebuild", tmp_path, "--apply", code=3).err
    with mqstore.open(store, "r+", config=conf):
        assert "open" in mq("rebuild", store, "--config", conf, "--apply", code=4).err
        # To look is free, beside a writer too.
        assert mq("rebuild", store, "--config", conf, "--json").json["messages"] == 40


def test_damage_is_passed_and_told(mq, store, conf):
    place = mq("cat", store, "--json").json[5]
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(place["physical_offset"])
        file.write(bytes(range(1, 40)))
    ran = mq("rebuild", store, "--config", conf, "--apply", "--json", code=1)
    assert ran.json["messages"] == 39
    begin = place["physical_offset"]
    assert ran.json["damaged"] == [[begin, begin + place["store_size"]]]
    assert f"1 damaged part(s) of the log have no entry, the first at physical offset {begin}" in (
        ran.err
    )
