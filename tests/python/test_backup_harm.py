"""Backups keep what they should: beside prunes, broken syncs, wrong stores and hostile objects."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import age
from helpers.stores import TINY
from mqstore.backup import syncing, upkeep, writing
from mqstore.backup.snapshot import document_name
from mqstore.backup.target import _Folder
from mqstore.cli import main
from mqstore.metrics import StoreCollector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of several files."""
    root = tmp_path / "store"
    append(root, 60)
    return root


def append(root: Path, count: int = 1) -> None:
    with mqstore.open(root, "a", config=TINY) as made:
        for number in range(count):
            made.append("T", b"body %d" % number, keys=f"k{number}", queue_id=number % 2)


def snapshots_in_hours(store: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three snapshots, each an hour after the one before; the last is 40 hours old."""
    clock = syncing.time.time_ns
    made = []
    for hour in (42, 41, 40):
        append(store)
        with monkeypatch.context() as patch:
            patch.setattr(syncing.time, "time_ns", lambda hour=hour: clock() - hour * 3600 * 10**9)
            made.append(mqstore.sync(store, backup).snapshot)
        age(backup / document_name(made[-1]), hour)
    return made


def test_prune_keeps_all_hours_where_there_are_fewer_than_asked_for(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    made = snapshots_in_hours(store, backup, monkeypatch)
    for count, left in ((5, made), (3, made), (2, made[1:]), (0, made[2:])):
        report = mqstore.prune(backup, keep=timedelta(0), keep_hourly=count)
        assert report.kept == tuple(left)
    with pytest.raises(ValueError, match="keep_hourly: expected 0 or more"):
        mqstore.prune(backup, keep=timedelta(0), keep_hourly=-1)
    with pytest.raises(ValueError, match="keep: expected 0 or more"):
        mqstore.prune(backup, keep=timedelta(-1))


def before_writing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Acts once, before the next snapshot is written."""
    write = syncing.write

    def late(*given: Any) -> str:
        monkeypatch.setattr(syncing, "write", write)
        act()
        return write(*given)

    monkeypatch.setattr(syncing, "write", late)


def killed_sync(store: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> None:
        raise Killed

    before_writing(monkeypatch, end)
    with pytest.raises(Killed):
        mqstore.sync(store, backup)


def is_kept(store: Path, backup: Path) -> bool:
    with mqstore.open(backup) as kept, mqstore.open(store) as live:
        same = [str(found) for found in kept.scan()] == [str(found) for found in live.scan()]
    return same and mqstore.check_backup(backup).ok


def test_a_sync_notices_that_prune_deleted_its_own_objects(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    append(store, 30)
    pruned: list[int] = []

    def prune() -> None:
        age(backup / "objects", 30)
        pruned.append(mqstore.prune(backup, keep=timedelta(0), dry_run=False).objects)

    before_writing(monkeypatch, prune)
    mqstore.sync(store, backup)
    assert pruned[0] > 0
    assert is_kept(store, backup)
    assert len(mqstore.snapshots(backup)) == 2


def test_objects_of_a_sync_of_days_stay(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    append(store, 30)
    monkeypatch.setattr(writing, "_LEASE_S", 0)
    began = SimpleNamespace(monotonic=lambda: time.monotonic() - 40 * 3600, time_ns=time.time_ns)
    monkeypatch.setattr(syncing, "time", began)
    pruned: list[int] = []

    def prune(hours: int) -> None:
        age(backup / "objects", hours)
        pruned.append(mqstore.prune(backup, keep=timedelta(0), dry_run=False).objects)

    before_writing(monkeypatch, lambda: prune(30))
    mqstore.sync(store, backup)
    assert pruned == [0]
    assert is_kept(store, backup)
    age(backup / "syncs", 25)
    prune(30)
    assert not list((backup / "syncs").rglob("*"))


def test_a_killed_sync_goes_on_without_reading_or_writing_again(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    killed_sync(store, backup, monkeypatch)
    age(backup / "objects", 30)
    begun = (backup / "mqstore-backup.json").stat().st_size
    objects = [path for path in (backup / "objects").rglob("*") if path.is_file()]
    there = {path for path in objects if path.stat().st_size != begun}
    put, get = _Folder._put, _Folder.get
    written: list[Path] = []
    read: list[str] = []
    monkeypatch.setattr(
        _Folder,
        "_put",
        lambda self, name, content: written.append(backup / name) or put(self, name, content),
    )
    monkeypatch.setattr(_Folder, "get", lambda self, names: read.extend(names) or get(self, names))
    mqstore.sync(store, backup)
    assert not there & set(written)
    assert read == ["mqstore-backup.json"]
    # They are young again, so `prune` leaves them.
    assert min(path.stat().st_mtime for path in there) > time.time() - 3600


def test_prune_leaves_what_a_sync_uses_again_meanwhile(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    append(store, 30)
    killed_sync(store, backup, monkeypatch)
    age(backup / "objects", 30)
    names = _Folder.names

    def late(self: _Folder, folder: str) -> list[tuple[str, int, float]]:
        found = names(self, folder)
        if folder == "objects":
            monkeypatch.setattr(_Folder, "names", names)
            mqstore.sync(store, backup)
        return found

    monkeypatch.setattr(_Folder, "names", late)
    report = mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    assert report.objects > 0
    assert is_kept(store, backup)


def test_a_store_that_does_not_reach_the_backup_is_refused(tmp_path: Path, store: Path) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    first = mqstore.sync(store, backup)
    shutil.copytree(store, other)
    # Not mounted: a broker has begun an empty store; or retention has outrun the backup.
    shutil.rmtree(store)
    with mqstore.open(store, "a", config=TINY):
        pass
    append(other, 200)
    mqstore.clean(other, dry_run=False, config={**TINY, "keep_bytes": 4096})
    for root in (store, other):
        with mqstore.open(root) as opened:
            begin, end = opened.min_physical_offset, opened.max_physical_offset
        text = f"ends at {first.end_offset}, got one from {begin} to {end}; nothing was copied"
        with pytest.raises(mqstore.ConfigError, match=text):
            mqstore.sync(root, backup)
    assert begin > first.end_offset
    assert len(mqstore.snapshots(backup)) == 1
    report = mqstore.sync(other, backup, new_timeline=True)
    assert report.timeline != first.timeline
    assert is_kept(other, backup)
    assert not mqstore.sync(other, backup).is_new


def test_a_damaged_snapshot_stops_no_sync_and_lost_objects_are_copied_again(
    tmp_path: Path, store: Path
) -> None:
    backup = tmp_path / "backup"
    first = mqstore.sync(store, backup).snapshot
    append(store)
    (backup / document_name(mqstore.sync(store, backup).snapshot)).write_bytes(b"{}")
    report = mqstore.sync(store, backup)
    assert report.is_new
    assert report.snapshot > first
    assert "expected the document that its name proves" in report.damaged[0]
    with mqstore.open(backup) as kept:
        assert sum(1 for _ in kept.scan()) == 61
    assert [found.code for found in mqstore.check_backup(backup).findings] == ["MQ-BK-02"]
    assert not mqstore.sync(store, backup).is_new
    mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    for name in [p.relative_to(backup) for p in (backup / "objects").rglob("*") if p.is_file()]:
        copy = tmp_path / name.name
        shutil.copytree(backup, copy)
        (copy / name).unlink()
        mqstore.sync(store, copy, verify=True)
        mqstore.prune(copy, keep=timedelta(0), dry_run=False)
        assert is_kept(store, copy)


def test_a_log_that_is_cut_while_it_is_copied_gives_no_snapshot(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, before = tmp_path / "backup", tmp_path / "before"
    shutil.copytree(store, before)
    append(store, 10)
    other = tmp_path / "other"
    shutil.copytree(before, other)
    append(other, 20)
    (store / "abort").write_bytes(b"1")
    for name in ("mqstore.seal", "mqstore.mark", "checkpoint"):
        (store / name).unlink(missing_ok=True)
    left_out = syncing.left_out_names

    for later in (other, before):

        def cut(root: Path, later: Path = later, **given: Any) -> Any:
            shutil.copytree(later / "commitlog", store / "commitlog", dirs_exist_ok=True)
            return left_out(root, **given)

        monkeypatch.setattr(syncing, "left_out_names", cut)
        with pytest.raises(mqstore.StoreError, match="the log was cut while it was copied"):
            mqstore.sync(store, backup)
        assert mqstore.snapshots(backup) == []


def test_files_that_are_left_out_have_a_line(tmp_path: Path, store: Path) -> None:
    config = store / "config"
    (config / "sub").mkdir()
    (store / "abort").write_bytes(b"1")
    (config / "linked.json").symlink_to(tmp_path)
    (config / "a\nb").write_bytes(b"1")
    (store / "consumequeue/T/x").mkdir()
    (store / "consumequeue/T/x" / ("0" * 20)).write_bytes(b"1" * 20)
    (config / "large.json.bak").write_bytes(b"{}")
    for large in (config / "large.json", config / "small.json.bak"):
        large.touch()
        os.truncate(large, (1 << 30) + 1)
    (config / "small.json").write_bytes(b"{}")
    lines = mqstore.sync(store, tmp_path / "backup").left_out
    for name, kind in (
        ("config/sub", "a folder"),
        ("config/linked.json", "a link"),
        ("config/a\\nb", "no name of a store"),
        ("config/large.json", "more than 1073741824 bytes"),
        (f"consumequeue/T/x/{'0' * 20}", "no name of a store"),
    ):
        assert f"'{name}': {kind}" in lines
    assert not any("small.json" in line for line in lines)
    assert mqstore.check_backup(tmp_path / "backup").ok
    assert mqstore.restore(tmp_path / "backup", tmp_path / "out").left_out == lines
    for name in ("large", "small"):
        assert (tmp_path / f"out/config/{name}.json").read_bytes() == b"{}"
    with pytest.raises(mqstore.StoreIOError, match="Not a directory"):
        mqstore.restore(tmp_path / "backup", store / "abort" / "x")


def test_the_health_file_keeps_the_last_success_of_an_earlier_run(
    tmp_path: Path, store: Path
) -> None:
    backup, health = tmp_path / "backup", tmp_path / "health.json"

    def run(place: Path, *more: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "mqstore", "sync", place, backup, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert run(store, "--health", str(health))[0] == 0
    succeeded = json.loads(health.read_text())["last_success_ms"]
    assert run(tmp_path / "missing", "--health", str(health))[0] != 0
    state = json.loads(health.read_text())
    assert state["last_success_ms"] == succeeded < state["last_failure_ms"]
    code, text = run(store, "--health", str(tmp_path / "no-folder/health.json"))
    assert (code, "--health" in text, "the folder is not there" in text) == (0, True, True)
    shutil.rmtree(store)
    with mqstore.open(store, "a", config=TINY) as other:
        other.append("T", b"another log")
    assert run(store)[0] != 0
    samples = {
        sample.name: sample.value
        for metric in StoreCollector(store, backup=backup).collect()
        for sample in metric.samples
    }
    assert samples["mqstore_backup_behind_bytes"] > 0


def test_a_sync_copes_with_retention_and_keeps_changed_settings(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    append(store, 100)
    opened = syncing.SourceFile.__init__

    def gone(self: Any, path: Path, pace: Any) -> None:
        if path.parent.name == "index" or path.name == f"{4096:020}":
            monkeypatch.setattr(syncing.SourceFile, "__init__", opened)
            for at in (0, 4096):
                (store / f"commitlog/{at:020}").unlink()
        opened(self, path, pace)

    monkeypatch.setattr(syncing.SourceFile, "__init__", gone)
    mqstore.sync(store, backup)
    assert mqstore.snapshots(backup)[-1].begin_offset == 8192
    with mqstore.open(backup) as kept, mqstore.open(store) as live:
        assert [str(found) for found in kept.scan()] == [str(found) for found in live.scan()]
    assert not mqstore.sync(store, backup).is_new
    assert mqstore.sync(store, backup, config={"message_delay_level": "1s 2s"}).is_new
    assert not mqstore.sync(store, backup, config={"message_delay_level": "1s 2s"}).is_new
    # The command prints this kind of error in one line.
    with pytest.raises(mqstore.ConfigError, match="bytes_per_s: expected more than 0, got 0"):
        mqstore.sync(store, backup, bytes_per_s=0)


def test_spark_reads_one_snapshot_and_finds_newer_ones_later(tmp_path: Path, store: Path) -> None:
    stores = pytest.importorskip("mqstore.spark.stores")
    from mqstore.spark import roots
    from mqstore.spark.options import ReadOptions

    backup = tmp_path / "backup"
    options = ReadOptions.parse({"path": str(backup)})

    def count(path: str) -> int:
        with mqstore.open(options.root(path)) as kept:
            return sum(1 for _ in kept.scan())

    def find(options: ReadOptions) -> Any:
        (found,) = stores.find_stores(options)
        return pickle.loads(pickle.dumps(found)).path

    roots.CONNECTED.clear()
    for appended in (60, 61):
        snapshot = mqstore.sync(store, backup).snapshot
        path = find(options)
        assert (path.snapshot, count(path)) == (snapshot, appended)
        # A time behind the newest snapshot is that one, also when there are others.
        now = ReadOptions.parse({"path": str(backup), "at": str(int(time.time() * 1000) + 1)})
        kept = find(now)
        append(store)
        mqstore.sync(store, backup)
        assert (count(str(backup)), count(path)) == (appended + 1, appended)
        with mqstore.open(now.root(kept)) as before:
            assert sum(1 for _ in before.scan()) == appended
    assert len(roots.CONNECTED) == 1


def test_only_files_of_which_a_snapshot_has_each_byte_are_deleted(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    append(root, 300)
    mqstore.sync(root, backup)
    logs = sorted((root / "commitlog").iterdir())
    append(root, 300)
    ways: dict[str, Any] = {"config": {"keep_bytes": 1}, "only_backed_up": backup}

    def going(**more: Any) -> list[str]:
        report = mqstore.clean(root, **ways, **more)
        assert any("`mqstore sync` adds them" in file.reason for file in report.files)
        return [file.path for file in report.files if file.delete and "commitlog" in file.path]

    # The last of them was not full when it was copied.
    closed = [f"commitlog/{path.name}" for path in logs[:-1]]
    assert len(closed) > 2
    assert going() == closed

    third = logs[2]
    good = third.read_bytes()
    third.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert going() == closed[:2]
    third.write_bytes(good)

    objects = [path for path in (backup / "objects").rglob("*") if path.is_file()]
    whole = max(objects, key=lambda path: path.stat().st_size)
    content = whole.read_bytes()
    whole.write_bytes(content[:-1] + b"?")
    with pytest.raises(mqstore.CorruptionError, match=whole.name):
        going(dry_run=False)
    assert third.exists()
    whole.write_bytes(content)

    stays = set((root / "commitlog").iterdir()) - set(logs[:-1])
    assert going(dry_run=False) == closed
    assert set((root / "commitlog").iterdir()) == stays
    with pytest.raises(mqstore.NotAStoreError, match="no backup"):
        mqstore.clean(root, only_backed_up=tmp_path / "none")


READ_ONLY: dict[str, Any] = {**TINY, "read_only_commit_log_store_paths": "slow"}


def with_read_only_files(root: Path) -> list[str]:
    """Moves the first two log files into a read-only folder; their names."""
    append(root, 100)
    (root / "slow").mkdir()
    names = [f"{at:020}" for at in (0, 4096)]
    for name in names:
        (root / "commitlog" / name).rename(root / "slow" / name)
    return names


def test_files_of_read_only_log_folders_are_kept_and_restored(tmp_path: Path) -> None:
    root, backup, restored = (tmp_path / name for name in ("store", "backup", "restored"))
    with_read_only_files(root)
    mqstore.sync(root, backup, config=READ_ONLY)
    mqstore.restore(backup, restored)
    with mqstore.open(root, config=READ_ONLY) as store:
        live = [str(found) for found in store.scan()]
    for place in (backup, restored):
        with mqstore.open(place) as kept:
            assert [str(found) for found in kept.scan()] == live
    ways: dict[str, Any] = {"config": {**READ_ONLY, "keep_bytes": 1}, "only_backed_up": backup}
    going = [file.path for file in mqstore.clean(root, **ways).files if file.delete]
    assert {"slow/" + name for name in (f"{0:020}", f"{4096:020}")} <= {*going}


def test_a_file_of_a_read_only_folder_that_no_snapshot_has_stays(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    names = with_read_only_files(root)
    mqstore.sync(root, backup, config=TINY)
    ways: dict[str, Any] = {"config": {**READ_ONLY, "keep_bytes": 1}, "only_backed_up": backup}
    mqstore.clean(root, dry_run=False, **ways)
    assert sorted(path.name for path in (root / "slow").iterdir()) == names


def test_a_blank_log_folder_is_the_default(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup, config={"store_path_commit_log": ","})
    assert is_kept(store, backup)
    assert mqstore.snapshots(backup)[-1].begin_offset == 0


def test_a_file_that_was_gone_once_is_copied_again_and_stays_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, backup, away = tmp_path / "store", tmp_path / "backup", tmp_path / "away"
    append(root, 100)
    clock = syncing.time.time_ns

    def sync_at(hours: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(syncing.time, "time_ns", lambda: clock() - hours * 3600 * 10**9)
            mqstore.sync(root, backup)

    first = root / f"commitlog/{0:020}"
    sync_at(100)
    first.rename(away)
    append(root)
    sync_at(75)
    away.rename(first)
    ways: dict[str, Any] = {"config": {"keep_bytes": 1}, "only_backed_up": backup}
    assert not any(file.delete for file in mqstore.clean(root, **ways).files)
    append(root)
    sync_at(0)
    age(backup / "objects", 30)
    mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    assert is_kept(root, backup)
    assert mqstore.clean(root, **ways).files[0].delete


def test_nothing_goes_by_a_snapshot_that_its_sync_withdraws(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    snapshot = mqstore.sync(store, backup).snapshot
    ranges_of = upkeep.ranges_of

    def withdrawn(*given: Any) -> Any:
        (backup / document_name(snapshot)).unlink(missing_ok=True)
        return ranges_of(*given)

    ways: dict[str, Any] = {"config": {"keep_bytes": 1}, "only_backed_up": backup}
    assert mqstore.clean(store, **ways).files[0].delete
    monkeypatch.setattr(upkeep, "ranges_of", withdrawn)
    assert not any(file.delete for file in mqstore.clean(store, **ways).files)


def test_a_new_timeline_is_accepted_once(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, given = mqstore.sync, []

    def sync(*places: Any, new_timeline: bool, **ways: Any) -> object:
        given.append(new_timeline)
        if len(given) == 3:
            raise Killed
        return real(*places, new_timeline=new_timeline, **ways)

    monkeypatch.setattr(mqstore, "sync", sync)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(Killed):
        main(["sync", str(store), str(tmp_path / "b"), "--every", "1s", "--new-timeline"])
    assert given == [True, False, False]
