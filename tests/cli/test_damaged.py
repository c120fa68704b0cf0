"""Damaged stores at the command line: the commands agree, and what is printed cures."""

import json
import os
import shlex
import subprocess

import pytest

import mqstore
from helpers.running import SETTINGS


def queue_files(store, topic="orders", queue=0):
    return sorted((store / "consumequeue" / topic / str(queue)).iterdir())


def log_files(store):
    return sorted((store / "commitlog").iterdir())


def index_files(store):
    return sorted((store / "index").iterdir())


def only_index_file_cut(store, length):
    first, *others = index_files(store)
    for path in others:
        path.unlink()
    os.truncate(first, length)


def link_away(path):
    away = path.parents[2] / f"away-{path.name}"
    path.rename(away)
    path.symlink_to(away)


def cures(mq, store, *config):
    """The commands that doctor prints, by the code of what each cures."""
    ran = mq("doctor", store, "--json", *config, code=1)
    return {row["code"]: row["cure"] for row in ran.json["diagnoses"]}


def test_an_index_file_cut_short_is_told_and_cured(mq, store, conf):
    only_index_file_cut(store, 150)
    given = ("--config", conf)
    [finding] = mq("verify", store, *given, "--json", code=1).json["findings"]
    assert (finding["code"], finding["severity"]) == ("MQ-IX-01", "error")
    assert mq("recover", store, *given, "--json").json["rebuilt"] == ["index"]
    [cure] = cures(mq, store, *given).values()
    mq(*shlex.split(cure)[1:])
    assert mq("doctor", store, *given).lines[0] == "nothing is wrong"


def test_a_layout_that_nothing_tells_is_asked_for_by_its_keys(mq, store, conf):
    only_index_file_cut(store, 150)
    # As in a store that RocketMQ made.
    (store / "config" / "mqstore.json").unlink()
    [finding] = mq("verify", store, "--json", code=1).json["findings"]
    assert (finding["code"], finding["severity"]) == ("MQ-IX-11", "warning")
    assert "cannot be opened for writing" in finding["expected"]
    for command in (("recover", store), ("recover", store, "--apply"), ("rebuild", store)):
        assert "maxHashSlotNum and maxIndexNum in a broker.conf" in mq(*command, code=2).err
    # No command can name a broker.conf that nobody gave.
    assert cures(mq, store)["MQ-IX-11"] is None
    mq("rebuild", store, "--what", "index", "--apply", "--config", conf)
    assert mq("verify", store, "--config", conf).code == 0
    assert mq("recover", store, "--config", conf).out.endswith("nothing to do\n")


@pytest.mark.parametrize("length", [0, 100, 3000])
def test_a_log_file_cut_short_is_salvaged_and_not_recovered(mq, store, conf, length):
    first = log_files(store)[0]
    os.truncate(first, length)
    (store / "abort").write_text("1")
    mq("recover", store, "--config", conf, code=1)
    told = cures(mq, store, "--config", conf)
    assert told["MQ-FS-01"].startswith(f"mqstore salvage {store} --out ")
    # Nothing is told to be done that is refused.
    assert not [cure for cure in told.values() if cure and cure.startswith("mqstore recover ")]
    for cure in told.values():
        if cure is not None:
            assert mq(*shlex.split(cure)[1:], code=None).code in {0, 1}
    assert mq("verify", f"{store}.salvaged", "--config", conf).code == 0


def test_an_empty_file_at_the_end_of_the_log_is_removed(mq, store, conf):
    last = log_files(store)[-1]
    size = SETTINGS["mapped_file_size_commit_log"]
    (last.with_name(f"{int(last.name) + size:020}")).touch()
    told = cures(mq, store, "--config", conf)
    assert told == {"MQ-FS-06": f"mqstore recover {store} --apply --config {conf}"}
    mq(*shlex.split(told["MQ-FS-06"])[1:])
    assert mq("doctor", store, "--config", conf).code == 0


@pytest.mark.parametrize("which", [log_files, queue_files], ids=["log", "queue"])
def test_a_link_where_a_file_belongs_is_refused_before_anything_is_done(mq, store, conf, which):
    link_away(which(store)[-1])
    rows = mq("verify", store, "--config", conf, "--json", code=1).json["findings"]
    assert [row["severity"] for row in rows if row["code"] == "MQ-FS-04"] == ["error"]
    for more in ((), ("--apply",)):
        said = mq("recover", store, "--config", conf, *more, code=1).err
        assert "a link, pipe or device" in said
    with pytest.raises(mqstore.CorruptionError, match="a link, pipe or device"):
        mqstore.open(store, "r+", config=str(conf))


def test_a_folder_that_is_none_is_told_alike_and_has_no_cure_that_fails(mq, store, conf):
    for path in sorted((store / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (store / "consumequeue").rmdir()
    (store / "consumequeue").write_text("")
    for command in ("recover", "rebuild", "topics"):
        assert "not a folder" in mq(command, store, "--config", conf, code=3).err
    (cure,) = set(cures(mq, store, "--config", conf).values()) - {None}
    assert cure == f"mv -n -T {store / 'consumequeue'} {store / 'consumequeue-2'}"
    subprocess.run(shlex.split(cure), check=True)
    mq("rebuild", store, "--config", conf, "--apply")
    assert mq("verify", store, "--config", conf).code == 0


@pytest.mark.parametrize("what", ["link", "folder"])
def test_an_abort_that_is_no_file_has_no_cure_that_fails(mq, store, conf, what):
    if what == "link":
        (store / "abort").symlink_to("/nowhere")
        assert cures(mq, store, "--config", conf) == {"MQ-FS-04": None}
        return
    (store / "abort").mkdir()
    told = cures(mq, store, "--config", conf)
    assert told == {"MQ-FS-04": f"mv -n -T {store / 'abort'} {store / 'abort-2'}"}
    subprocess.run(shlex.split(told["MQ-FS-04"]), check=True)
    assert mq("verify", store, "--config", conf).code == 0


@pytest.mark.parametrize("with_backup", [True, False])
def test_a_damaged_table_of_topics_keeps_nobody_from_writing(mq, store, conf, with_backup):
    table = store / "config" / "topics.json"
    if with_backup:
        (store / "config" / "topics.json.bak").write_bytes(table.read_bytes())
    table.write_text("{damaged")
    mq("recover", store, "--config", conf)
    mq("recover", store, "--config", conf, "--apply")
    with mqstore.open(store, "r+", config=str(conf)) as opened:
        assert any("topics.json" in warning for warning in opened.warnings)
        opened.append("orders", b"new")
    assert table.read_text() == "{damaged"
    code = "MQ-CFG-02" if with_backup else "MQ-CFG-01"
    rows = mq("verify", store, "--config", conf, "--json", code=1).json["findings"]
    assert {row["code"] for row in rows} == {code}


def test_one_damaged_queue_hides_no_other(mq, store):
    os.truncate(queue_files(store)[-1], 30)
    for command in ("topics", "queues"):
        ran = mq(command, store, "--json", code=1)
        assert {row["topic"] for row in ran.json} == {"orders", "audit"}
        assert [row["bytes"] is None for row in ran.json].count(True) == 1
        assert "file-length" in ran.err
        assert mq(command, store, "--no-bytes").code == 0


def test_a_link_among_the_index_files_hides_no_other(mq, store, conf):
    link_away(index_files(store)[0])
    left = len(index_files(store)) - 1
    assert mq("info", store, "--config", conf, "--json").json["index"]["files"] == left
    assert len(mq("index", store, "--config", conf, "--json").json) == left


def test_a_queue_file_that_begins_nowhere_is_gone_once_the_queue_is_mended(mq, store, conf):
    first = queue_files(store)[0]
    first.rename(first.with_name(f"{77:020}"))
    assert "made again" in mq("recover", store, "--config", conf, "--apply").out
    assert mq("verify", store, "--config", conf).code == 0


def test_an_offset_of_a_queue_that_never_was_has_no_cure_that_does_nothing(mq, store, conf):
    (store / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"nowhere@group": {"0": 7}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    assert cures(mq, store, "--config", conf) == {"MQ-OFF-03": None}


def test_salvage_says_what_it_passed_over(mq, store, tmp_path):
    with mqstore.open(store) as opened:
        third = list(opened.scan())[2]
    at = third.physical_offset + 88 + len(third.raw_body) + 1
    with log_files(store)[0].open("r+b") as file:
        file.seek(at)
        file.write(b"\0")
    (store / "config" / "consumerOffset.json").write_text("{")
    ran = mq("salvage", store, "--out", tmp_path / "out", code=1)
    assert "1 look like messages, and were skipped:" in ran.out
    assert f"byte {third.physical_offset}: its topic has a zero byte" in ran.out
    assert "consumerOffset.json: byte" in ran.out
    assert "; left out" in ran.out
    said = mq("salvage", store, "--json", code=1).json
    assert said["passed_over"][0]["physical_offset"] == third.physical_offset
    assert said["passed_over_count"] == 1
    assert [problem["path"].rpartition("/")[2] for problem in said["problems"]] == [
        "consumerOffset.json"
    ]


def test_a_checkpoint_of_nonsense_is_put_right_by_the_next_writer(mq, store, conf):
    with (store / "checkpoint").open("r+b") as file:
        file.write(b"\xff" * 48)
    mq("verify", store, "--config", conf, code=1)
    mq("recover", store, "--config", conf, "--apply")
    assert mq("verify", store, "--config", conf).code == 0


def test_cat_tells_that_the_last_log_files_are_missing(mq, tmp_path):
    path = tmp_path / "store"
    sizes = {"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 2_000}
    with mqstore.open(path, "a", config=sizes) as store:
        store.append("u", b"whole")
        store.append_many([("t", b"%d" % number + b"x" * 100) for number in range(1500)])
    for name in ("mqstore.mark", "mqstore.seal"):
        (path / name).unlink()
    max((path / "commitlog").iterdir()).unlink()
    for options in ((), ("--skip-damage",)):
        ran = mq("cat", path, *options, code=1)
        assert "put the missing files back" in ran.err
        assert 0 < len(ran.lines) < 1500
    for options in (("-t", "t", "-q", 0), ("-t", "t", "-q", 0, "-o", 1200)):
        assert "put the missing files back" in mq("cat", path, *options, code=1).err
    assert "put the missing files back" in mq("cat", path, "-t", "t", "--key", "k", code=1).err
    for options in (("-n", 3), ("-t", "u"), ("-t", "u", "--from", "2020-01-01")):
        assert mq("cat", path, *options).err == ""


def test_o10_salvage_beside_a_writer_replaces_nothing(mq, tmp_path):
    source, out = tmp_path / "live", tmp_path / "saved"
    with mqstore.open(source, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        store.append("orders", b"before")
        done = mq("salvage", source, "--out", out, "--json", code=1)
        assert done.json["in_use"]
        assert [line for line in done.json["next"] if "mv" in line] == []
        assert "a process writes to SOURCE" in done.err
        store.append("orders", b"after")
    with mqstore.open(out) as saved:
        assert [message.body for message in saved.scan()] == [b"before"]
    done = mq("salvage", source, "--out", tmp_path / "again", "--json")
    assert not done.json["in_use"]
    assert any(line.startswith("mv ") or "&& mv" in line for line in done.json["next"])
