"""Row O2: folders of a store that are links to folders of its owner, on another disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.curing import run
from helpers.stores import SMALL
from helpers.users import GID, UID

if TYPE_CHECKING:
    from collections.abc import Iterator

LINKED = ("commitlog", "consumequeue", "index", "config")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system, where there is one."""
    memory = Path("/dev/shm")
    other = memory if memory.stat().st_dev != tmp_path.stat().st_dev else tmp_path
    with tempfile.TemporaryDirectory(dir=other) as folder:
        yield Path(folder)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SMALL) as opened:
        for number in range(300):
            opened.append(f"t{number % 3}", bytes(100), keys=f"k{number}")
        group = opened.group("g")
        group.ack(group.poll("t0", max_messages=1)[0])
        group.close()
    return root


def link(store: Path, name: str, disk: Path) -> Path:
    target = disk / name
    shutil.move(store / name, target)
    (store / name).symlink_to(target)
    return target


def count(store: Path) -> int:
    with mqstore.open(store) as opened:
        assert not opened.warnings
        assert opened.query("t0", "k3")
        queues = [opened.read(q.topic, q.queue_id, 0, max_messages=999) for q in opened.queues()]
        listed = sum(len(read.messages) for read in queues)
        assert listed == sum(1 for _ in opened.scan())
        return listed


@pytest.mark.parametrize("name", LINKED)
def test_o2_a_linked_folder_is_read_written_and_repaired(
    store: Path, disk: Path, name: str
) -> None:
    target = link(store, name, disk)
    assert mqstore.doctor(store).ok
    assert mqstore.verify(store).ok
    assert mqstore.preflight(store, to="5.3").ok
    assert count(store) == 300
    with mqstore.open(store, "r+") as opened:
        opened.append("t0", b"more")
    for repair in (
        lambda: mqstore.rebuild(store),
        lambda: mqstore.recover(store, dry_run=False),
        lambda: mqstore.rebuild(store, what=["topics"]),
    ):
        repair()
        assert (store / name).readlink() == target
        assert mqstore.verify(store).ok
        assert count(store) == 301
    assert not [path for path in target.rglob("*") if "moving" in path.name]
    copied = mqstore.copy(store, disk / "copy")
    assert copied.messages == 301


@pytest.mark.parametrize("name", ["consumequeue", "index"])
def test_o2_a_rebuild_behind_a_link_is_that_of_a_folder_and_keeps_the_old_files(
    store: Path, disk: Path, name: str
) -> None:
    plain = disk / "plain"
    shutil.copytree(store, plain)
    target = link(store, name, disk)
    victim = next(path for path in sorted(target.rglob("*")) if path.is_file())
    victim.write_bytes(zeros := bytes(victim.stat().st_size))
    (stray := target / "gone" / "0").mkdir(parents=True)
    report = mqstore.doctor(store)
    assert not report.ok
    shutil.rmtree(stray.parent)
    for command in mqstore.doctor(store).commands:
        run(command)
    assert mqstore.doctor(store).ok
    mqstore.rebuild(plain)
    files = {
        path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()
    }
    others = sorted(path.read_bytes() for path in (plain / name).rglob("*") if path.is_file())
    assert sorted(files.values()) == others
    kept = [path for path in (store / "quarantine").rglob(victim.name) if path.is_file()]
    assert zeros in [path.read_bytes() for path in kept]


def test_o2_a_rebuild_behind_a_link_leaves_what_is_of_others(store: Path, disk: Path) -> None:
    target = link(store, "consumequeue", disk)
    (target / "lost+found").mkdir()
    mqstore.rebuild(store)
    assert (target / "lost+found").is_dir()
    with mqstore.open(store, "r+") as opened:
        opened.append("t0", b"more")


def test_o2_a_table_behind_a_link_goes_to_the_quarantine(store: Path, disk: Path) -> None:
    target = link(store, "config", disk)
    for name in ("topics.json", "topics.json.bak"):
        (target / name).write_text("{")
    report = mqstore.rebuild(store, what=["topics"])
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "config" / "topics.json").read_text() == "{"
    assert (store / "config").readlink() == target
    assert count(store) == 300


@pytest.mark.parametrize("name", LINKED)
def test_o2_a_dangling_link_is_named(store: Path, disk: Path, name: str) -> None:
    target = link(store, name, disk)
    shutil.rmtree(target)
    told = f"a link to {target}, which does not exist"
    for mode in ("r", "r+"):
        with pytest.raises(mqstore.NotAStoreError, match=told):
            mqstore.open(store, mode)
    if name == "commitlog":
        with pytest.raises(mqstore.NotAStoreError, match=told):
            mqstore.doctor(store)
    else:
        report = mqstore.doctor(store)
        evidence = [line for one in report for line in one.evidence]
        assert any(told in line for line in evidence), evidence
        forecast = mqstore.preflight(store, to="5.3")
        assert not forecast.ok
        assert any(told in note.what for note in forecast.notes), forecast
    assert (store / name).readlink() == target


@pytest.mark.skipif(os.geteuid() != 0, reason="[no-root] only root gives folders away")
@pytest.mark.parametrize("name", LINKED)
def test_o2_a_link_to_a_folder_of_another_user_is_not_followed(
    store: Path, disk: Path, name: str
) -> None:
    target = link(store, name, disk)
    os.chown(target, UID, GID)
    for mode in ("r", "r+"):
        with pytest.raises(mqstore.NotAStoreError, match="a folder of uid"):
            mqstore.open(store, mode)


@pytest.mark.parametrize("below", ["consumequeue/t0", "consumequeue/t0/0"])
def test_o2_links_below_are_not_followed(store: Path, disk: Path, below: str) -> None:
    target = disk / "target"
    shutil.move(store / below, target)
    (store / below).symlink_to(target)
    with pytest.raises(mqstore.CorruptionError, match="a link, pipe or device"):
        mqstore.open(store, "r+")
    with mqstore.open(store) as opened:
        assert any(below in line for line in opened.warnings)
