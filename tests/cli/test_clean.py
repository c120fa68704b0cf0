"""``clean``: each file with its fate and the reason."""

import os
import time

import mqstore

TINY = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 7,
    "max_index_num": 20,
}


def aged(path, *, old):
    """A store of several files, the first `old` of them last written 100 hours ago."""
    with mqstore.open(path, "a", config=TINY) as store:
        for number in range(100):
            store.append("orders", bytes(200), keys=f"k{number}")
    files = sorted((path / "commitlog").iterdir())
    for file in files[:old]:
        then = time.time() - 100 * 3600
        os.utime(file, (then, then))
    return files


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_file_has_its_reason(mq, tmp_path):
    root = tmp_path / "store"
    files = aged(root, old=3)
    (tmp_path / "broker.conf").write_text(
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\n"
        "maxHashSlotNum=7\nmaxIndexNum=20\n"
    )
    conf = ("--config", tmp_path / "broker.conf")
    before = names(root)
    said = mq("clean", root, *conf, "--json").json
    assert (said["applied"], said["new_log_start"]) == (False, 3 * 4096)
    log = [file for file in said["files"] if file["path"].startswith("commitlog/")]
    assert [file["delete"] for file in log] == [True] * 3 + [False] * (len(files) - 3)
    assert log[0]["reason"] == "last written 100 h ago, more than the 72 h that files are kept"
    assert log[3]["reason"] == "last written 0 h ago, less than the 72 h that files are kept"
    assert log[-1]["reason"] == "the last file is always kept"
    queue = [file for file in said["files"] if file["path"].startswith("consumequeue/")]
    assert (
        queue[0]["reason"] == f"all its messages lie before {3 * 4096}, where the log begins then"
    )
    assert mq("clean", root, *conf, "--jsonl").jsonl == said["files"]
    assert "nothing was changed, --apply does it" in mq("clean", root, *conf).out
    assert names(root) == before
    done = mq("clean", root, *conf, "--apply")
    assert f"the log begins at {3 * 4096}" in done.out
    gone = set(before) - set(names(root))
    assert {file["path"] for file in said["files"] if file["delete"]} == gone
    assert "nothing to delete" in mq("clean", root, *conf).out
    assert mq("verify", root, *conf).code == 0


def test_the_settings_and_the_time_decide(mq, tmp_path):
    root = tmp_path / "store"
    files = aged(root, old=0)
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=7\nmaxIndexNum=20\nfileReservedTime=1\n")
    conf = ("--config", tmp_path / "broker.conf")
    in_two_hours = int(time.time() * 1000) + 2 * 3_600_000
    said = mq("clean", root, *conf, "--now", in_two_hours, "--json").json
    log = [file for file in said["files"] if file["path"].startswith("commitlog/")]
    assert [file["delete"] for file in log] == [True] * (len(files) - 1) + [False]
    assert mq("clean", root, *conf, "--now", "soon", code=2).out == ""
    with mqstore.open(root, "r+", config=TINY):
        assert mq("clean", root, *conf, "--apply", code=4).out == ""
    assert "no folder `commitlog`" in mq("clean", tmp_path, code=3).err
