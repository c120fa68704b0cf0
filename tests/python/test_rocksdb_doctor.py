"""``doctor`` on a store with its queues in RocksDB: damage in the log is not the database's."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore

pytest.importorskip("rocksdict")

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"mapped_file_size_commit_log": 4096}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "a store"
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(60):
            store.append("T", bytes(200), queue_id=number % 3, tags="ab"[number % 2])
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    for own in ("mqstore.mark", "mqstore.seal"):
        (root / own).unlink(missing_ok=True)
    return root


def log_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damage_in_the_log_is_no_damage_of_the_database(root: Path) -> None:
    damage(log_files(root)[1], 150)
    codes = {found.code for found in mqstore.verify(root, config=SMALL).findings}
    assert "MQ-LOG-02" in codes
    assert "MQ-RDB-01" not in codes
    report = mqstore.doctor(root, config=SMALL)
    assert report.lost == 1
    assert [lost.messages for lost in report.lost_queues] == [1]
    assert report.commands[0].startswith("mqstore salvage ")
    assert report.commands[-1] == (
        f"test -d '{root}.damaged' && mqstore convert '{root}' --queues rocksdb --apply"
    )
    assert len([one for one in report.commands if "convert" in one]) == 1


def test_rows_beyond_the_log_tell_that_its_end_is_missing(root: Path) -> None:
    with mqstore.open(root, config=SMALL) as store:
        begin = int(log_files(root)[-1].name)
        gone = sum(message.physical_offset >= begin for message in store.scan())
    for path in sorted((root / "commitlog").iterdir()):
        if int(path.name) >= begin:
            path.unlink()
    shutil.rmtree(root / "index", ignore_errors=True)
    report = mqstore.doctor(root, config=SMALL)
    assert report.lost == gone
    assert "MQ-DOC-13" in {one.code for one in report}
    assert report.commands == ()
    assert all(one.cure is None for one in report)


@pytest.mark.parametrize(
    "spelt", ["storeType=defaultRocksDB", " storetype=x\nstoreType : DEFAULTROCKSDB"]
)
def test_a_database_that_is_gone_and_that_the_settings_name_is_made_again(
    root: Path, tmp_path: Path, spelt: str
) -> None:
    shutil.rmtree(root / "consumequeue")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    assert {"rebuild"} == {one.split()[1] for one in mqstore.doctor(root, config=conf).commands}
    with conf.open("a") as lines:
        lines.write(f"storeType=default\n{spelt}\n")
    with pytest.warns(mqstore.ConfigWarning) if "x" in spelt else contextlib.nullcontext():
        report = mqstore.doctor(root, config=conf)
        (told,) = (one for one in report if one.code == "MQ-RDB-03")
        assert len(told.evidence) == 3
        assert "20 rows of queue 0 of T" in told.evidence[0]
        assert report.will_start
        assert report.commands == (
            f"mqstore convert '{root}' --queues rocksdb --apply --config {conf}",
        )
        mqstore.convert(root, queues="rocksdb", config=conf, dry_run=False)
        assert mqstore.doctor(root, config=conf).ok


def test_a_lost_database_of_a_store_with_wrong_sizes_is_judged(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=8192\nstoreType=defaultRocksDB\n")
    assert "MQ-CFG-08" in {one.code for one in mqstore.doctor(root, config=conf)}
    report = mqstore.verify(root, config=conf)
    assert not report.ok
    (told,) = (one for one in report.findings if one.code == "MQ-RDB-03")
    assert "got 8192" in told.found


def test_a_new_store_needs_no_database_yet(tmp_path: Path) -> None:
    mqstore.open(tmp_path / "new", "a", config=SMALL).close()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\nstoreType=defaultRocksDB\n")
    assert mqstore.doctor(tmp_path / "new", config=conf).ok


def test_the_cure_is_printed_with_an_absolute_and_quoted_path(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-9\n")
    monkeypatch.chdir(root.parent)
    report = mqstore.doctor(root.name, config=SMALL)
    cures = [one.cure for one in report if one.code.startswith("MQ-RDB")]
    assert cures == [f"mqstore convert '{root}' --queues rocksdb --apply"]
