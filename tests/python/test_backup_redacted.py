"""Backups without bodies."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import append, bodies, files_of
from helpers.golden import Case
from helpers.stores import TINY, message
from mqstore.backup import source, target, writing
from mqstore.backup.redacting import RedactedFile

if TYPE_CHECKING:
    from pathlib import Path


def facts(store: mqstore.Store) -> list[Any]:
    """All that a store has, with the lengths of bodies."""
    found: list[Any] = [store.max_physical_offset, store.groups()]
    found += [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in store.queues()]
    for hit in store.scan(decompress=False):
        members = [(len(one.body), one.properties) for one in hit.batch or ()]
        properties = {**hit.properties, "__CRC32#": ""}
        place = hit.topic, hit.queue_id, hit.queue_offset, hit.physical_offset, hit.store_size
        times = hit.store_timestamp_ms, hit.born_timestamp_ms, hit.store_host, hit.born_host
        rest = hit.flag, hit.transaction, hit.prepared_transaction_offset, hit.reconsume_times
        found.append((*place, *times, *rest, len(hit.raw_body), properties, members))
    return found


def has_no_body(store: mqstore.Store) -> None:
    for hit in store.scan():
        if hit.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":  # the offsets of those that ended
            continue
        assert not any(b"".join(one.body for one in hit.batch or (hit,)))


CASES = ("propcrc", "batch", "broker", "v2topic", "ipv6", "bigbody", "transaction", "lmq")


@pytest.mark.parametrize("name", CASES)
def test_what_rocketmq_wrote_is_kept_but_for_its_bodies(tmp_path: Path, name: str) -> None:
    case = Case(name)
    root, backup, out = case.unpack(tmp_path), tmp_path / "backup", tmp_path / "out"
    for is_new in (True, False):
        report = mqstore.sync(root, backup, config=case.settings, redact="bodies", verify=True)
        assert report.is_new == is_new
    objects = b"".join(path.read_bytes() for path in files_of(backup))
    with case.open(root) as live, mqstore.open(backup) as kept:
        assert facts(kept) == facts(live)
        has_no_body(kept)
        waiting = (
            [one.physical_offset for one in mqstore.pending(at).half] for at in (backup, root)
        )
        assert next(waiting) == next(waiting)
        for hit in live.scan(decompress=False):
            if hit.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
                continue
            for body in [one.body for one in hit.batch or ()] or [hit.raw_body]:
                assert len(body.strip(b"\0")) < 6 or body not in objects
    report = mqstore.restore(backup, out)
    assert not [found for found in report.findings if found.severity == "error"]
    assert report.redact == "bodies"
    with case.open(out) as restored, mqstore.open(backup) as kept:
        assert facts(restored) == facts(kept)


def test_a_log_that_grows_and_is_cut_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large and small messages over the ends of pieces, and a log that went on differently."""
    root, backup, chance = tmp_path / "store", tmp_path / "backup", random.Random(5)
    monkeypatch.setattr(source, "PIECE", 1000)
    monkeypatch.setattr(writing, "SMALL", 100)
    config = {**TINY, "mapped_file_size_commit_log": 32768}
    for number in range(9):
        if number == 5:
            shutil.copytree(root, tmp_path / "before")
        if number == 7:  # the log was cut, and goes on differently
            shutil.rmtree(root)
            shutil.copytree(tmp_path / "before", root)
        with mqstore.open(root, "a", config=config) as store:
            for _ in range(chance.randrange(1, 9)):
                body = b"secret-" * chance.choice((0, 4, 40, 1300)) + b"\0" * (number % 3)
                time_ms = chance.randrange(1, 10**12)
                store.append_many([message(body=body, keys="k", store_timestamp_ms=time_ms)])
        assert mqstore.sync(root, backup, redact="bodies").is_new
        for path in (root / "commitlog").iterdir():
            os.utime(path)  # as if it had changed
        assert not mqstore.sync(root, backup, redact="bodies").is_new
        with mqstore.open(root) as live, mqstore.open(backup) as kept:
            assert facts(kept) == facts(live)
            has_no_body(kept)
    assert not any(b"secret-" in path.read_bytes() for path in files_of(backup))
    assert mqstore.check_backup(backup).ok
    assert len({snapshot.timeline for snapshot in mqstore.snapshots(backup)}) == 2


def test_a_file_that_is_deleted_as_it_is_read_is_no_file_of_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    append(root, 120)
    start = RedactedFile._start

    def late(self: RedactedFile, begin: int) -> int:
        monkeypatch.setattr(RedactedFile, "_start", start)
        min((root / "commitlog").iterdir()).unlink()
        return start(self, begin)

    monkeypatch.setattr(RedactedFile, "_start", late)
    mqstore.sync(root, backup, redact="bodies")
    with mqstore.open(root) as live, mqstore.open(backup) as kept:
        assert live.min_physical_offset > 0
        assert facts(kept) == facts(live)


def test_a_message_that_cannot_be_written_again_is_zeros_and_said(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    append(root, 3)
    path = next((root / "commitlog").iterdir())
    path.write_bytes(path.read_bytes().replace(b"body 1\x01T", b"body 1\x01\xff"))
    report = mqstore.sync(root, backup, redact="bodies")
    [line] = [line for line in report.left_out if "message as zeros" in line]
    assert line.startswith(f"commitlog/{path.name}: byte ")
    with mqstore.open(backup) as kept:
        assert len([*kept.scan(on_error="skip")]) == 2
    append(root)
    assert line in mqstore.sync(root, backup, redact="bodies").left_out


def test_a_time_of_another_unit_is_kept(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    append(root, 2)
    path = next((root / "commitlog").iterdir())
    log = bytearray(path.read_bytes())
    log[56 + 1] ^= 4  # 2^50 ms more, in the first record
    path.write_bytes(log)
    report = mqstore.sync(root, backup, redact="bodies")
    assert not [line for line in report.left_out if "as zeros" in line]
    with mqstore.open(root) as live, mqstore.open(backup) as kept:
        first, _ = kept.scan()
        assert first.store_timestamp_ms == next(iter(live.scan())).store_timestamp_ms > 1 << 50
        has_no_body(kept)


def test_a_redacted_backup_says_so_and_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, backup, plain = (tmp_path / name for name in ("store", "backup", "plain"))
    append(root, 60)
    (root / "mqstore.failed").mkdir()
    (root / "mqstore.failed" / "1.json").write_bytes(b'{"record": "secret"}')
    mqstore.sync(root, plain)

    def run(*given: object) -> tuple[int, str]:
        command = [sys.executable, "-m", "mqstore", *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, text = run("sync", root, backup, "--redact", "bodies", "--compress", "zstd")
    assert (code, "left out: mqstore.failed: failed messages" in text) == (0, True), text
    begun = json.loads((backup / target.FORMAT).read_bytes())
    assert begun == {"format": "mqstore-backup", "version": 2, "redact": "bodies"}
    assert [len(body) for body in bodies(backup)] == [len(body) for body in bodies(root)]
    for one, redact, has in ((backup, None, "'bodies'"), (plain, "bodies", "None")):
        with pytest.raises(mqstore.ConfigError, match=f"^redact: expected {has} as of .*empty"):
            mqstore.sync(root, one, redact=redact)  # type: ignore[arg-type]
    with pytest.raises(mqstore.ConfigError, match=r"^redact: expected bodies, got 'tags'"):
        mqstore.sync(root, backup, redact="tags")  # type: ignore[arg-type]
    expired = {**TINY, "keep_bytes": 1}
    with pytest.raises(mqstore.ConfigError, match=r"^only_backed_up: .* lacks bodies; nothing"):
        mqstore.clean(root, only_backed_up=backup, config=expired)
    assert mqstore.clean(root, only_backed_up=plain, config=expired).files
    assert [one.redact for one in mqstore.snapshots(backup)] == ["bodies"]
    assert "REDACTED" in run("snapshots", backup)[1]
    code, text = run("restore", backup, tmp_path / "out")
    assert (code, "not in the backup: all bodies" in text) == (0, True), text
    monkeypatch.setattr(target, "_NEWEST", 1)
    with pytest.raises(mqstore.UnsupportedError, match="pip install --upgrade"):
        mqstore.open(backup)
