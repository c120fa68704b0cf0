"""Log files that are missing at the end: nothing removes the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def following(path: Path) -> Path:
    """The name of the file behind the log's last one."""
    last = max((path / "commitlog").iterdir())
    return last.with_name(f"{int(last.name) + last.stat().st_size:020}")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A store as a broker leaves it, the last log file moved to ``kept`` beside it."""
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SMALL) as store:
        store.append_many([("t", b"%d" % number + b"x" * 100) for number in range(1500)])
    for name in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
        (path / name).unlink()
    max((path / "commitlog").iterdir()).rename(tmp_path / "kept")
    return path


def test_a_rebuild_in_place_is_refused_and_changes_nothing(broken: Path) -> None:
    path, tmp_path = broken, broken.parent
    with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
        mqstore.rebuild(path)
    assert "MQ-DOC-13" in {finding.code for finding in mqstore.doctor(path)}
    made = mqstore.rebuild(path, out=tmp_path / "elsewhere")
    assert made.queues[0].max_offset < 1500
    (tmp_path / "kept").rename(following(path))
    with mqstore.open(path, "r+") as store:
        assert len(store.topic("t")) == 1500


def test_nothing_that_makes_a_copy_leaves_out_the_missing_end_in_silence(broken: Path) -> None:
    target = broken.parent / "target"
    with mqstore.open(broken, "r") as store:
        assert [line for line in store.warnings if "put the missing files back" in line]
    before = sorted(broken.rglob("*"))
    for make in (
        lambda: mqstore.copy(broken, target),
        lambda: mqstore.export_store(broken, target),
        lambda: mqstore.convert(broken, queues="rocksdb"),
        lambda: mqstore.convert(broken, queues="rocksdb", dry_run=False),
    ):
        with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
            make()
        assert not target.exists()
    assert sorted(broken.rglob("*")) == before
    report = mqstore.export_store(broken, target, on_error="skip")
    assert not report.complete
    assert 0 < report.messages < 1500


def spare_behind(path: Path) -> None:
    gone = following(path)
    gone.with_name(f"{int(gone.name) + 65_536:020}").write_bytes(bytes(65_536))


def empty(path: Path) -> None:
    following(path).touch()


def zeros(path: Path) -> None:
    following(path).write_bytes(bytes(65_536))


def damaged_before(path: Path) -> None:
    last = max((path / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:-300] + bytes(300))


@pytest.mark.parametrize("change", [spare_behind, empty, zeros, damaged_before])
def test_neither_a_spare_nor_damage_hides_the_missing_end(
    broken: Path, change: Callable[[Path], None]
) -> None:
    change(broken)
    with mqstore.open(broken, "r") as store:
        assert [line for line in store.warnings if "put the missing files back" in line]
    target = broken.parent / "target"
    for make in (
        lambda: mqstore.copy(broken, target),
        lambda: mqstore.export_store(broken, target),
        lambda: mqstore.rebuild(broken),
        lambda: mqstore.convert(broken, queues="rocksdb", dry_run=False),
    ):
        with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
            make()
    assert "MQ-DOC-13" in {finding.code for finding in mqstore.doctor(broken)}


def test_topics_that_miss_nothing_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SMALL) as store:
        store.append_many([("whole", b"x")] * 5)
        store.append_many([("t", b"x" * 100)] * 1500)
    for name in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
        (path / name).unlink()
    max((path / "commitlog").iterdir()).unlink()
    assert mqstore.copy(path, tmp_path / "copy", topics=["whole"]).messages == 5
    assert mqstore.export_store(path, tmp_path / "export", topics=["whole"]).messages == 5
    with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
        mqstore.copy(path, tmp_path / "other", topics=["whole", "t"])


def test_a_file_that_a_broker_just_made_is_not_missing(broken: Path) -> None:
    with mqstore.open(broken, "r") as store:
        assert store.warnings
    (broken.parent / "kept").rename(following(broken))
    with mqstore.open(broken, "r") as store:
        assert store.warnings == []
        assert len(list(store.scan())) == 1500
