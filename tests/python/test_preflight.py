"""``preflight`` foresees a start of RocketMQ."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.files import stamps
from helpers.golden import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = {
    "mapped_file_size_commit_log": 1024,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def put(root: Path, release: str, count: int = 100) -> None:
    """Messages in two queues, over more than ten files of the log."""
    with mqstore.open(root, "a", config={**SMALL, "rocketmq_version": release}) as store:
        for number in range(count):
            store.append("T", b"x" * 20, queue_id=number % 2, tags="t", keys=f"k{number}")
    assert len(list((root / "commitlog").iterdir())) > 12


@pytest.mark.parametrize("to", ["5.3", "5.4", "5.5"])
def test_a_whole_store_goes_through(to: str, tmp_path: Path) -> None:
    put(tmp_path, "5.5")
    before = stamps(tmp_path)
    report = mqstore.preflight(tmp_path, to=to)
    assert (report.ok, report.starts, report.lost) == (True, True, 0)
    assert [note.severity for note in report.notes if note.severity != "info"] == []
    assert stamps(tmp_path) == before


@pytest.mark.parametrize(("to", "lost"), [("5.3", 0), ("5.4", 1), ("5.5", 1)])
def test_later_releases_look_back_at_ten_files(to: str, lost: int, tmp_path: Path) -> None:
    put(tmp_path, "5.3")
    shutil.rmtree(tmp_path / "consumequeue")
    report = mqstore.preflight(tmp_path, to=to)
    assert (report.ok, report.lost > 0) == (not lost, bool(lost))
    if lost:
        note = report.notes[0]
        assert note.severity == "error"
        assert note.before == f"mqstore recover {tmp_path} --apply"
        files = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
        assert report.begin_physical_offset == files[-10]
    mqstore.recover(tmp_path, dry_run=False)
    assert mqstore.preflight(tmp_path, to=to).ok


def test_a_crash_of_5_5_without_queues_brings_back_the_last_file_only(tmp_path: Path) -> None:
    put(tmp_path, "5.5")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").write_text("1")
    with mqstore.open(tmp_path) as store:
        messages = list(store.scan())
    report = mqstore.preflight(tmp_path, to="5.5")
    last = max(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    assert report.begin_physical_offset == last
    assert report.lost == sum(message.physical_offset < last for message in messages)
    texts = [note.what for note in report.notes]
    assert any("1 index files are newer than the checkpoint" in text for text in texts)
    mqstore.recover(tmp_path, dry_run=False)
    assert mqstore.preflight(tmp_path, to="5.5").ok


def lag(root: Path) -> None:
    """Changes nothing: the last ten messages are in no queue."""


def remove_first_file(root: Path) -> None:
    (root / "consumequeue/T0/0" / f"{0:020}").unlink()


def swap_files(root: Path) -> None:
    one, other = (root / "consumequeue" / topic / "0" / f"{0:020}" for topic in ("T0", "T1"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def remove_batches(root: Path) -> None:
    (root / "batchconsumequeue/BatchInner/0" / f"{0:020}").unlink()


@pytest.mark.parametrize("what", ["file", "folder", "gap"])
def test_a_queue_that_cannot_be_judged_is_told(tmp_path: Path, what: str) -> None:
    put(tmp_path, "5.5")
    queue = tmp_path / "consumequeue/T/0"
    if what == "folder":
        shutil.rmtree(queue)
    elif what == "file":
        (queue / f"{0:020}").unlink()
    else:
        shutil.copy(queue / f"{0:020}", queue / f"{40_000:020}")
    report = mqstore.preflight(tmp_path, to="5.5")
    assert (report.ok, report.starts, report.lost) == (False, True, 0)
    cure = f"mqstore rebuild {tmp_path} --what consumequeue -t T --apply"
    assert cure in [note.before for note in report.notes if note.severity == "error"]
    said = "what it makes of queue 0 of T is not foreseen: " if what == "gap" else "it leaves the"
    assert any(note.what.startswith(said) for note in report.notes)


def test_messages_that_a_start_enters_are_no_error(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SMALL) as store:
        for number in range(100):
            store.append("T", b"x" * 20, queue_id=0, tags="t", keys=f"k{number}")
        last = list(store.scan())[-1].physical_offset
    assert last % 1024 == 0  # a blank lies between the end of the queue and the message
    with (tmp_path / "consumequeue/T/0" / f"{0:020}").open("r+b") as file:
        file.seek(99 * 20)
        file.write(bytes(20))
    assert "MQ-DOC-01" in {found.code for found in mqstore.doctor(tmp_path)}
    missing = {found.code: found.first_missing for found in mqstore.doctor(tmp_path)}
    assert {code: at for code, at in missing.items() if at is not None} == {"MQ-DOC-01": last}
    assert mqstore.preflight(tmp_path, to="5.5").ok


@pytest.mark.parametrize(
    ("name", "harm", "lost", "said"),
    [
        # RocketMQ itself lost that message: see the case's expected.jsonl.
        ("clean-cqlag", lag, 1, "1 messages of queue 0 of T2, at 27 to 27, come out of reach"),
        ("abort-intact", remove_first_file, 20, "20 messages of queue 0 of T0, at 0 to 19, come"),
        ("abort-intact", swap_files, 0, "it leaves the queues as they are"),
        ("broker", remove_batches, 0, "queue 0 of BatchInner has no entry"),
    ],
)
def test_entries_that_no_start_puts_in_are_an_error(
    tmp_path: Path, name: str, harm: Callable[[Path], None], lost: int, said: str
) -> None:
    case = Case(name)
    root = case.unpack(tmp_path)
    harm(root)
    report = mqstore.preflight(root, to="5.3", config=case.settings)
    assert (report.ok, report.lost) == (False, lost)
    assert any(note.severity == "error" and said in note.what for note in report.notes)


def test_tags_and_releases_are_told(tmp_path: Path) -> None:
    old = Case("plain").unpack(tmp_path / "old")
    texts = [note.what for note in mqstore.preflight(old, to="5.5").notes]
    assert any("not by tag" in text for text in texts)
    new = Case("plain-55").unpack(tmp_path / "new")
    texts = [note.what for note in mqstore.preflight(new, to="5.3").notes]
    assert texts == [
        "5.5 or later wrote to the store; 5.3 opens it, and puts no index entries for tags"
    ]


def test_queues_in_a_database_are_told(tmp_path: Path) -> None:
    root = Case("rocksdb-55").unpack(tmp_path)
    notes = mqstore.preflight(root, to="5.5").notes
    assert any("RocksDB database consumequeue" in note.what for note in notes)


def test_a_log_with_a_hole_starts(tmp_path: Path) -> None:
    """RocketMQ only logs it: `tests/differential/test_incidents.py` shows that."""
    put(tmp_path, "5.5")
    (tmp_path / "commitlog" / f"{2048:020}").unlink()
    assert mqstore.preflight(tmp_path, to="5.5").starts


def test_another_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mqstore.ConfigError, match=r"to: expected 5\.3, 5\.4 or 5\.5"):
        mqstore.preflight(tmp_path, to="5.6")


def test_a_log_outside_of_the_store_is_found(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "disk" / "commitlog"
    settings = {"store_path_commit_log": str(log), "mapped_file_size_commit_log": 65536}
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={log}\nmappedFileSizeCommitLog=65536\n")
    with mqstore.open(root, "a", config=settings) as store:
        store.append("T", b"one")
    assert mqstore.preflight(root, to="5.5", config=conf).ok
    (log / "notes").write_text("x")
    report = mqstore.preflight(root, to="5.3", config=conf)
    assert not report.starts
    (note,) = report.notes
    assert note.what.startswith("it does not start: ")
    assert "Finding(" not in note.what
    assert note.before == f"mqstore doctor {root} --config {conf}"


def test_a_link_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        store.append("T", b"one")
    (tmp_path / "config" / "consumerFilter.json").symlink_to("/nowhere")
    assert mqstore.preflight(tmp_path, to="5.3").starts


@pytest.mark.parametrize("damage", ["last file gone", "sector", "zeros"])
@pytest.mark.parametrize("to", ["5.3", "5.5"])
def test_o6_messages_that_the_log_lacks_are_lost_as_doctor_says(
    to: str, damage: str, tmp_path: Path
) -> None:
    put(tmp_path, "5.3")
    files = sorted((tmp_path / "commitlog").iterdir())
    if damage == "last file gone":
        # The newest of those that hold something.
        last = max(file for file in files if file.read_bytes().strip(b"\0"))
        for file in files[files.index(last) :]:
            file.unlink()
    else:
        with files[2].open("r+b") as file:
            file.seek(100)
            file.write(b"\0" * (64 if damage == "sector" else 700))
    found = mqstore.doctor(tmp_path)
    report = mqstore.preflight(tmp_path, to=to)
    assert (report.ok, report.lost) == (False, found.lost)
    assert found.lost > 0
    texts = [note.what for note in report.notes if note.severity == "error"]
    for queue in found.lost_queues:
        place = f"of T/{queue.queue_id}, at {queue.first} to {queue.last},"
        assert any(text.startswith(f"{queue.messages} messages {place}") for text in texts)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_o6_beside_a_writer_nothing_is_promised(is_damaged: bool, tmp_path: Path) -> None:
    put(tmp_path, "5.3")
    with mqstore.open(tmp_path, "r+"):
        # As where the writer's messages are older than the checkpoint: a start does not see it.
        (tmp_path / "abort").unlink()
        if is_damaged:
            with sorted((tmp_path / "commitlog").iterdir())[2].open("r+b") as file:
                file.seek(100)
                file.write(b"\0" * 700)
        report = mqstore.preflight(tmp_path, to="5.5")
        (tmp_path / "abort").touch()
    assert (report.ok, report.in_use) == (False, True)
    assert report.notes[0].what.startswith("a process writes to the store")
    assert any("bytes that are no message" in note.what for note in report.notes) == is_damaged
    assert [note.before for note in report.notes if note.before is not None] == []


@pytest.mark.parametrize("name", ["zzz", "!notes", ".nfs0001", ".DS_Store"])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_p2_a_stray_file_leads_to_a_verdict(folder: str, name: str, tmp_path: Path) -> None:
    put(tmp_path, "5.3")
    (tmp_path / folder / name).write_bytes(b"x" * 100)
    report = mqstore.preflight(tmp_path, to="5.3")
    assert (report.ok, report.starts) == (False, False)
    assert f"{folder}/{name}" in report.notes[0].what
