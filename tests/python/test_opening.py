"""Opening for writing is not bolder than ``recover``: missing and misplaced files, DLedger."""

from __future__ import annotations

import shlex
import shutil
import struct
import subprocess
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import SMALL
from helpers.waiting import wait_until
from mqstore._settings import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

FILE = 65_536


def files(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def data(path: Path) -> dict[str, bytes]:
    """Every file of log, queues and index."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for folder in ("commitlog", "consumequeue", "index")
        for file in (path / folder).rglob("*")
        if file.is_file()
    }


def made(path: Path, flush: str = "ASYNC_FLUSH") -> Path:
    """A closed store with three files of the log."""
    with mqstore.open(path, "a", config={**SMALL, "flush_disk_type": flush}) as store:
        store.append_many(
            [
                mqstore.Message("t", b"%d" % number + b"x" * 400, keys=f"k{number}")
                for number in range(300)
            ]
        )
    for spare in files(path)[3:]:
        spare.unlink()
    assert len(files(path)) == 3
    return path


def remove(path: Path, names: str) -> None:
    for name in names.split():
        (path / name).unlink(missing_ok=True)


def refused_and_unchanged(path: Path, match: str) -> None:
    before = data(path)
    with pytest.raises(mqstore.CorruptionError, match=match):
        mqstore.open(path, "r+")
    with pytest.raises(mqstore.CorruptionError, match=match):
        mqstore.recover(path, dry_run=False)
    assert mqstore.recover(path).damage is not None
    assert data(path) == before


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(
    "without",
    ["", "mqstore.seal", "mqstore.mark mqstore.seal", "mqstore.mark mqstore.seal checkpoint"],
)
def test_missing_last_files_are_refused_however_the_store_ended(
    tmp_path: Path, *, flush: str, abort: bool, without: str
) -> None:
    path = made(tmp_path / "store", flush)
    remove(path, without)
    if abort:
        (path / "abort").write_text("1")
    kept = {file: file.read_bytes() for file in files(path)[1:]}
    for file in kept:
        file.unlink()
    with mqstore.open(path) as store:
        assert any("put the missing files back" in line for line in store.warnings)
        assert not store.query("t", "k1").complete
    refused_and_unchanged(path, "put the missing files back")
    for file, content in kept.items():
        file.write_bytes(content)
    with mqstore.open(path, "r+") as store:
        assert len(list(store.scan())) == 300


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("lost", ["zeros", "short"])
def test_a_last_file_that_lost_its_bytes_is_refused(
    tmp_path: Path, lost: str, *, abort: bool
) -> None:
    path = made(tmp_path / "store", "SYNC_FLUSH")
    if abort:
        (path / "abort").write_text("1")
    last = files(path)[-1]
    whole = last.read_bytes()
    last.write_bytes(bytes(FILE) if lost == "zeros" else whole[:2_000].ljust(FILE, b"\0"))
    with mqstore.open(path) as store:
        assert any("nothing was changed" in line for line in store.warnings)
        assert not store.query("t", "k1").complete
    refused_and_unchanged(path, "nothing was changed")
    last.write_bytes(whole)
    with mqstore.open(path, "r+") as store:
        assert len(list(store.scan())) == 300


@pytest.mark.parametrize("abort", [False, True])
def test_a_message_that_only_the_checkpoint_knows_is_evidence_of_its_file(
    tmp_path: Path, *, abort: bool
) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config={**SMALL, "rocketmq_version": "5.5"}) as store:
        while store.max_physical_offset < 2 * FILE:
            last = store.append("t", b"x" * 400)
        wait_until(lambda: time.time_ns() // 1_000_000 > last.store_timestamp_ms)
        store.append_many([mqstore.Message("t", b"x" * 400)] * 20)
    remove(path, "mqstore.mark mqstore.seal")
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
    for file in files(path)[2:]:
        file.unlink()
    if abort:
        (path / "abort").write_text("1")
    with mqstore.open(path) as store:
        assert any("by the checkpoint" in line for line in store.warnings)
        assert not store.query("t", "k").complete
    refused_and_unchanged(path, "by the checkpoint")


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(("source", "place"), [(0, FILE), (0, 2 * FILE), (FILE, 2 * FILE)])
def test_a_file_of_another_broker_is_not_taken_for_the_stores_own(
    tmp_path: Path, source: int, place: int, *, abort: bool
) -> None:
    path, other = made(tmp_path / "store"), made(tmp_path / "other")
    shutil.copy(other / "commitlog" / f"{source:020}", path / "commitlog" / f"{place:020}")
    if abort:
        (path / "abort").write_text("1")
    with mqstore.open(path) as store:
        assert any("nothing was changed" in line for line in store.warnings)
        assert not store.query("t", "k299").complete
    refused_and_unchanged(path, "by the file's name")


@pytest.mark.parametrize("abort", [False, True])
def test_a_missing_middle_file_is_refused_and_a_missing_first_one_was_retention(
    tmp_path: Path, *, abort: bool
) -> None:
    path = made(tmp_path / "store")
    if abort:
        (path / "abort").write_text("1")
    middle = files(path)[1]
    whole = middle.read_bytes()
    middle.unlink()
    with mqstore.open(path) as store:
        assert not store.query("t", "k1").complete
    refused_and_unchanged(path, "gap")
    middle.write_bytes(whole)
    files(path)[0].unlink()
    with mqstore.open(path, "r+") as store:
        kept = [message.queue_offset for message in store.scan()]
        assert store.query("t", "k299").complete
    assert kept == list(range(300 - len(kept), 300))


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("disk", ["a", "b", "c"])
def test_a_disk_that_is_not_mounted_is_refused_and_needs_no_repair(
    tmp_path: Path, disk: str, *, abort: bool
) -> None:
    disks = ",".join(str(tmp_path / name) for name in "abc")
    config = {**SMALL, "store_path_commit_log": disks, "disk_space_clean_forcibly_ratio": 100}
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=config) as store:
        store.append_many([mqstore.Message("t", b"x" * 400, keys=f"k{n}") for n in range(650)])
    if abort:
        (path / "abort").write_text("1")
    (tmp_path / disk).rename(tmp_path / "elsewhere")
    (tmp_path / disk).mkdir()
    before = data(path)
    with pytest.raises(mqstore.CorruptionError):
        mqstore.open(path, "r+", config=config)
    with pytest.raises(mqstore.CorruptionError):
        mqstore.recover(path, config=config, dry_run=False)
    with mqstore.open(path, config=config) as store:
        assert not store.query("t", "k1").complete
    assert data(path) == before
    (tmp_path / disk).rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / disk)
    with mqstore.open(path, "r+", config=config) as store:
        assert len(list(store.scan())) == 650


def renamed(path: Path, new: dict[int, int]) -> None:
    folder = path / "commitlog"
    for old in new:
        (folder / f"{old:020}").rename(folder / f"{old}.moved")
    for old, name in new.items():
        (folder / f"{old}.moved").rename(folder / f"{name:020}")


SHIFTS = {
    "one file": {number * FILE: (number + 1) * FILE for number in range(3)},
    "far": {number * FILE: (number + 50) * FILE for number in range(3)},
    "no multiple": {number * FILE: number * FILE + 4_096 for number in range(3)},
    "two swapped": {FILE: 2 * FILE, 2 * FILE: FILE},
    "the first two": {0: FILE, FILE: 0},
    "the last": {2 * FILE: 3 * FILE},
    "ring": {0: FILE, FILE: 2 * FILE, 2 * FILE: 0},
}


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("without", ["", "mqstore.mark mqstore.seal checkpoint"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_renamed_files_are_found_before_anything_is_moved(
    tmp_path: Path, *, shift: str, without: str, abort: bool
) -> None:
    path = made(tmp_path / "store")
    whole = data(path)
    remove(path, without)
    if abort:
        (path / "abort").write_text("1")
    renamed(path, SHIFTS[shift])
    with mqstore.open(path) as store:
        assert any("nothing was changed" in line for line in store.warnings)
        assert not store.query("t", "k250").complete
    refused_and_unchanged(path, "nothing was changed")
    report = mqstore.doctor(path)
    moves = [line for line in report.commands if line.startswith("mv ")]
    assert moves
    for line in moves:
        subprocess.run(shlex.split(line), check=True)
    assert data(path) == whole
    with mqstore.open(path, "r+") as store:
        assert len(list(store.scan())) == 300


def store_of_dledger(path: Path, folder: Path) -> None:
    """A store whose log goes on behind its first file in DLedger's `folder`."""
    remove(path, "mqstore.mark mqstore.seal config/mqstore.json")
    first, *rest = files(path)
    with mqstore.open(path) as store:
        places = [message.physical_offset for message in store.scan()]
    raw = b"".join(file.read_bytes() for file in files(path))
    ledger, at = bytearray(), FILE
    for place, following in pairwise(place for place in places if place >= FILE):
        size = struct.unpack_from(">i", raw, place)[0]
        assert following - place >= size
        record = bytearray(raw[place : place + size])
        struct.pack_into(">q", record, 28, at + 48)
        ledger += struct.pack(">iiqqqiiii", 1, size + 48, 0, 1, at, 0, 0, 0, size) + record
        at += size + 48
    folder.mkdir(parents=True)
    (folder / f"{FILE:020}").write_bytes(bytes(ledger).ljust(4 * FILE, b"\0"))
    for file in rest:
        file.unlink()
    assert first.exists()


LEDGERS = {
    "in the store": ("", "store/dledger-n0/data"),
    "where the settings have it": ("storePathDLedgerCommitLog={}/log\n", "log"),
    "below it": (
        "enableDLegerCommitLog=true\nstorePathDLedgerCommitLog={}/none,{}/log\n",
        "log/dledger-n1/data",
    ),
    "elsewhere": ("enableDLegerCommitLog=true\n", "elsewhere"),
    "not mounted": (
        "enableDLegerCommitLog=true\nstorePathDLedgerCommitLog={}/log\n",
        "elsewhere",
    ),
}


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("where", LEDGERS)
def test_a_store_of_dledger_is_named_and_never_cut(
    tmp_path: Path, where: str, *, abort: bool
) -> None:
    path = made(tmp_path / "store")
    lines, place = LEDGERS[where]
    folder = tmp_path / place
    store_of_dledger(path, folder)
    if abort:
        (path / "abort").write_text("1")
    conf = tmp_path / "broker.conf"
    sizes = "".join(f"{SETTINGS[name].conf_name}={value}\n" for name, value in SMALL.items())
    conf.write_text(lines.replace("{}", str(tmp_path)) + sizes)
    before = data(path)
    for cut in (
        lambda: mqstore.open(path, "r+", config=conf),
        lambda: mqstore.recover(path, config=conf, dry_run=False),
        lambda: mqstore.recover(path, config=conf, dry_run=False, drop_beyond=True),
        lambda: mqstore.rebuild(path, config=conf),
        lambda: mqstore.rebuild(path, config=conf, what=("index",)),
        lambda: mqstore.copy(path, tmp_path / "copy", config=conf),
    ):
        with pytest.raises(mqstore.CorruptionError, match="DLedger"):
            cut()
    assert data(path) == before
    with mqstore.open(path, config=conf) as store:
        assert any("DLedger" in line for line in store.warnings)
        assert not store.query("t", "k1").complete
    assert "MQ-DL-01" in {finding.code for finding in mqstore.verify(path, config=conf).findings}
    report = mqstore.doctor(path, config=conf)
    assert "MQ-DL-01" in {finding.code for finding in report.diagnoses}
    is_found = folder.name != "elsewhere"
    wanted = [["mqstore", "salvage", str(folder)]] if is_found else []
    assert [line.split()[:3] for line in report.commands] == wanted
    assert report.last_resort == ()
    assert "MQ-DOC-18" not in {finding.code for finding in report.diagnoses}
    notes = mqstore.preflight(path, to="5.3", config=conf).notes
    assert any(note.severity == "error" and "DLedger" in note.what for note in notes)
    # The new store has no log of DLedger.
    salvaged = tmp_path / "salvaged"
    assert mqstore.salvage(folder, salvaged, config=conf).messages > 0
    mqstore.open(salvaged, "r+").close()


def test_no_store_is_made_where_the_settings_tell_of_dledger(tmp_path: Path) -> None:
    config = {"enable_dleger_commit_log": True}
    with pytest.raises(mqstore.NotAStoreError, match="enableDLegerCommitLog"):
        mqstore.open(tmp_path / "new", "a", config=config)
    with pytest.raises(mqstore.NotAStoreError, match="enableDLegerCommitLog"):
        mqstore.open(tmp_path, "a", config=config)
    assert not list(tmp_path.iterdir())
    mqstore.open(tmp_path, "a", config={"enable_dleger_commit_log": False}).close()
