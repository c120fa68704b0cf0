"""Backups with compressed objects, and restored stores of single topics."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mqstore
from helpers.backups import answers, append, bodies, files_of
from helpers.stores import TINY, log_bytes, message
from mqstore.backup import target as objects

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of several files, two topics and two groups."""
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as store:
        for n in range(120):
            store.append("TU"[n % 2], b"body %d " % n * 9, keys=f"k{n}", queue_id=n % 4 // 2)
        for topic in "TU":
            with store.group(f"g{topic}") as group:
                group.poll(topic, max_messages=7)
                group.commit()
    return root


def test_compressed_objects_are_those_of_a_plain_backup(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, backup, out = tmp_path / "plain", tmp_path / "backup", tmp_path / "out"
    first = mqstore.sync(root, plain)
    packed = mqstore.sync(root, backup, compress="zstd", verify=True)
    assert packed.new_bytes == first.new_bytes
    assert packed.written_bytes < first.written_bytes / 2
    names = [{p.name for p in files_of(one / "objects")} for one in (plain, backup)]
    assert names[0] == names[1]
    begun = plain / objects.FORMAT
    assert begun.read_bytes() == b'{"format":"mqstore-backup","version":1}'
    # A plain backup goes on compressed, and a compressed one plain; each object is written once.
    for compress in ("zstd", None):
        append(root, 20)
        for one in (plain, backup):
            mqstore.sync(root, one, compress=compress)
            assert mqstore.check_backup(one).ok
    with mqstore.open(root) as live, mqstore.open(plain) as a, mqstore.open(backup) as b:
        assert answers(live) == answers(a) == answers(b)
    lost = max(files_of(backup / "objects"), key=lambda path: path.stat().st_size)
    lost.unlink()
    assert mqstore.sync(root, backup, compress="zstd", verify=True).written_bytes > 0
    monkeypatch.setattr("mqstore.backup.upkeep._LEAST_AGE_S", -1)
    mqstore.prune(backup, keep=timedelta(0), dry_run=False)
    assert mqstore.check_backup(backup).ok
    assert mqstore.restore(backup, out).findings == ()
    assert log_bytes(out) == log_bytes(root)
    # As a version that reads no compressed objects.
    monkeypatch.setattr(objects, "_NEWEST", 1)
    for one in (plain, backup):
        with pytest.raises(mqstore.UnsupportedError, match=r"has format 2.*pip install --upgrade"):
            mqstore.snapshots(one)
    with pytest.raises(mqstore.ConfigError, match=r"^compress: expected zstd, got 'gzip'"):
        mqstore.sync(root, backup, compress="gzip")  # type: ignore[arg-type]


def test_compressed_objects_that_lie_are_found_in_little_memory(tmp_path: Path, root: Path) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(root, backup, compress="zstd")
    path = max(files_of(backup / "objects"), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    assert whole.startswith(objects._ZSTD)
    bomb = pa.compress(bytes(1 << 29), "zstd", asbytes=True)
    for wrong in (whole[:-3], whole + whole, whole[:9] + b"\xff" + whole[10:], whole[:4], bomb):
        path.write_bytes(wrong)
        [finding] = mqstore.check_backup(backup).findings
        assert (finding.code, finding.path) == ("MQ-BK-01", str(path.relative_to(backup)))
        with pytest.raises(mqstore.CorruptionError, match=path.name):
            bodies(backup)

    def run(code: str) -> str:
        command = [
            sys.executable,
            "-c",
            f"import sys, mqstore; target = sys.argv[1]; {code}",
            backup,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    # `ru_maxrss` would begin with what the tests use.
    peak = run("mqstore.check_backup(target); print(open('/proc/self/status').read())")
    (kib,) = re.findall(r"VmHWM:\s*([0-9]+) kB", peak)
    assert int(kib) < 300 << 10
    path.write_bytes(whole)
    text = run("sys.modules['pyarrow'] = None; list(mqstore.open(target).scan())")
    assert "a compressed backup needs pyarrow, which is not installed" in text


def test_a_backup_has_its_log_in_its_own_folder(tmp_path: Path) -> None:
    root, backup, settings = tmp_path / "store", tmp_path / "backup", dict(TINY)
    settings["store_path_commit_log"] = str(tmp_path / "log")
    with mqstore.open(root, "a", config=settings) as store:
        store.append("T", b"one")
    mqstore.sync(root, backup, config=settings)
    assert bodies(backup) == [b"one"]
    with pytest.raises(mqstore.NotAStoreError, match=r"storePathCommitLog names.*leave the set"):
        mqstore.open(backup, config=settings)


def test_single_topics_are_restored(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, out = tmp_path / "backup", tmp_path / "out"
    snapshot = mqstore.sync(root, backup).snapshot
    with mqstore.open(root) as live:
        expected = [(m.queue_id, m.queue_offset, m.body) for m in live.scan(topics=["T"])]
        places = live.groups()["gT"]
        end = live.max_physical_offset
    append(root, 5)
    mqstore.sync(root, backup)
    moment = {"topics": ["T"], "snapshot": snapshot}
    plan = mqstore.restore(backup, out, dry_run=True, **moment)
    assert (plan.applied, plan.topics, plan.messages, plan.end_offset) == (False, ("T",), 60, end)
    assert not out.exists()
    for wrong in (["T", "missing"], []):
        with pytest.raises(mqstore.MessageNotFoundError, match=r"^topics: .*nothing was written"):
            mqstore.restore(backup, out, topics=wrong, dry_run=True)
    with pytest.raises(mqstore.ConfigError, match=r"^path: expected an empty folder, got /proc"):
        mqstore.restore(backup, "/proc", **moment)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # Interrupted as it copies, it leaves an empty folder; as it verifies, it goes on there.
    for name in ("progress", "verify"):
        progress = fail if name == "progress" else None
        with monkeypatch.context() as patch:
            patch.setattr(mqstore, "verify", fail)
            with pytest.raises(KeyboardInterrupt):
                mqstore.restore(backup, out, progress=progress, **moment)
        assert any(out.iterdir()) == (name == "verify")
    with pytest.raises(mqstore.ConfigError, match="empty folder"):
        mqstore.restore(backup, out, topics=["U"], snapshot=snapshot)
    with monkeypatch.context() as patch:
        patch.setattr(mqstore, "copy", fail)
        report = mqstore.restore(backup, out, **moment)
    assert (report.applied, report.findings, report.messages) == (True, (), 60)
    assert out.stat().st_mode & 0o777 == 0o700
    with pytest.raises(mqstore.ConfigError, match="empty folder"):
        mqstore.restore(backup, out, **moment)
    with mqstore.open(out, "a", config=TINY) as store:
        assert [(m.queue_id, m.queue_offset, m.body) for m in store.scan()] == expected
        assert store.topics() == ["T"]
        assert store.groups()["gT"] == places
        assert [place.queue_offset for place in store.groups()["gU"]] == [0]
        assert store.append_many([message("T", queue_id=0)])[0].queue_offset == 30


@pytest.mark.parametrize(
    "killed",
    [
        "progress = lambda *_: os._exit(9)",
        "Path.rename = lambda *at: os._exit(9) if rename(*at).name == 'config' else None",
        "restoring.sync = lambda *_: os._exit(9)",
        "restoring._note = lambda *at: os._exit(9) if at[1] == 'commitlog' else note(*at)",
        "Path.rmdir = lambda *_: os._exit(9)",
        "mqstore.verify = lambda *_, **__: os._exit(9)",
    ],
)
def test_a_killed_restore_of_topics_goes_on_and_leaves_nothing(
    tmp_path: Path, root: Path, killed: str
) -> None:
    backup, out = tmp_path / "backup", tmp_path / "above/out"
    mqstore.sync(root, backup)
    child = f"""
import os, sys
from pathlib import Path
import mqstore
from mqstore.backup import restoring
progress, note, rename = None, restoring._note, Path.rename
{killed}
mqstore.restore(sys.argv[1], sys.argv[2], topics=["T"], progress=progress)
"""
    command = [sys.executable, "-c", child, backup, out]
    assert subprocess.run(command, check=False).returncode == 9
    with pytest.raises(mqstore.ConfigError, match="empty folder"):
        mqstore.restore(backup, out, topics=["U"])
    assert mqstore.restore(backup, out, topics="T").findings == ()
    assert not [*out.glob("*mqstore.copying*"), *out.glob("*.restoring")]
    assert [*out.parent.iterdir()] == [out]
    assert len(bodies(out)) == 60


@pytest.mark.parametrize("topics", [None, ["T"]])
def test_a_restore_beside_another_one_is_refused(
    tmp_path: Path, root: Path, topics: list[str] | None
) -> None:
    backup, out = tmp_path / "backup", tmp_path / "out"
    mqstore.sync(root, backup)
    refused = []

    def beside(*_: object) -> None:
        if not refused:
            with pytest.raises(mqstore.StoreLockedError, match="another restore") as caught:
                mqstore.restore(backup, out, topics=topics)
            refused.append(caught.value)

    assert mqstore.restore(backup, out, topics=topics, progress=beside).findings == ()
    assert refused
    assert len(bodies(out)) >= 60


def test_the_command_compresses_and_restores_topics(tmp_path: Path, root: Path) -> None:
    backup, out = tmp_path / "backup", tmp_path / "out"

    def run(*given: object) -> tuple[int, str]:
        command = [sys.executable, "-m", "mqstore", *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run("sync", root, backup, "--compress", "zstd")[0] == 0
    assert (backup / objects.FORMAT).read_bytes().endswith(b'"version":2}')
    code, text = run("restore", backup, out, "-t", "V")
    assert (code, "topics: no topic 'V'" in text, out.exists()) == (1, True, False), text
    code, text = run("restore", backup, out, "-t", "T", "-t", "U")
    assert (code, "restored 120 messages of T, U: the log from 0" in text) == (0, True), text
