"""Moments of a backup beside wrong clocks, forks, failing listings and interrupted work."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import age, append, bodies, cut_behind
from helpers.stores import TINY
from mqstore.backup import restoring, syncing
from mqstore.backup.snapshot import document_name
from mqstore.metrics import StoreCollector

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86_400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def now_ms() -> int:
    """A time between what was stored before and what will be."""
    time.sleep(0.005)
    at_ms = time.time_ns() // 1_000_000
    time.sleep(0.005)
    return at_ms


def sync_at(root: Path, backup: Path, after_s: float, patch: pytest.MonkeyPatch) -> str:
    clock = time.time_ns
    with patch.context() as patched:
        patched.setattr(syncing.time, "time_ns", lambda: clock() + int(after_s * 10**9))
        return mqstore.sync(root, backup).snapshot


def test_a_listing_that_fails_is_an_error_and_deletes_nothing(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 60)
    mqstore.sync(root, backup)
    age(backup, 48)
    scandir = os.scandir

    def failing(path: Any = ".") -> Any:
        if "snapshots/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        for act in (
            lambda: mqstore.prune(backup, keep=timedelta(0), dry_run=False),
            lambda: mqstore.sync(root, backup),
            lambda: mqstore.snapshots(backup),
        ):
            with pytest.raises(mqstore.StoreIOError, match="Permission denied"):
                act()
    assert mqstore.check_backup(backup).ok
    assert bodies(backup) == bodies(root)


def test_a_day_on_another_disk_counts_and_no_day_at_all_prunes_nothing(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    append(root, 60)
    snapshot = mqstore.sync(root, backup).snapshot
    age(backup, 48)
    day = (backup / document_name(snapshot)).parent
    day.rename(tmp_path / "day")
    with pytest.raises(mqstore.MessageNotFoundError, match="nothing was deleted"):
        mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    day.parent.mkdir(exist_ok=True)
    day.symlink_to(tmp_path / "day")
    assert mqstore.prune(backup, keep=timedelta(0), dry_run=False).kept == (snapshot,)
    assert bodies(backup) == bodies(root)


def test_a_clock_that_was_ahead_once_deletes_and_hides_nothing(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 60)
    mqstore.sync(root, backup)
    mqstore.clean(root, dry_run=False, config={**TINY, "keep_bytes": 1})
    append(root, body="wrong clock")
    sync_at(root, backup, 400 * DAY_S, monkeypatch)
    for body in ("then", "last"):
        append(root, body=body)
        mqstore.sync(root, backup)
    assert len(bodies(backup)) == 63
    assert bodies(backup, at=now_ms())[-1] == b"last 0"
    age(backup / "objects", 48)
    report = mqstore.prune(backup, keep=timedelta(days=7), dry_run=False)
    assert (len(report.kept), report.removed) == (4, ())
    mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    assert len(bodies(backup)) == 63
    append(root)
    mqstore.sync(root, backup)
    assert len(bodies(backup)) == 64
    metrics = {m.name: m.samples for m in StoreCollector(root, backup=backup).collect()}
    assert metrics["mqstore_backup_age_seconds"][0].value == math.inf


def test_a_restore_before_the_end_of_an_ended_timeline_takes_appends(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    append(root, 40, body="A")
    with mqstore.open(root, "a", config=TINY) as store, store.group("g") as group:
        group.poll("T", max_messages=35)
        group.commit()
    mqstore.sync(root, backup)
    cut_behind(root, 10)
    append(root, 5, body="B", topic="U")
    at_ms = now_ms()
    append(root, 60, body="C", topic="U")
    mqstore.sync(root, backup)
    new = tmp_path / "new"
    assert mqstore.restore(backup, new, at=at_ms).findings == ()
    append(new, 3)
    assert [body[:1] for body in bodies(new)] == [b"A"] * 10 + [b"B"] * 5 + [b"b"] * 3
    with mqstore.open(backup, at=at_ms) as store:
        offset = store.groups()["g"][0]
        assert (offset.queue_offset, offset.max_offset) == (10, 10)


def test_a_moment_is_found_where_a_timeline_between_was_pruned(root: Path, backup: Path) -> None:
    append(root, 40, body="A")
    mqstore.sync(root, backup)
    cut_behind(root, 10)
    append(root, 20, body="B early")
    at_ms = now_ms()
    append(root, 60, body="B late")
    between = mqstore.sync(root, backup).snapshot
    cut_behind(root, 60)
    append(root, 5, body="C")
    mqstore.sync(root, backup)
    wanted = bodies(backup, at=at_ms)
    assert [body[:1] for body in wanted] == [b"A"] * 10 + [b"B"] * 20
    (backup / document_name(between)).unlink()
    assert bodies(backup, at=at_ms) == wanted


def test_offsets_of_light_queues_lead_no_further_than_the_log(root: Path, backup: Path) -> None:
    append(root, 10)
    table = {"lmqOffsetTable": {"T@%LMQ%g": 25}, "offsetTable": {"T@h": {"0": 25}}}
    (root / "config/lmqConsumerOffset.json").write_text(json.dumps(table))
    mqstore.sync(root, backup)
    new = backup.with_name("new")
    mqstore.restore(backup, new)
    kept = json.loads((new / "config/lmqConsumerOffset.json").read_text())
    assert kept == {"lmqOffsetTable": {"T@%LMQ%g": 10}, "offsetTable": {"T@h": {"0": 10}}}


def killed_while(act: Any) -> None:
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_first_sync_and_a_restore_go_on_after_a_kill(
    root: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 60)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", kill_self)
        killed_while(lambda: mqstore.sync(root, backup))
    assert any(path.name.startswith(".") for path in backup.rglob("*"))
    mqstore.sync(root, backup)
    new = tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "PIECE", 1 << 20)
        killed_while(lambda: mqstore.restore(backup, new, progress=kill_self))
    assert len(list(new.iterdir())) > 1
    mqstore.restore(backup, new)
    assert bodies(new) == bodies(root)


def test_a_temporary_file_of_a_killed_sync_keeps_no_day(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 60)
    first = sync_at(root, backup, -3 * DAY_S, monkeypatch)
    left = backup / document_name(first)
    left.with_name(f".{left.name}.ab12").write_bytes(b"")
    mqstore.clean(root, dry_run=False, config={**TINY, "keep_bytes": 1})
    append(root)
    sync_at(root, backup, -2 * DAY_S, monkeypatch)
    append(root)
    last = mqstore.sync(root, backup).snapshot
    age(backup, 80)
    mqstore.prune(backup, keep=timedelta(hours=1), dry_run=False)
    assert bodies(backup, snapshot=last) == bodies(backup)
    assert not left.parent.exists()


def test_a_restore_goes_on_with_the_same_configuration_only(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    def commit(count: int) -> None:
        with mqstore.open(root, "a", config=TINY) as store, store.group("g") as group:
            group.poll("T", max_messages=count)
            group.commit()

    append(root, 30)
    commit(3)
    mqstore.sync(root, backup)
    append(root, 20)
    at_ms = now_ms()
    commit(9)
    last = mqstore.sync(root, backup).snapshot

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    new = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        mqstore.restore(backup, new, at=at_ms, progress=stop)
    with pytest.raises(mqstore.ConfigError, match="nothing was written"):
        mqstore.restore(backup, new, snapshot=last)
    mqstore.restore(backup, new, at=at_ms)
    with mqstore.open(new) as store:
        assert store.groups()["g"][0].queue_offset == 3


def test_an_offset_in_a_file_that_the_store_has_deleted_is_reached(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    append(root, 100)
    first = mqstore.sync(root, backup).snapshot
    mqstore.clean(root, dry_run=False, config={**TINY, "keep_bytes": 1})
    append(root)
    mqstore.sync(root, backup)
    (backup / document_name(first)).unlink()
    assert mqstore.snapshots(backup)[-1].begin_offset > 2000
    mqstore.restore(backup, tmp_path / "new", to_offset=2000)
    assert 10 < len(bodies(tmp_path / "new")) < 25


def test_a_store_without_messages_is_kept(root: Path, backup: Path, tmp_path: Path) -> None:
    mqstore.open(root, "a", config=TINY).close()
    mqstore.sync(root, backup)
    assert mqstore.verify(backup).ok
    out = tmp_path / "out"
    mqstore.restore(backup, out)
    append(out, 1)
    append(root, 1)
    mqstore.sync(root, backup)
    assert bodies(out) == bodies(backup) == [b"body 0"]


def test_a_file_of_a_queue_that_began_later_is_not_there_before(root: Path, backup: Path) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        # They fill the first file of the queue.
        store.append_many(("T", b"%d" % number) for number in range(10))
        at = now_ms()
        store.append_many([("T", b"later"), ("U", b"later")])
    mqstore.sync(root, backup)
    found = mqstore.verify(backup, storage_options={"at": at}).findings
    assert {finding.code for finding in found} == {"MQ-CK-03"}
    with mqstore.open(backup, at=at) as store:
        assert [(queue.topic, queue.max_offset) for queue in store.queues()] == [("T", 10)]


def test_messages_without_keys_are_dispatched(root: Path, backup: Path) -> None:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append("T", b"", queue_id=0, keys="k")
        store.append_many(("U", b"") for _ in range(50))
    end = mqstore.sync(root, backup).end_offset
    for path in (root, backup, root.as_uri()):
        with mqstore.open(path) as store:
            assert store.dispatched_offset == end
