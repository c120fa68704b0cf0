"""Backups against a model of a broker, hostile objects, and an S3 server."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import KEYS, answers, files_of
from helpers.golden import Case
from helpers.stores import TINY, log_bytes, message
from mqstore.backup import restoring, syncing
from mqstore.backup.target import _Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


KILLS = int(os.environ.get("MQSTORE_BACKUP_KILLS", "30"))


class Killed(BaseException):
    """The process ends here."""


def broken(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Ends a sync or a prune at one of its next writes, which may come to pass nevertheless."""
    left = chance.randrange(1, 5)
    put, remove = _Folder._put, _Folder.remove

    def dying(self: Any, name: str, content: bytes) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            if chance.random() < 0.5:
                put(self, name, content)
            raise Killed
        return put(self, name, content)

    def removing(self: Any, names: Sequence[str]) -> None:
        nonlocal left
        for name in names:
            left -= 1
            if left == 0:
                raise Killed
            remove(self, [name])

    monkeypatch.setattr(_Folder, "_put", dying)
    monkeypatch.setattr(_Folder, "remove", removing)


class Broker:
    """A broker with a model of its log: appends, rolls, deletes, crashes and loses its tail."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.log: dict[int, bytes] = {}
        self.offsets: dict[int, int] = {}

    def append(self) -> None:
        with contextlib.suppress(mqstore.NotAStoreError):
            mqstore.recover(self.root, dry_run=False, drop_beyond=True, config=TINY)
        with mqstore.open(self.root, "a", config=TINY) as store:
            for _ in range(self.chance.randrange(1, 40)):
                number = self.chance.randrange(10_000)
                store.append_many(
                    [
                        message(
                            self.chance.choice("TU"),
                            body=self.chance.randbytes(self.chance.randrange(300)),
                            keys=f"k{number % KEYS}",
                            queue_id=number % 2,
                            store_timestamp_ms=self.now(),
                        )
                    ]
                )
            with store.group("g") as group:
                group.poll("T", max_messages=self.chance.randrange(1, 9))
                group.commit()

    def now(self) -> int:
        return int(datetime.now(UTC).timestamp() * 1000)

    def crash(self) -> None:
        (self.root / "abort").write_bytes(b"1")
        (self.root / "mqstore.seal").unlink(missing_ok=True)

    def lose_tail(self) -> None:
        """The end of the log was never flushed."""
        with mqstore.open(self.root) as store:
            offsets = [found.physical_offset for found in store.scan()]
            end = store.max_physical_offset
        if len(offsets) < 12:
            return
        cut = self.chance.choice(offsets[-8:])
        for path in sorted((self.root / "commitlog").iterdir()):
            at = int(path.name)
            if at + path.stat().st_size > cut:
                with path.open("r+b") as file:
                    file.seek(max(0, cut - at))
                    file.write(bytes(path.stat().st_size - max(0, cut - at)))
            if at >= end or at > cut:
                path.unlink()
        (self.root / "mqstore.mark").unlink(missing_ok=True)
        (self.root / "checkpoint").unlink(missing_ok=True)
        self.crash()

    def delete(self) -> None:
        """Retention deletes the oldest files."""
        if len(list((self.root / "commitlog").iterdir())) > 3:
            config = {**TINY, "keep_bytes": 9000}
            with contextlib.suppress(mqstore.CorruptionError):  # its end is lost
                mqstore.clean(self.root, dry_run=False, config=config)


def log_from(root: Path, begin: int, end: int) -> bytes:
    """The bytes of a log from one physical offset to before another."""
    first = min(int(path.name) for path in (root / "commitlog").iterdir())
    return log_bytes(root)[begin - first : end - first]


def same_from(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """A backup has all that the store has, and maybe what was deleted before."""
    assert whole["end"] == part["end"]
    assert whole["log"][len(whole["log"]) - len(part["log"]) :] == part["log"]
    assert whole["groups"] == part["groups"]
    for name, value in part.items():
        if name[0] == "read":
            assert whole[name][0][len(whole[name][0]) - len(value[0]) :] == value[0]
            assert whole[name][1] == value[1]
        elif name[0] == "key":
            assert whole[name][0][: len(value[0])] == value[0]
            assert whole[name][1]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of several files."""
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as made:
        for number in range(150):
            made.append(
                "T", b"body %d" % number, keys=f"k{number}", queue_id=number % 2, tags="paid"
            )
        with made.group("g") as group:
            group.poll("T", max_messages=7)
            group.commit()
    return root


def test_every_snapshot_is_the_store_of_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """Syncs and prunes that are killed at random, beside a broker that loses its tail."""
    seed = int(os.environ.get("MQSTORE_SEED", "7"))
    record_property("seed", seed)
    chance = random.Random(seed)
    broker = Broker(tmp_path / "store", chance)
    backup = tmp_path / "backup"
    broker.append()
    moments: dict[str, tuple[dict[str, Any], int, bytes]] = {}
    monkeypatch.setattr("mqstore.backup.upkeep._LEAST_AGE_S", -1)
    kills = restores = 0

    def until_killed(call: Callable[[], object]) -> None:
        nonlocal kills
        with monkeypatch.context() as patch:
            broken(patch, chance)
            try:
                call()
            except Killed:
                kills += 1

    while kills < KILLS:
        chance.choice(
            [broker.append, broker.append, broker.crash, broker.lose_tail, broker.delete]
        )()
        until_killed(lambda: mqstore.sync(broker.root, backup))
        if chance.random() < 0.2:
            keep = timedelta(seconds=chance.random() * 20)
            prune = partial(mqstore.prune, backup, keep=keep, keep_hourly=1, dry_run=False)
            until_killed(prune) if chance.random() < 0.5 else prune()
        with mqstore.open(broker.root) as live:
            expected = answers(live)
        report = mqstore.sync(broker.root, backup)
        begin = min(int(path.name) for path in (broker.root / "commitlog").iterdir())
        log = log_from(broker.root, begin, report.end_offset)
        moments[report.snapshot] = expected, begin, log
        with mqstore.open(backup, snapshot=report.snapshot) as kept:
            same_from(answers(kept), expected)
        if restores * 5 <= kills:
            restores += 1
            known = [one.id for one in mqstore.snapshots(backup) if one.id in moments]
            restore(backup, tmp_path / f"restored-{restores}", moments, chance.choice(known))
    assert mqstore.check_backup(backup).ok
    record_property("restores", restores)


def restore(
    backup: Path, out: Path, moments: dict[str, tuple[dict[str, Any], int, bytes]], name: str
) -> None:
    """Restores a snapshot, which equals the store of its moment."""
    expected, begin, log = moments[name]
    report = mqstore.restore(backup, out, snapshot=name)
    assert report.end_offset == expected["end"]
    assert log_from(out, begin, report.end_offset) == log
    with mqstore.open(out) as restored:
        same_from(answers(restored), expected)
    shutil.rmtree(out)


def test_a_time_ends_the_log_before_the_first_later_record(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    began = int(datetime.now(UTC).timestamp() * 1000)
    ends: list[int] = []
    with mqstore.open(root, "a", config=TINY) as store:
        for number in range(60):
            # A second apart, before now.
            time_ms = began - 100_000 + 1000 * number
            fields = {"keys": f"k{number}", "queue_id": number % 2, "store_timestamp_ms": time_ms}
            store.append_many([message("T", body=b"x" * 30, **fields)])
            ends.append(store.max_physical_offset)
        with store.group("g") as group:
            group.poll("T", max_messages=40)
            group.commit()
    mqstore.sync(root, backup)
    with mqstore.open(root) as store:
        begins = [found.physical_offset for found in store.scan()]
    # A blank at a file's end belongs to the record before it.
    cuts = [*begins[1:], ends[-1]]
    for number in (0, 7, 30, 58, 59):
        at_ms = began - 100_000 + 1000 * number
        with mqstore.open(backup, at=datetime.fromtimestamp(at_ms / 1000, UTC)) as kept:
            assert kept.max_physical_offset == cuts[number]
            assert sum(1 for _ in kept.scan()) == number + 1
            for queue in kept.queues():
                assert queue.max_offset == (number + 2 - queue.queue_id) // 2
                for place in kept.groups()["g"]:
                    assert place.queue_offset <= place.max_offset
            assert [len(kept.query("T", f"k{n}")) for n in (number, number + 1)] == [1, 0]
            assert kept.scan_arrow().read_all().num_rows == number + 1
        out = tmp_path / f"out-{number}"
        report = mqstore.restore(backup, out, at=at_ms)
        assert report.end_offset == cuts[number]
        assert {finding.code for finding in report.findings} <= {"MQ-CFG-04", "MQ-CFG-05"}
        assert log_from(out, 0, cuts[number]) == log_from(root, 0, cuts[number])
        assert not log_bytes(out)[cuts[number] :].strip(b"\0")
    report = mqstore.restore(backup, tmp_path / "to", to_offset=ends[20] + 5)
    assert report.end_offset == ends[20]
    for wrong in (-1, ends[-1] + 1):
        with pytest.raises(mqstore.OffsetOutOfRangeError, match=f" to {ends[-1]}, got {wrong};"):
            mqstore.restore(backup, tmp_path / "beyond", to_offset=wrong)
    with mqstore.open(backup, at=began + 10**9) as kept:
        assert kept.max_physical_offset == ends[-1]


GOLDEN = (
    "broker",
    "indexroll-55",
    "batch",
    "lmq",
    "cqext",
    "abort-half",
    "abort-crc",
    "rocksdb-55",
)


@pytest.mark.parametrize("name", GOLDEN)
def test_stores_that_rocketmq_wrote_are_kept_and_restored(tmp_path: Path, name: str) -> None:
    case = Case(name)
    root, backup, out = case.unpack(tmp_path), tmp_path / "backup", tmp_path / "out"
    mqstore.sync(root, backup, config=case.settings)

    def rows(store: mqstore.Store) -> tuple[list[str], list[str], str]:
        items = store.scan(on_error="report")
        messages = [str(item).replace(store.path, "") for item in items]
        return messages, [str(queue) for queue in store.queues()], str(store.groups())

    with case.open(root) as live, mqstore.open(backup) as kept:
        expected = rows(live)
        assert rows(kept) == expected
    report = mqstore.restore(backup, out)
    wrong = {finding.code for finding in report.findings if finding.severity == "error"}
    assert wrong == ({"MQ-LOG-02"} if name == "abort-crc" else set())
    with case.open(out) as restored:
        assert rows(restored) == expected


def test_a_log_that_was_cut_begins_a_new_timeline(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    first = mqstore.sync(store, backup)
    before = log_bytes(store)
    broker = Broker(store, random.Random(1))
    broker.lose_tail()
    read: list[str] = []
    get = _Folder.get
    monkeypatch.setattr(_Folder, "get", lambda self, names: read.extend(names) or get(self, names))
    shorter = mqstore.sync(store, backup)
    # Only of the file that was cut: one whose end is the same proves all before it.
    assert sum(name.startswith("objects/") for name in read) < 8
    assert shorter.end_offset < first.end_offset
    assert shorter.timeline != first.timeline
    while shorter.end_offset < first.end_offset:
        broker.append()
        shorter = mqstore.sync(store, backup)
    old, *_, new = mqstore.snapshots(backup)
    assert (old.end_offset, new.end_offset) == (first.end_offset, shorter.end_offset)
    mqstore.restore(backup, tmp_path / "old", snapshot=old.id)
    assert log_from(tmp_path / "old", 0, old.end_offset) == before[: old.end_offset]
    with mqstore.open(backup, at=old.time) as kept:
        assert kept.max_physical_offset == old.end_offset
    assert mqstore.check_backup(backup).ok


def test_a_sync_copies_each_byte_once(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"
    first = mqstore.sync(store, backup, verify=True)
    again = mqstore.sync(store, backup)
    assert (again.is_new, again.snapshot, again.new_bytes) == (False, first.snapshot, 0)
    with mqstore.open(store, "a", config=TINY) as opened:
        opened.append("T", b"one more")
    small = mqstore.sync(store, backup)
    grown = small.end_offset - first.end_offset
    # The mark, the checkpoint and the settings are kept as a whole.
    assert grown < small.new_bytes < grown + 20 + 2 * 8192
    objects = [path for path in (backup / "objects").rglob("*") if path.is_file()]
    kept = [path for path in objects if path.stat().st_size not in (4096, 8192)]
    with mqstore.open(store) as opened:
        log = opened.max_physical_offset
        queues = 20 * sum(queue.max_offset for queue in opened.queues())
    assert sum(path.stat().st_size for path in kept) < 1.1 * (log + queues + 20 * 160) + 20_000


def test_a_restore_that_was_interrupted_goes_on(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, out = tmp_path / "backup", tmp_path / "out"
    mqstore.sync(store, backup)
    calls = 0

    def stop(_: int, __: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_note", fail)
        with pytest.raises(KeyboardInterrupt):
            mqstore.restore(backup, out)
    with pytest.raises(KeyboardInterrupt):
        mqstore.restore(backup, out, progress=stop)
    written = len(list((out / "commitlog").iterdir()))
    with pytest.raises(mqstore.ConfigError, match="empty folder"):
        mqstore.restore(backup, out, to_offset=1000)
    assert mqstore.restore(backup, out, dry_run=True).applied is False
    assert len(list((out / "commitlog").iterdir())) == written
    with monkeypatch.context() as patch:
        patch.setattr(mqstore, "verify", fail)
        with pytest.raises(KeyboardInterrupt):
            mqstore.restore(backup, out)
    assert mqstore.restore(backup, out).findings == ()
    assert log_bytes(out) == log_bytes(store)
    with pytest.raises(mqstore.ConfigError, match="empty folder"):
        mqstore.restore(backup, out)
    with mqstore.open(out, "a", config=TINY) as opened:
        assert opened.append("T", b"goes on").queue_offset == 75


def test_what_is_no_backup_is_refused(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"
    with pytest.raises(mqstore.NotAStoreError, match="no backup"):
        mqstore.snapshots(backup)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.sync(tmp_path / "missing", backup)
    assert not backup.exists()
    with pytest.raises(mqstore.ConfigError, match="expected an empty folder"):
        mqstore.sync(store, tmp_path)
    with pytest.raises(mqstore.UnsupportedError, match="only if they are missing"):
        mqstore.sync(store, "memory://backup")
    with pytest.raises(ValueError, match="expected a folder"):
        mqstore.sync("s3://bucket/store", backup)
    mqstore.sync(store, backup)
    other = tmp_path / "other"
    with mqstore.open(other, "a", config=TINY) as opened:
        for number in range(99):
            opened.append("T", b"other %d" % number)
    with pytest.raises(mqstore.ConfigError, match="another store"):
        mqstore.sync(other, backup)
    with pytest.raises(mqstore.MessageNotFoundError, match="the newest"):
        mqstore.open(backup, snapshot="x")
    for call in (partial(mqstore.open, mode="r+"), mqstore.recover, mqstore.rebuild, mqstore.clean):
        with pytest.raises(mqstore.StoreReadOnlyError, match="make a store of it"):
            call(backup)
    with pytest.raises(mqstore.ConfigError, match=r"got the backup .*nothing was copied"):
        mqstore.sync(backup, tmp_path / "second")
    (tmp_path / "link").symlink_to(store)
    with pytest.raises(mqstore.ConfigError, match=r"^target: .*outside of the store"):
        mqstore.sync(store, tmp_path / "link" / "backup")
    with pytest.raises(mqstore.ConfigError, match=r"^path: .*outside of the backup"):
        mqstore.restore(backup, backup / "new")
    assert not (tmp_path / "second").exists()
    (backup / "mqstore-backup.json").write_text('{"format": "mqstore-backup", "version": 3}')
    for call in (mqstore.snapshots, mqstore.open, mqstore.check_backup):
        with pytest.raises(mqstore.UnsupportedError, match="pip install --upgrade"):
            call(backup)
    with pytest.raises(mqstore.UnsupportedError, match="pip install --upgrade"):
        mqstore.sync(store, backup)


def test_a_moment_that_is_none_is_refused(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    now_s = int(datetime.now(UTC).timestamp())
    for wrong in (now_s, datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(ValueError, match=r"^at: expected "):
            mqstore.open(backup, at=wrong)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.open(store, at=0)
    with pytest.raises(mqstore.MessageNotFoundError, match="its first snapshot is 2"):
        mqstore.open(backup, at=0)
    with pytest.raises(ValueError, match="expected none beside storage"):
        mqstore.open(backup, at=now_s * 1000, storage=object())
    command = [sys.executable, "-m", "mqstore", "sql", store, "--at", "-1h", "select 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "expected a backup" in done.stderr) == (2, True)


def test_tables_read_a_backup(tmp_path: Path, store: Path) -> None:
    import mqstore.polars

    backup = tmp_path / "backup"
    first = mqstore.sync(store, backup).snapshot
    with mqstore.open(store, "a", config=TINY) as opened:
        opened.append("T", b"later")
    mqstore.sync(store, backup)
    for options, count in (({"snapshot": first}, 150), (None, 151)):
        frame = mqstore.polars.scan(str(backup), storage_options=options)
        assert frame.collect().height == count
        assert (
            sum(row["messages"] for row in mqstore.stats(backup, storage_options=options)) == count
        )
        assert mqstore.verify(backup, storage_options=options).ok
        counted = mqstore.sql(backup, "select count(*) from messages", storage_options=options)
        assert counted.fetchall() == [(count,)]


def test_prune_leaves_what_is_needed(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    for number in range(4):
        with mqstore.open(store, "a", config=TINY) as opened:
            opened.append("T", b"%d" % number)
        mqstore.sync(store, backup)
    everything = files_of(backup)
    report = mqstore.prune(backup, keep=timedelta(0), keep_hourly=0)
    assert (len(report.kept), len(report.removed), report.objects) == (1, 3, 0)
    assert files_of(backup) == everything
    assert len(mqstore.prune(backup, keep=timedelta(days=1)).removed) == 0
    monkeypatch.setattr("mqstore.backup.upkeep._LEAST_AGE_S", -1)
    report = mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    assert report.objects > 0
    assert len(files_of(backup)) == len(everything) - 3 - report.objects
    assert mqstore.check_backup(backup).ok
    mqstore.restore(backup, tmp_path / "out")
    assert log_bytes(tmp_path / "out") == log_bytes(store)


def test_a_sync_that_lost_its_base_to_prune_begins_again(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    first = mqstore.sync(store, backup).snapshot
    with mqstore.open(store, "a", config=TINY) as opened:
        opened.append("T", b"later")
    write = syncing.write

    def late(*given: Any) -> str:
        monkeypatch.setattr(syncing, "write", write)
        mqstore.sync(store, backup)
        monkeypatch.setattr("mqstore.backup.upkeep._LEAST_AGE_S", -1)
        assert first in mqstore.prune(backup, keep=timedelta(0), dry_run=False).removed
        return write(*given)

    monkeypatch.setattr(syncing, "write", late)
    mqstore.sync(store, backup)
    assert mqstore.check_backup(backup).ok
    with mqstore.open(backup) as kept:
        assert sum(1 for _ in kept.scan()) == 151


def test_the_command_keeps_and_restores(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"

    def run(*given: object) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "mqstore", *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("sync", store, backup, "--bytes", "50m/s")[0] == 0
    snapshot = json.loads(run("snapshots", backup, "--json")[1])[0]["id"]
    assert run("snapshots", backup, "--check")[0] == 0
    assert "150" in run("topics", backup, "--snapshot", snapshot)[1]
    assert run("groups", backup, "--at", "-0s")[0] == 0
    assert "nothing was written" in run("restore", backup, tmp_path / "out", "--dry-run")[1]
    assert run("restore", backup, tmp_path / "out")[0] == 0
    code, _, text = run("restore", backup, tmp_path / "out")
    assert (code, "empty folder" in text) == (2, True)
    code, _, text = run("topics", store, "--at", "-1h")
    assert (code, "expected a backup" in text) == (2, True)
    assert "nothing was changed" in run("prune", backup, "--keep", "7d")[1]
    next((backup / "objects").rglob("*/*")).write_bytes(b"x")
    code, text, _ = run("snapshots", backup, "--check", "--json")
    assert (code, json.loads(text)["findings"][0]["code"]) == (1, "MQ-BK-01")
