"""Files that change, vanish or come back between and during syncs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import append, bodies
from helpers.stores import SMALL, TINY, log_bytes
from mqstore.backup import snapshot as snapshots
from mqstore.backup import syncing, writing
from mqstore.backup.target import _Folder

if TYPE_CHECKING:
    from pathlib import Path


def by_queue(root: Path) -> list[bytes]:
    with mqstore.open(root) as store:
        queue = store.queues()[0]
        reads = (store.read("T", 0, n, max_messages=1) for n in range(queue.max_offset))
        return [message.body for read in reads for message in read.messages]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_an_index_file_that_is_last_again_is_kept_once(root: Path, backup: Path) -> None:
    append(root, 60)
    mqstore.sync(root, backup)
    # As a recovery does behind the last whole file.
    max((root / "index").iterdir()).unlink()
    mqstore.sync(root, backup)
    append(root, 5)
    mqstore.sync(root, backup)
    for snapshot in mqstore.snapshots(backup):
        with mqstore.open(backup, snapshot=snapshot.id) as store:
            assert len(list(store.query("T", "k10"))) == 1
    assert mqstore.check_backup(backup).ok


def test_a_manifest_of_other_ranges_is_made_again(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 60)
    with monkeypatch.context() as patch:
        patch.setattr(syncing, "json_bytes", lambda ranges: b"[[9,1,2,3]]")
        mqstore.sync(root, backup)
    with pytest.raises(mqstore.CorruptionError):
        bodies(backup)
    append(root)
    mqstore.sync(root, backup, verify=True)
    assert bodies(backup) == bodies(root)


@pytest.mark.parametrize("harm", ["missing", "empty", "damaged"])
def test_a_table_is_kept_from_its_bak_where_a_broker_reads_that(
    root: Path, backup: Path, tmp_path: Path, harm: str
) -> None:
    append(root, 30)
    table = root / "config/consumerOffset.json"
    # As fastjson writes it.
    (root / "config/consumerOffset.json.bak").write_text('{"offsetTable":{"T@g":{0:10}}}')
    table.unlink(missing_ok=True)
    if harm != "missing":
        table.write_bytes(b"" if harm == "empty" else b'{"offsetTab')
    mqstore.sync(root, backup)
    mqstore.restore(backup, tmp_path / "restored")
    for place in (backup, tmp_path / "restored"):
        with mqstore.open(place) as store:
            assert [(at.topic, at.queue_offset) for at in store.groups()["g"]] == [("T", 10)]


def test_a_closed_store_is_closed_in_its_backup(root: Path, backup: Path, tmp_path: Path) -> None:
    append(root, 60)
    assert (root / "abort.bak").exists()
    end = mqstore.sync(root, backup).end_offset
    with mqstore.open(backup) as kept:
        assert kept.flushed_offset == end
    mqstore.restore(backup, tmp_path / "out")
    assert not (tmp_path / "out/abort").exists()
    (root / "abort").write_bytes(b"1")
    (root / "mqstore.mark").unlink()
    mqstore.sync(root, backup)
    with mqstore.open(root) as crashed, mqstore.open(backup) as kept:
        assert kept.flushed_offset == crashed.flushed_offset < end


def test_a_lost_end_of_the_log_is_named(root: Path, backup: Path) -> None:
    append(root, 60)
    last = max((root / "commitlog").iterdir())
    last.unlink()
    report = mqstore.sync(root, backup)
    (line,) = report.left_out
    assert line.startswith(f"messages behind {report.end_offset}: ")
    assert last.name in line
    assert mqstore.snapshots(backup)[0].left_out == report.left_out


def test_a_file_of_a_queue_that_was_made_again_is_copied(root: Path, backup: Path) -> None:
    append(root, 30)
    mqstore.sync(root, backup)
    first = root / f"consumequeue/T/0/{0:020}"
    status = first.stat()
    entries = first.read_bytes()
    first.write_bytes(entries[20:40] * 10)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert mqstore.sync(root, backup).new_bytes == 200
    assert not mqstore.sync(root, backup).is_new


@pytest.mark.parametrize(("first", "length"), [(30, 95), (7, 139), (7, 120), (30, 5)])
def test_a_file_of_a_queue_that_ends_within_an_entry_is_kept(
    root: Path, backup: Path, tmp_path: Path, first: int, length: int
) -> None:
    append(root, first)
    if first < 10:
        mqstore.sync(root, backup)
    os.truncate(root / f"consumequeue/T/0/{0:020}", length)
    for _ in range(2):
        mqstore.sync(root, backup)
        assert bodies(backup) == bodies(root)
    out = tmp_path / "out"
    assert mqstore.restore(backup, out).findings == ()
    assert by_queue(out) == bodies(root)
    assert mqstore.check_backup(backup).ok


def test_a_range_that_ends_within_an_entry_is_no_hindrance(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a file with more than 8 MiB, which is copied in many parts.
    monkeypatch.setattr(writing, "PIECE", 30)
    monkeypatch.setattr(syncing, "SMALL", 25)
    monkeypatch.setattr(syncing, "_MOST_RANGES", 1)
    for number in (2, 1, 1):
        append(root, number)
        mqstore.sync(root, backup)
        assert by_queue(backup) == bodies(root)


def test_a_snapshot_that_cannot_be_read_is_not_written(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root)
    mqstore.sync(root, backup)
    append(root)
    for most in (64 << 10, 0):  # of a document beside the old state, and of one with a new one
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, "_MOST_BYTES", most)
            patch.setattr(snapshots, "_MOST_OF_FILE", 0)
            patch.setattr(syncing, "can_keep", lambda _: True)
            patch.setattr(syncing, "offsets_in_database", lambda *_: {"../x": b"1"})
            with pytest.raises(mqstore.StoreError, match=r"wrong is: \.\./x; no snapshot"):
                mqstore.sync(root, backup)
        assert len(mqstore.snapshots(backup)) == 1
    assert mqstore.sync(root, backup).is_new


def test_a_closed_file_that_was_mended_is_copied(root: Path, backup: Path) -> None:
    append(root, 100)
    second = root / f"commitlog/{4096:020}"
    good = second.read_bytes()
    second.write_bytes(good[:2000] + b"damage" + good[2006:])
    mqstore.sync(root, backup)
    second.write_bytes(good)
    assert mqstore.sync(root, backup).is_new
    assert bodies(backup) == bodies(root)
    assert len(bodies(root)) == 100
    assert not mqstore.sync(root, backup).is_new


def test_files_that_only_seem_changed_are_not_fetched(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 100)
    monkeypatch.setattr(writing, "SMALL", 1)  # each range has an object of its own
    mqstore.sync(root, backup)
    for path in (root / "commitlog").iterdir():
        path.touch()
    append(root)
    get, fetched = _Folder.get, []

    def counted(self: _Folder, names: Any) -> Any:
        found = get(self, names)
        fetched.extend(found)
        return found

    keep, kept = writing.ObjectWriter.keep, set()

    def noted(self: Any, name: str, at: int, content: bytes) -> None:
        kept.add(name)
        keep(self, name, at, content)

    monkeypatch.setattr(_Folder, "get", counted)
    monkeypatch.setattr(writing.ObjectWriter, "keep", noted)
    mqstore.sync(root, backup)
    assert [name for name in kept if "commitlog" in name] == [f"commitlog/{8192:020}"]
    assert len(fetched) > 3
    # Documents, states and manifests.
    assert {content[:1] for content in fetched} <= {b"{", b"["}


def test_a_damaged_object_of_a_changed_file_stops_no_sync(root: Path, backup: Path) -> None:
    append(root, 100)
    mqstore.sync(root, backup)
    objects = [path for path in (backup / "objects").rglob("*") if path.is_file()]
    whole = max(objects, key=lambda path: path.stat().st_size)
    whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    (root / f"commitlog/{4096:020}").touch()
    append(root)
    assert mqstore.sync(root, backup).is_new
    assert not mqstore.check_backup(backup).ok


def test_an_index_file_that_is_too_long_stays_as_it_was(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    append(root, 30)
    (path,) = (root / "index").iterdir()
    path.write_bytes(path.read_bytes() + bytes(1000))
    settings = {name: TINY[name] for name in ("max_hash_slot_num", "max_index_num")}
    mqstore.sync(root, backup, config=settings)
    out = tmp_path / "out"
    (finding,) = mqstore.restore(backup, out).findings
    assert (finding.code, finding.path) == ("MQ-IX-11", f"index/{path.name}")
    assert by_queue(out) == bodies(out) == bodies(root)
    mqstore.rebuild(out, what="index", dry_run=False, config=settings)
    append(out)


def test_an_empty_index_file_before_others_stops_no_sync(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    append(root, 60)
    os.truncate(min((root / "index").iterdir()), 0)
    mqstore.sync(root, backup, config=TINY)
    assert mqstore.restore(backup, tmp_path / "out").findings == ()
    with mqstore.open(tmp_path / "out") as store:
        assert len(store.query("T", "k5")) == 1


def test_names_are_utf_8_in_any_locale(root: Path, backup: Path, tmp_path: Path) -> None:
    config = {**TINY, "validate_topic_names": False}
    with mqstore.open(root, "a", config=config) as store:
        store.append("ünï", b"1")
    (root / "config/ünï.json").write_text("{}")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (["sync", root, backup], ["restore", backup, tmp_path / "out"]):
        command = [sys.executable, "-m", "mqstore", *words]
        done = subprocess.run(command, env=plain, capture_output=True, check=True)
        assert b"no name of a store" not in done.stdout
    for name in (f"consumequeue/ünï/0/{0:020}", "config/ünï.json"):
        assert (tmp_path / "out" / name).read_bytes() == (root / name).read_bytes()
    assert not mqstore.sync(root, backup).is_new


def test_entries_stay_where_retention_runs_before_a_queue_is_copied(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 200)
    mqstore.sync(root, backup)
    append(root)
    numbered, once = syncing.numbered, [1]

    def late(folder: Path, digits: int) -> list[Path]:
        found = numbered(folder, digits)
        if once:
            once.clear()
            mqstore.clean(root, dry_run=False, config={**TINY, "keep_bytes": 9000})
        return found

    monkeypatch.setattr(syncing, "numbered", late)
    mqstore.sync(root, backup)
    assert not once
    assert by_queue(backup) == bodies(backup)
    assert len(bodies(backup)) == 201


@pytest.mark.parametrize("harm", ["removed", "cut", "emptied"])
def test_a_log_file_that_the_store_lost_stays_as_it_was(
    root: Path, backup: Path, harm: str
) -> None:
    append(root, 150)
    mqstore.sync(root, backup)
    before = bodies(root)
    second = root / f"commitlog/{4096:020}"
    if harm == "removed":
        second.unlink()
    else:
        os.truncate(second, 1000 if harm == "cut" else 0)
    append_at_end = mqstore.sync(root, backup)
    assert any(f"commitlog/{4096:020}: missing or cut" in line for line in append_at_end.left_out)
    assert bodies(backup) == before
    assert mqstore.check_backup(backup).ok


def test_a_clock_that_was_reset_hides_no_deleted_file(
    root: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 100)
    mqstore.sync(root, backup)
    mqstore.clean(root, dry_run=False, config={**TINY, "keep_bytes": 1})
    assert len(bodies(root)) < 60
    append(root)
    monkeypatch.setattr(syncing.time, "time_ns", lambda: 86_400 * 10**9)
    mqstore.sync(root, backup)
    assert len(bodies(backup)) == 101


def test_a_clock_that_was_ahead_hides_no_change(
    root: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_many(count: int) -> None:
        with mqstore.open(root, "a", config=SMALL) as store:
            store.append_many([("T", bytes([65]) * 1000) for _ in range(count)])

    append_many(150)
    clock = syncing.time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(syncing.time, "time_ns", lambda: clock() + 365 * 86_400 * 10**9)
        mqstore.sync(root, backup)
    first = root / f"commitlog/{0:020}"
    compared: list[str] = []
    is_kept = syncing.is_kept
    monkeypatch.setattr(
        syncing, "is_kept", lambda *a, **more: compared.append(a[2].name) or is_kept(*a, **more)
    )
    for byte in (66, 67):
        content = bytearray(first.read_bytes())
        # A message's flag, far before the file's end, whose checksum would tell it.
        content[19] = byte
        first.write_bytes(content)
        assert mqstore.sync(root, backup).is_new
        assert byte == 66 or compared == [first.name]
        compared.clear()
        out = tmp_path / str(byte)
        mqstore.restore(backup, out)
        assert log_bytes(out)[:65536] == content
        append_many(1)
        # Later snapshots have times behind that clock, and know what this one said.
        assert mqstore.sync(root, backup).is_new
        assert not compared


def test_two_stores_that_begin_one_backup_at_once_do_not_share_it(
    root: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, 20)
    other = tmp_path / "other"
    append(other, 20, body="another")
    small_files = syncing.left_out_names
    once = [1]

    def beside(place: Path, **given: Any) -> Any:
        if once:
            once.clear()
            mqstore.sync(other, backup)
        return small_files(place, **given)

    monkeypatch.setattr(syncing, "left_out_names", beside)
    with pytest.raises(mqstore.ConfigError, match="another store"):
        mqstore.sync(root, backup)
    assert len(mqstore.snapshots(backup)) == 1
