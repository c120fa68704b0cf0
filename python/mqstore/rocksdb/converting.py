"""Moves queues and index of a store between files and RocksDB, while no broker runs.

Both are made again from the log and held against it before they take the place of the old ones,
which are kept in ``quarantine`` below the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import mqstore
from mqstore._durable import sync
from mqstore.errors import ConfigError, CorruptionError, StoreLockedError, UnsupportedError
from mqstore.results import Finding, _Report
from mqstore.rocksdb.checking import LogQueues, _Findings, check_queues, queues_of_log
from mqstore.rocksdb.queue_files import FOLDERS, QueueFiles, database_of, ends_of
from mqstore.rocksdb.reading import has_rows, is_database, read_rows
from mqstore.rocksdb.rows import CHECKPOINT_TOPIC, IndexRow, OffsetRow, QueueRow
from mqstore.rocksdb.writing import write_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore.config import ConfigLike

__all__ = ["ConvertReport", "convert"]

Kind = Literal["file", "rocksdb"]
Ends = dict[tuple[str, int], OffsetRow]
_STAGING = "convert"
_MESSAGE_DATABASE = "rocksdbstore"


@dataclass(frozen=True, slots=True)
class ConvertReport(_Report):
    """Result of ``mqstore.convert``.

    Attributes:
        path: The store.
        queues: Where the queues are to lie; ``None`` if they stay.
        index: Where the index is to lie; ``None`` if it stays.
        applied: Whether it was done.
        queue_count: How many queues.
        messages: How many entries or rows they have.
        findings: What is wrong with the old rows; the new ones are made from the log.
        quarantine: Where the old ones are kept.
    """

    path: str
    queues: Kind | None
    index: Kind | None
    applied: bool
    queue_count: int
    messages: int
    findings: tuple[Finding, ...] = ()
    quarantine: str | None = None


def convert(
    path: str | os.PathLike[str],
    *,
    queues: Kind | None = None,
    index: Kind | None = None,
    dry_run: bool = True,
    config: ConfigLike = None,
) -> ConvertReport:
    """Moves the queues or the index of a store from files to RocksDB or back.

    They are made from the log and held against it before they take the place of the old ones,
    which go to ``quarantine``. Offsets of queues stay, also where retention took all messages. Set
    ``storeType`` in the broker's configuration to match before its next start: ``defaultRocksDB``
    for queues in RocksDB, ``default`` for files.

    Args:
        path: The store's root folder. No process may write to it.
        queues: ``"file"`` or ``"rocksdb"``. Where they lie there already they are made again.
        index: The same of the index; RocketMQ has it in RocksDB with ``indexRocksDBEnable``.
        dry_run: Only says what there would be.
        config: As for ``open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreLockedError: A process writes to the store.
        ConfigError: Neither `queues` nor `index`, or another value of them.
        CorruptionError: The new rows do not hold against the log; the store is as it was.
        StoreIOError: The operating system refused something; the store is as it was.
        UnsupportedError: ``rocksdict`` is not installed, or batches are to go to RocksDB.
    """
    for name, value in (("queues", queues), ("index", index)):
        if value not in (None, "file", "rocksdb"):
            raise ConfigError(f"{name}: must be 'file' or 'rocksdb', not {value!r}", name)
    if queues is None and index is None:
        raise ConfigError("queues, index: expected at least one of them, found none", "queues")
    root = Path(path).absolute()
    ends, told = _old_ends(root, config)
    more = any(topic.startswith("%LMQ%") for topic, _ in ends)
    with queues_of_log(root, config, more=more) as made:
        _check_old(root, made, told)
        messages = sum(end - first for first, end in made.bounds.values())
        kept = None
        if not dry_run:
            kept = _quarantine(root)
            if queues == "file":
                _to_files(root, made, ends, config, kept, more=more)
            if queues == "rocksdb":
                _to_rocksdb(root, made, ends, kept)
            if index == "file":
                mqstore.rebuild(root, what=("index",), config=config)
            if index == "rocksdb":
                _index_to_rocksdb(root, made, kept)
        return ConvertReport(
            path=os.fspath(path),
            queues=queues,
            index=index,
            applied=not dry_run,
            queue_count=len(made.bounds.keys() | ends.keys()),
            messages=messages,
            findings=tuple(told.findings),
            quarantine=str(kept) if kept is not None and kept.exists() else None,
        )


def _old_ends(root: Path, config: ConfigLike) -> tuple[Ends, _Findings]:
    """The ends of the queues as they are: the next number of a queue must not go back."""
    told = _Findings(root)
    ends: Ends = {}
    database = database_of(root)
    if database is not None and has_rows(database):
        try:
            ends, _ = ends_of(database)
        except CorruptionError as error:
            told.add("MQ-RDB-01", "error", Path(error.path or root), error.expected, error.found)
    with mqstore.open(root, config=config) as store:
        start = store.min_physical_offset
        for queue in store.queues():
            name = (queue.topic, queue.queue_id)
            known = ends.get(name)
            if queue.max_offset > (known.queue_offset + 1 if known else 0):
                # Where the log has the last message, its place is found below.
                place = max(0, start - 1)
                ends[name] = OffsetRow(*name, True, place, queue.max_offset - 1)  # noqa: FBT003
    return ends, told


def _check_old(root: Path, made: LogQueues, told: _Findings) -> None:
    database = database_of(root)
    if database is None or not has_rows(database) or told.findings:
        return
    try:
        check_queues(database, made, told)
    except CorruptionError as error:
        told.add("MQ-RDB-01", "error", Path(error.path or root), error.expected, error.found)


def _quarantine(root: Path) -> Path:
    return root / "quarantine" / f"{time.time_ns() // 1_000_000}-convert"


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Holds the store's lock, as RocketMQ does."""
    with (root / "lock").open("a+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            message = f"{file.name}: another process writes to the store; nothing was changed"
            raise StoreLockedError(message, str(file.name)) from error
        yield


def _to_files(
    root: Path, made: LogQueues, ends: Ends, config: ConfigLike, kept: Path, *, more: bool
) -> None:
    given = mqstore.store._settings(config)  # noqa: SLF001 - our own
    if more:
        given = {**given, "enable_lmq": True, "enable_multi_dispatch": True}
    mqstore.rebuild(root, what=("consumequeue",), config=given)
    with _locked(root):
        size = made.store.config.mapped_file_size_consume_queue
        # Queues without messages in the log still know their next number.
        files = QueueFiles(root / "consumequeue", size or 6_000_000)
        for name, end in sorted(ends.items()):
            if name not in made.bounds and name[0] not in made.batches:
                place = min(end.physical_offset, max(0, made.report.log_start - 1))
                files.put_end(name, end._replace(physical_offset=place))
        _move_aside(root / FOLDERS[1], kept)


def _to_rocksdb(root: Path, made: LogQueues, ends: Ends, kept: Path) -> None:
    if made.batches:
        what = f"queues of batches, as of topic {min(made.batches)}, cannot lie in RocksDB"
        raise UnsupportedError(f"{root}: {what}; nothing was changed", what, str(root))
    is_apart = is_database(root / FOLDERS[1])
    place = root / FOLDERS[is_apart]
    with _locked(root), _staging(root) as new:
        write_database(new, ("default", "offset"), _rows(made, ends))
        told = _Findings(root)
        check_queues(new, made, told)
        if told.findings:
            found = told.findings[0].message
            message = f"{new}: the new rows do not hold: {found}; the store is as it was"
            raise CorruptionError(message, str(new), 0, "rocksdb", "rows as of the log", found)
        _move_aside(place, kept)
        new.rename(place)
        sync(root)


def _rows(made: LogQueues, ends: Ends) -> Iterator[tuple[str, bytes, bytes]]:
    """The rows of all queues, from the log."""
    reach = 0
    for name in sorted(made.bounds.keys() | ends.keys()):
        queue = made[name]
        last = None
        for at in range(0, len(queue.entries), 20):
            entry = queue.entries[at : at + 20]
            place = int.from_bytes(entry[:8], "big")
            time_ms = made.store.get(place).store_timestamp_ms
            number = queue.first + at // 20
            key, _ = QueueRow(*name, number, 0, 0, 0, 0).encode()
            yield "default", key, entry + time_ms.to_bytes(8, "big", signed=True)
            last = OffsetRow(*name, True, place, number)  # noqa: FBT003
            reach = max(reach, place + int.from_bytes(entry[8:12], "big"))
        if last is None or (name in ends and ends[name].queue_offset > last.queue_offset):
            last = ends[name]
        yield "offset", *last.encode()
    yield "offset", *OffsetRow(CHECKPOINT_TOPIC, 0, True, reach, 0).encode()  # noqa: FBT003


def _index_to_rocksdb(root: Path, made: LogQueues, kept: Path) -> None:
    place = root / _MESSAGE_DATABASE
    with _locked(root), _staging(root) as new:
        write_database(new, ("default", "timer", "trans"), _index_rows(made, place))
        _move_aside(place, kept)
        new.rename(place)
        sync(root)


def _index_rows(made: LogQueues, old: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """The rows that RocketMQ puts for each message with a unique key, and the old timers."""
    if is_database(old) and has_rows(old):
        yield from read_rows(old, ["timer", "trans"])
    last = None
    for message in made.store.scan():
        unique = message.unique_key
        if not unique or message.transaction == "rollback":
            continue
        keys = [("K", key) for key in dict.fromkeys(message.keys) if key]
        tags = [("T", message.tags)] if message.tags else []
        for kind, text in [*keys, *tags, ("U", unique)]:
            place, time_ms = message.physical_offset, message.store_timestamp_ms
            yield "default", *IndexRow(message.topic, kind, text, unique, place, time_ms).encode()
        last = message
    if last is not None:
        yield "default", b"lastOffsetPy", last.physical_offset.to_bytes(8, "big")
        yield "default", b"lastStoreTimeStamp", last.store_timestamp_ms.to_bytes(8, "big")


@contextlib.contextmanager
def _staging(root: Path) -> Iterator[Path]:
    """A folder beside the others, gone again unless it was moved away."""
    folder = root / _STAGING
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move_aside(folder: Path, kept: Path) -> None:
    if folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        folder.rename(kept / folder.name)
