"""``convert``: hostile databases, kills at any step, and both structures at once."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.files import copy_store, digests
from helpers.rocksdb_rows import OffsetRow, QueueRow
from mqstore.rocksdb import RocksDBWarning, converting, queue_files, reading
from mqstore.rocksdb.converting import write_database
from mqstore.rocksdb.index import DATABASE
from mqstore.rocksdb.queue_files import ends_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 50, "max_index_num": 200}
FAMILIES = ("default", "offset")
INDEX = ("default", "timer", "trans")
KILLS = int(os.environ.get("MQSTORE_CONVERT_KILLS", "3"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261123"))

Row = tuple[str, bytes, bytes]


def rewrite(folder: Path, families: tuple[str, ...], rows: Callable[[Row], Iterator[Row]]) -> None:
    """Writes the rows of a database again, as `rows` gives them for each."""
    old = list(reading.read_rows(folder, families))
    shutil.rmtree(folder)
    write_database(folder, families, [row for one in old for row in rows(one)])


def with_a_lone_queue(root: Path, config: dict[str, Any] = SMALL, log: str = "commitlog") -> Path:
    """Queues in RocksDB, and the log no longer has messages of ``old``, which goes on at 7."""
    with mqstore.open(root, "a", config=config) as store:
        for _ in range(7):
            store.append("old", b"x", tags="t", keys="k")
        for _ in range(40):
            store.append("new", bytes(200), queue_id=1, keys="k")
    mqstore.convert(root, queues="rocksdb", config=config, dry_run=False)
    shutil.rmtree(root / "quarantine")
    (root / log / f"{0:020}").unlink()

    def compacted(row: Row) -> Iterator[Row]:
        if row[0] == "offset" or b"new" in row[1]:
            yield row

    rewrite(root / "consumequeue", FAMILIES, compacted)
    return root


def ends(root: Path, config: dict[str, Any] = SMALL) -> dict[str, int]:
    with mqstore.open(root, config=config) as store:
        return {queue.topic: queue.max_offset for queue in store.queues()}


ENDS = {"old": 7, "new": 40}
BAD = ("../../escaped", "a/b", "..", "x" * 300, "\udcff", "")


@pytest.mark.parametrize("bad", [*((name, 0) for name in BAD), ("fine", -1)])
def test_a_name_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, bad: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_files, "FROM_LOG", -1)
    root = with_a_lone_queue(tmp_path / "a" / "store")

    def more(row: Row) -> Iterator[Row]:
        yield row
        if row[0] == "offset" and b"old" in row[1]:
            yield "offset", *OffsetRow(*bad, True, 0, 3).encode()
            yield "default", *QueueRow(*bad, 3, start, 9, 0, 0).encode()

    start = min(int(path.name) for path in (root / "commitlog").iterdir())
    rewrite(root / "consumequeue", FAMILIES, more)
    before = digests(tmp_path, ".")
    assert ends(root) == ENDS
    with pytest.raises(mqstore.CorruptionError, match="can be a folder's") as raised:
        mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert (raised.value.path or "").endswith("consumequeue")
    assert f"queue {bad[1]} of {bad[0]!r}"[:300] in str(raised.value)
    assert {**digests(tmp_path, "."), **before} == digests(tmp_path, ".")
    added = digests(tmp_path, ".").keys() - before.keys()
    assert all(name.endswith("store/lock") for name in added)
    (found,) = mqstore.verify(root, config=SMALL).findings
    assert found.code == "MQ-RDB-02"
    assert len(found.message.encode()) < 1_000
    assert ends(root) == ENDS


CHILD = """
import os, signal, sys
import mqstore
from mqstore import _native

step, root, queues, slots = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
config = dict((name, int(value)) for name, value in (pair.split("=") for pair in slots))
left = step
names = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.copytree", "os.listdir"}

def count(name, args):
    global left
    if left > 0 and name in names and args and str(args[0]).startswith(root):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def tell(work):
    def told(*args, **more):
        print("now", flush=True)
        return work(*args, **more)
    return told

_native._replace_folders = tell(_native._replace_folders)
mqstore.rebuild = tell(mqstore.rebuild)
sys.addaudithook(count)
mqstore.convert(root, queues=queues, config=config, dry_run=False)
print("end", flush=True)
"""


@pytest.mark.parametrize("queues", ["file", "rocksdb"])
def test_a_convert_that_is_killed_keeps_messages_and_next_numbers(
    tmp_path: Path, queues: Any
) -> None:
    """``MQSTORE_CONVERT_KILLS`` kills at steps of Python and as many while folders are replaced."""
    whole = with_a_lone_queue(tmp_path / "whole")
    rng = random.Random(f"{SEED}/{queues}")
    pairs = [f"{name}={value}" for name, value in SMALL.items()]
    killed, step, stride = 0, 1, 1
    for attempt in range(2 * KILLS):
        root = copy_store(whole, tmp_path / "store")
        at = step if attempt < KILLS else 0
        command = [sys.executable, "-c", CHILD, str(at), str(root), queues, *pairs]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            if not at:
                child.stdout.readline()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(rng.random() * 0.03)
                child.kill()
        killed += child.returncode == -signal.SIGKILL
        step += stride
        stride += 1 if attempt % 2 else 0
        what = f"seed {SEED}, {queues}, step {at}, attempt {attempt}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RocksDBWarning)
            assert ends(root) == ENDS, what
        written = copy_store(root, tmp_path / "written")
        try:
            with mqstore.open(written, "r+", config=SMALL) as store:
                assert store.append("old", b"y").queue_offset == 7, what
        except mqstore.UnsupportedError as error:
            assert "goes on at 7" in str(error), what  # noqa: PT017
        mqstore.convert(root, queues=queues, config=SMALL, dry_run=False)
        assert ends(root) == ENDS, what
        assert mqstore.verify(root, config=SMALL).findings == (), what
        shutil.rmtree(root)
        shutil.rmtree(written)
    assert killed


def test_an_older_folder_of_a_queue_does_not_hide_its_next_number(tmp_path: Path) -> None:
    root = with_a_lone_queue(tmp_path / "store")
    other = tmp_path / "other"
    with mqstore.open(other, "a", config=SMALL) as store:
        store.append("old", b"x")
        store.append("old", b"x", queue_id=1)
    shutil.copytree(other / "consumequeue/old", root / "consumequeue/old")
    with pytest.raises(mqstore.UnsupportedError, match="goes on at 7"):
        mqstore.open(root, "r+", config=SMALL)
    report = mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert report.quarantine is not None
    assert Path(report.quarantine, "consumequeue/CURRENT").is_file()
    with mqstore.open(root, "r+", config=SMALL) as store:
        assert store.append("old", b"y").queue_offset == 7
        assert store.append("old", b"y", queue_id=1).queue_offset == 1


def test_without_the_package_a_store_that_may_lose_numbers_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = with_a_lone_queue(tmp_path / "store")
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.raises(mqstore.UnsupportedError, match=r"pip install 'mqstore\[rocksdb\]'"):
        mqstore.open(root, "r+", config=SMALL)


def test_a_damaged_database_that_may_hold_numbers_is_not_written_beside(tmp_path: Path) -> None:
    root = with_a_lone_queue(tmp_path / "store")
    for table in (root / "consumequeue").glob("*.sst"):
        table.write_bytes(table.read_bytes()[:-30])
    with pytest.raises(mqstore.UnsupportedError, match=r"begins at.*cannot be read.*mqstore conv"):
        mqstore.open(root, "r+", config=SMALL)
    # A log that begins at 0 tells every number.
    with mqstore.open(tmp_path / "from0", "a", config=SMALL) as store:
        store.append("T", b"x")
    shutil.rmtree(tmp_path / "from0/consumequeue")
    shutil.copytree(root / "consumequeue", tmp_path / "from0/consumequeue")
    with mqstore.open(tmp_path / "from0", "r+", config=SMALL) as store:
        assert store.append("T", b"y").queue_offset == 1


def test_numbers_are_guarded_where_the_log_lies_elsewhere(tmp_path: Path) -> None:
    config = {**SMALL, "store_path_commit_log": "far/log"}
    root = with_a_lone_queue(tmp_path / "store", config, "far/log")
    assert ends(root, config) == ENDS
    with pytest.raises(mqstore.UnsupportedError, match="goes on at 7"):
        mqstore.open(root, "r+", config=config)
    mqstore.convert(root, queues="file", config=config, dry_run=False)
    assert ends(root, config) == ENDS


@pytest.mark.parametrize("queues", ["file", "rocksdb"])
def test_ends_behind_the_log_are_not_kept(tmp_path: Path, queues: Any) -> None:
    root = with_a_lone_queue(tmp_path / "store")

    def ahead(row: Row) -> Iterator[Row]:
        if row[0] == "offset" and b"new\x01max" in row[1]:
            row = ("offset", *OffsetRow("new", 1, True, 1 << 40, 1_000).encode())
        yield row

    rewrite(root / "consumequeue", FAMILIES, ahead)
    mqstore.convert(root, queues=queues, config=SMALL, dry_run=False)
    assert ends(root) == ENDS
    if queues == "rocksdb":
        found = {
            name[0]: end.queue_offset for name, end in ends_of(root / "consumequeue")[0].items()
        }
        assert found == {"old": 6, "new": 39}


def test_a_greatest_offset_behind_the_rows_is_named(tmp_path: Path) -> None:
    root = with_a_lone_queue(tmp_path / "store")

    def ahead(row: Row) -> Iterator[Row]:
        if row[0] == "offset" and b"new\x01max" in row[1]:
            row = ("offset", *OffsetRow("new", 1, True, 0, 1_000).encode())
        yield row

    rewrite(root / "consumequeue", FAMILIES, ahead)
    codes = {one.code for one in mqstore.verify(root, config=SMALL).findings}
    assert "MQ-RDB-02" in codes


def in_rocksdb(root: Path) -> Path:
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(30):
            unique = f"U{number}" if number % 5 else None
            keys = ("k", f"k{number}", "a@b" if number == 7 else "z")
            store.append("T", bytes(99), tags="ab"[number % 2], keys=keys, unique_key=unique)
    return root


def test_index_rows_are_held_against_the_log_before_they_are_swapped_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_rocksdb(tmp_path / "store")
    mqstore.convert(root, index="rocksdb", config=SMALL, dry_run=False)
    assert mqstore.convert(root, index="rocksdb", config=SMALL).findings == ()

    def wrong(row: Row) -> Iterator[Row]:
        if b"@K@k7@" in row[1]:
            row = (row[0], row[1].replace(b"k7", b"k8"), row[2])
        yield row

    rewrite(root / DATABASE, INDEX, wrong)
    found = mqstore.convert(root, index="rocksdb", config=SMALL).findings
    assert [one.code for one in found] == ["MQ-RDB-02", "MQ-RDB-03"]
    before = digests(root, DATABASE)

    def one_less(folder: Path, families: Any, rows: Any) -> None:
        write_database(folder, families, list(rows)[1:])

    monkeypatch.setattr(converting, "write_database", one_less)
    with pytest.raises(mqstore.CorruptionError, match="do not hold against the log"):
        mqstore.convert(root, index="rocksdb", config=SMALL, dry_run=False)
    assert digests(root, DATABASE) == before


def test_queues_and_index_are_both_built_before_either_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_rocksdb(tmp_path / "store")
    before = digests(root, "consumequeue")
    with monkeypatch.context() as patch:

        def index_fails(folder: Path, families: Any, rows: Any) -> None:
            write_database(folder, families, list(rows)[: 5 if families == INDEX else None])

        patch.setattr(converting, "write_database", index_fails)
        for queues in ("rocksdb", "file"):
            with pytest.raises(mqstore.CorruptionError):
                mqstore.convert(root, queues=queues, index="rocksdb", config=SMALL, dry_run=False)
            assert digests(root, "consumequeue") == before
    report = mqstore.convert(root, queues="rocksdb", index="rocksdb", config=SMALL, dry_run=False)
    assert report.quarantine is not None
    assert (root / "consumequeue/CURRENT").is_file()
    assert (root / DATABASE / "CURRENT").is_file()
    assert not (root / "rebuild").exists()
    report = mqstore.convert(root, queues="file", index="file", config=SMALL, dry_run=False)
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "consumequeue/CURRENT").is_file()
    assert digests(root, "consumequeue") == before


def test_a_failure_after_the_first_step_names_what_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = with_a_lone_queue(tmp_path / "store")
    real, calls = converting._native._replace_folders, []

    def second_fails(*given: Any, **more: Any) -> Any:
        calls.append(given)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(converting._native, "_replace_folders", second_fails)
        with pytest.raises(mqstore.StoreIOError) as failed:
            mqstore.convert(root, queues="file", index="rocksdb", config=SMALL, dry_run=False)
    assert "nothing was changed" not in str(failed.value)
    named = [path for path in (root / "quarantine").iterdir() if str(path) in str(failed.value)]
    assert named, failed.value
    assert ends(root) == ENDS
    report = mqstore.convert(root, queues="file", index="rocksdb", config=SMALL, dry_run=False)
    assert report.quarantine == report.quarantines[-1]
    assert all(Path(path).is_dir() for path in report.quarantines)
    assert ends(root) == ENDS
    assert mqstore.verify(root, config=SMALL).ok


def test_a_refusal_to_write_prints_a_command_to_copy(tmp_path: Path) -> None:
    conf = tmp_path / "a broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    root = with_a_lone_queue(tmp_path / "a store")
    for _ in range(2):
        with pytest.raises(mqstore.UnsupportedError) as refused:
            mqstore.open(root, "r+", config=conf)
        command = f"mqstore convert '{root}' --queues file --apply --config '{conf}'"
        assert str(refused.value).endswith(command)
        for table in (root / "consumequeue").glob("*.sst"):
            table.write_bytes(table.read_bytes()[:-30])


def test_rows_have_the_tags_code_where_files_have_a_place_in_an_extension(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = {**SMALL, "enable_consume_queue_ext": True}
    with mqstore.open(root, "a", config=config) as store:
        for number in range(9):
            store.append("T", b"x", tags=f"tag{number}")
    mqstore.convert(root, queues="rocksdb", config=config, dry_run=False)
    rows = reading.read_rows(root / "consumequeue", ["default"])
    codes = [QueueRow.decode(key, value).tags_code for _, key, value in rows]
    assert codes == [mqstore.tags_code(f"tag{number}") for number in range(9)]
    assert mqstore.verify(root, config=config).ok
    mqstore.convert(root, queues="file", config=config, dry_run=False)
    with mqstore.open(root, config=config) as store:
        (hit,) = store.read("T", 0, 0, tags="tag4").messages
    assert hit.queue_offset == 4


def test_a_folder_of_the_users_and_a_linked_lock_are_left_alone(tmp_path: Path) -> None:
    root = in_rocksdb(tmp_path / "store")
    (root / "convert").mkdir()
    (root / "convert/mine").write_text("mine")
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    assert (root / "convert/mine").read_text() == "mine"
    (root / "lock").unlink()
    (root / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(mqstore.StoreError):
        mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    assert not (tmp_path / "elsewhere").exists()


def test_a_damaged_table_does_not_hide_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_files, "FROM_LOG", -1)
    root = with_a_lone_queue(tmp_path / "store")
    hostile = {
        "deep": b'{"offsetTable":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "list": b'{"offsetTable":[1,2]}',
        "number": b'{"offsetTable":' + b"9" * 5_000 + b"}",
        "text": b'"offsetTable"',
        "no-json": b"{",
    }
    for name, value in hostile.items():
        folder = root / "config/consumerOffsets"
        shutil.rmtree(folder, ignore_errors=True)
        write_database(folder, ("default",), [("default", b"T@G", value)])
        with pytest.warns(RocksDBWarning, match="a row as RocketMQ writes"):
            assert ends(root) == ENDS, name


def test_a_convert_beside_a_writer_is_refused_and_so_is_one_after_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_rocksdb(tmp_path / "store")
    before = digests(root, "consumequeue")
    with (
        mqstore.open(root, "r+", config=SMALL),
        pytest.raises(mqstore.StoreLockedError, match="nothing was changed"),
    ):
        mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    real = converting.write_database

    def wrote_meanwhile(*given: Any) -> None:
        with mqstore.open(root, "r+", config=SMALL) as store:
            store.append("T", b"meanwhile")
        real(*given)

    monkeypatch.setattr(converting, "write_database", wrote_meanwhile)
    with pytest.raises(mqstore.StoreLockedError, match="meanwhile"):
        mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    assert digests(root, "consumequeue").keys() == before.keys()
    with mqstore.open(root, config=SMALL) as store:
        assert store.queues()[0].max_offset == 31


def test_queues_in_files_come_with_the_tables_of_their_broker(tmp_path: Path) -> None:
    root = in_rocksdb(tmp_path / "store")
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    version = b'{"counter":9,"stateVersion":0,"timestamp":1795415648896}'
    rows = [
        ("default", b"T@G", b'{"offsetTable":{"0":7}}'),
        ("kvDataVersion", b"kvDataVersionKey", version),
    ]
    write_database(root / "config/consumerOffsets", ("default", "kvDataVersion"), rows)
    offsets = root / "config/consumerOffset.json"
    older = '{"dataVersion":{"counter":1},"offsetTable":{"T@G":{0:3}},"pullOffsetTable":{}}'
    offsets.write_text(older)
    mqstore.convert(root, queues="file", config=SMALL)
    assert offsets.read_text() == older
    mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert '{"T@G": {0: 7}}' in offsets.read_text()
    assert "pullOffsetTable" in offsets.read_text()
    assert offsets.with_name("consumerOffset.json.bak").read_text() == older
    newer = older.replace('"counter":1', '"counter":10')
    offsets.write_text(newer)
    mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert offsets.read_text() == newer


def test_a_backup_that_a_broker_would_read_is_kept(tmp_path: Path) -> None:
    root = in_rocksdb(tmp_path / "store")
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    version = b'{"counter":9,"stateVersion":0,"timestamp":1795415648896}'
    rows = [
        ("default", b"T@G", b'{"offsetTable":{"0":7}}'),
        ("kvDataVersion", b"kvDataVersionKey", version),
    ]
    write_database(root / "config/consumerOffsets", ("default", "kvDataVersion"), rows)
    offsets = root / "config/consumerOffset.json"
    backup = offsets.with_name("consumerOffset.json.bak")
    newer = '{"dataVersion":{"counter":50},"offsetTable":{"T@G":{0:29},"T@H":{0:5}}}'
    # As a power cut leaves them.
    offsets.write_text("")
    backup.write_text(newer)
    mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert (offsets.read_text(), backup.read_text()) == ("", newer)
    # The older backup goes, a damaged file does not.
    offsets.write_text("{")
    backup.write_text(newer.replace("50", "1"))
    mqstore.convert(root, queues="rocksdb", config=SMALL, dry_run=False)
    with pytest.raises(mqstore.CorruptionError, match=r"consumerOffset\.json"):
        mqstore.convert(root, queues="file", config=SMALL, dry_run=False)
    assert offsets.read_text() == "{"


def test_without_a_log_no_number_is_given_up(tmp_path: Path) -> None:
    root = with_a_lone_queue(tmp_path / "store")
    away = tmp_path / "away"
    (root / "commitlog").rename(away)
    (root / "commitlog").mkdir()
    for name in ("mqstore.mark", "mqstore.seal"):
        (root / name).unlink(missing_ok=True)
    before = digests(root, ".")
    with pytest.raises(mqstore.UnsupportedError, match="put the files of the log back"):
        mqstore.open(root, "r+", config=SMALL)
    for dry_run in (True, False):
        with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
            mqstore.convert(root, queues="file", config=SMALL, dry_run=dry_run)
    assert digests(root, ".") == before
    (root / "commitlog").rmdir()
    away.rename(root / "commitlog")
    assert ends(root) == ENDS
