"""Log files that are missing at the end: nothing removes the evidence."""

from __future__ import annotations

import shutil
import time
from itertools import product
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import SMALL
from helpers.waiting import wait_until

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


def by_index(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")
    with (path / "checkpoint").open("r+b") as file:
        file.seek(32)
        file.write(bytes(16))  # of messages at physical offsets


def by_mark(path: Path) -> None:
    by_index(path)
    shutil.rmtree(path / "index")
    (path / "checkpoint").unlink()
    shutil.copy(path.parent / "mark", path / "mqstore.mark")


def by_checkpoint(path: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(
    ("known", "left"),
    [
        *product([None, by_index, by_mark], ["none", "zeros"]),
        # It says no more than a time of what lies in a file that is there.
        (by_checkpoint, "none"),
    ],
)
@pytest.mark.parametrize("what", [("consumequeue", "index"), ("consumequeue",), ("index",)])
def test_a_rebuild_in_place_leaves_the_last_evidence_as_it_is(
    tmp_path: Path,
    *,
    what: tuple[str, ...],
    known: Callable[[Path], None] | None,
    left: str,
    abort: bool,
) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config={**SMALL, "rocketmq_version": "5.5"}) as store:
        for size in (400, 100):
            last = store.append_many(
                [mqstore.Message("t", b"x" * size, keys=f"k{n}") for n in range(200)]
            )[-1]
            wait_until(lambda at=last: time.time_ns() // 1_000_000 > at.store_timestamp_ms)
        store.append_many([mqstore.Message("t", b"x" * 300, keys=f"l{n}") for n in range(60)])
    (path / "mqstore.mark").rename(tmp_path / "mark")
    for name in ("mqstore.seal", "config/mqstore.json"):
        (path / name).unlink()
    (gone := max((path / "commitlog").iterdir())).unlink()
    if left == "zeros":
        gone.write_bytes(bytes(65_536))
    if known is not None:
        known(path)
    if abort:
        (path / "abort").write_text("1")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(mqstore.CorruptionError):
        mqstore.open(path, "r+")
    for dry_run in (True, False):
        with pytest.raises(mqstore.CorruptionError, match="nothing was changed"):
            mqstore.rebuild(path, what=what, dry_run=dry_run)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert mqstore.rebuild(path, what=what, out=tmp_path / "elsewhere").messages > 0
    report = mqstore.doctor(path)
    assert not report.ok
    assert not report.commands
    assert not mqstore.preflight(path, to="5.5").ok


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
