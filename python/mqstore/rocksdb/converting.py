"""Moves queues and index of a store between files and RocksDB, while no broker runs.

Both are made again from the log and held against it before they take the place of the old ones,
which are kept in ``quarantine`` below the store.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import mqstore
from mqstore import _native
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    StoreError,
    StoreIOError,
    StoreLockedError,
    UnsupportedError,
    checked,
    wrong_setting,
)
from mqstore.results import Finding, _Report
from mqstore.rocksdb.index import DATABASE, check_index, count_index_rows, index_rows, sum_of_log
from mqstore.rocksdb.queue_files import (
    FOLDERS,
    End,
    Ends,
    Name,
    database_of,
    database_with_rows,
    ends_of,
    names_folders,
    write_files,
)
from mqstore.rocksdb.reading import (
    INSTALL,
    Databases,
    Row,
    has_rows,
    is_database,
    is_installed,
    was_database,
)
from mqstore.rocksdb.tables import move_tables
from mqstore.store import Store, local, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from mqstore.config import ConfigLike

Kind = Literal["file", "rocksdb"]
_PLAIN_SIZE = 6_000_000
# Findings of one code.
_MOST = 100
# Rows of one write.
_BATCH = 10_000
# Files that a broker does not expect.
_OURS = ("rocksdict-config.json", "LOG*", "OPTIONS-*")


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
        quarantine: Where the old ones of the last step are kept.
        quarantines: Where the old ones of each step are kept, one folder a step.
    """

    path: str
    queues: Kind | None
    index: Kind | None
    applied: bool
    queue_count: int
    messages: int
    findings: tuple[Finding, ...] = ()
    quarantine: str | None = None
    quarantines: tuple[str, ...] = ()


@checked
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
    which go to ``quarantine``. A process killed at any moment leaves a store with all messages and
    next numbers, and the next call finishes the work. Offsets of queues stay, also where retention
    took all messages. With queues in files the broker reads its topics, groups and consumers'
    offsets from JSON, so newer ones in RocksDB are written there. Set ``storeType`` in the broker's
    configuration to match before its next start: ``defaultRocksDB`` for queues in RocksDB,
    ``default`` for files.

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
        StoreIOError: The operating system refused something. After the first step the message says
            where the old ones are; all messages and numbers are in the store, and the next call
            finishes the work.
        UnsupportedError: ``rocksdict`` is not installed, or batches are to go to RocksDB.
    """
    local(path, "mqstore.convert")
    for name, value in (("queues", queues), ("index", index)):
        if value not in (None, "file", "rocksdb"):
            raise wrong_setting(name, "'file' or 'rocksdb'", repr(value))
    if queues is None and index is None:
        raise ConfigError("queues, index: expected at least one of them, got none", "queues")
    root = Path(path).absolute()
    if not dry_run:
        _refuse_in_use(root)
    settings, database = settings_of(config), database_with_rows(root)
    reported, ends = _Findings(root), dict[Name, End]()
    if database is not None:
        ends, _, error = ends_of(database)
        if error is not None:
            reported.add_damage("error", error)
    with Databases() as databases, Store(root, "r", settings) as store:
        _add_later(ends, store)
        if ends and store.max_physical_offset == 0:
            message = (
                f"{root}: the log has no messages, and {len(ends)} queues go on at a number above"
                " 0, which nothing else would tell; nothing was changed; put the files of the log"
                " back, or give their folder (store_path_commit_log)"
            )
            raise UnsupportedError(message, "next numbers without a log", str(root))
        work = _Work(root, store, settings, databases, ends)
        if queues is not None and database is not None and not reported.findings:
            reported.findings += work.check(database)
        old_index = root / DATABASE
        if index is not None and is_database(old_index) and has_rows(old_index):
            try:
                check_index(old_index, store, reported.add)
            except CorruptionError as error:
                reported.add_damage("warning", error)
        kept = () if dry_run else work.apply(queues, index)
    return ConvertReport(
        path=os.fspath(path),
        queues=queues,
        index=index,
        applied=not dry_run,
        queue_count=len(work.bounds.keys() | work.ends.keys()),
        messages=sum(end - first for first, end in work.bounds.values()),
        findings=tuple(reported.findings),
        quarantine=kept[-1] if kept else None,
        quarantines=kept,
    )


def _refuse_in_use(root: Path) -> None:
    is_locked, pid = _native.lock_state(root)
    if is_locked:
        who = "another process" if pid is None else f"process {pid}"
        message = f"{root / 'lock'}: {who} writes to the store; nothing was changed; stop it first"
        raise StoreLockedError(message, str(root / "lock"), pid)


def _add_later(ends: Ends, store: Store) -> None:
    """Adds the ends that only the store's own queues tell: a next number must not go back."""
    store._check_end()  # noqa: SLF001
    for queue in store.queues():
        name = (queue.topic, queue.queue_id)
        known = ends.get(name)
        if queue.max_offset > (known.queue_offset + 1 if known else 0):
            ends[name] = End(0, queue.max_offset - 1)


class _Work:
    """The new queues and index, built and checked before any of the old ones is replaced.

    The queues are made from the log, in a folder of their own.

    Attributes:
        bounds: First queue offset and end of each plain queue in the log.
        ends: Ends of queues whose messages retention took, each led to before the log's begin.
            Where the log has messages of a queue, it tells the next number: an end that leads
            behind them is one that a truncation of the log left.
    """

    def __init__(
        self,
        root: Path,
        store: Store,
        settings: Mapping[str, object],
        databases: Databases,
        ends: Ends,
    ) -> None:
        self._root, self._store, self._databases = root, store, databases
        self._reach = store.max_physical_offset
        more = any(topic.startswith("%LMQ%") for topic, _ in ends)
        self._settings = settings
        if more:
            self._settings = {**settings, "enable_lmq": True, "enable_multi_dispatch": True}
        self._made = _native._LogQueues(  # noqa: SLF001 - our own
            root, databases, settings=settings, has_lights=more
        )
        self._batches, start = set(self._made.batches), self._made.log_start
        self.bounds = {row[:2]: row[2:] for row in self._made.bounds}
        self.ends = {
            name: end._replace(physical_offset=min(max(0, end.physical_offset), start - 1))
            for name, end in ends.items()
            if start > 0 and name not in self.bounds and name[0] not in self._batches
        }

    def check(self, database: Path) -> list[Finding]:
        """Compares the rows of the queues in a database with the log."""
        return [Finding(*row) for row in self._made.check(database, self._databases)]

    def apply(self, queues: Kind | None, index: Kind | None) -> tuple[str, ...]:
        """Replaces the old by the new; gives the folders with the old."""
        _native._check_owner(self._root, settings=self._settings)  # noqa: SLF001 - our own
        kept: list[str] = []
        try:
            # One by one: an error leaves those before it.
            kept.extend(folder for folder in self._steps(queues, index) if folder is not None)
        except (StoreError, OSError) as error:
            if not kept:
                raise
            raise _partly(error, kept) from error
        return tuple(kept)

    def _steps(self, queues: Kind | None, index: Kind | None) -> Iterator[str | None]:
        is_apart = was_database(self._root / FOLDERS[1])
        with tempfile.TemporaryDirectory(prefix="mqstore-") as folder:
            new: dict[str, Path] = {}
            if queues == "rocksdb":
                new[FOLDERS[is_apart]] = self._queue_database(Path(folder, "queues"))
            if index == "rocksdb":
                new[DATABASE] = self._index_database(Path(folder, "index"))
            kinds = {"consumequeue": queues, "index": index}
            what = tuple(name for name, kind in kinds.items() if kind == "file")
            if what:
                if queues == "file":
                    yield self._replace(self._put_first)
                yield mqstore.rebuild(self._root, what=what, config=self._settings).quarantine
            gone = [FOLDERS[1]] if queues == "file" and is_apart else []
            if new or gone:

                def put(staging: Path) -> list[str]:
                    for name, built in new.items():
                        _native._copy_folder(built, staging / name)  # noqa: SLF001 - our own
                    return [*new, *gone]

                yield self._replace(put)

    def _replace(self, build: Callable[[Path], list[str]]) -> str | None:
        """Replaces the folders that `build` puts, unless the log has grown meanwhile."""

        def put(staging: str) -> list[str]:
            self._store.refresh()
            if self._store.max_physical_offset != self._reach:
                path = str(self._root / "lock")
                what = "a process wrote to the store meanwhile; nothing was changed; stop it first"
                raise StoreLockedError(f"{path}: {what}", path, None)
            return build(Path(staging))

        now_ms = time.time_ns() // 1_000_000
        return _native._replace_folders(  # noqa: SLF001 - our own
            self._root, build=put, now_ms=now_ms, settings=self._settings
        )

    def _put_first(self, staging: Path) -> list[str]:
        """Puts what only databases tell: tables, and places and next numbers that the log lacks."""
        database = database_of(self._root)
        folder, new = self._root / "consumequeue", staging / "consumequeue"
        made = set[Name]()
        if database is not None:
            made = {name for name in self.bounds if not (folder / name[0] / str(name[1])).is_dir()}
        topics = dict[str, None]()
        for topic, queue_id in sorted(made | self.ends.keys()):
            if topic not in topics and names_folders((topic, queue_id)):
                topics[topic] = None
                if (folder / topic).is_dir():
                    _native._copy_folder(folder / topic, new / topic)  # noqa: SLF001 - our own
            queue = Path(topic, str(queue_id))
            shutil.rmtree(new / queue, ignore_errors=True)
            if (topic, queue_id) in made:
                _native._copy_folder(self._made.folder / queue, new / queue)  # noqa: SLF001 - our own
        write_files(
            database or self._root / FOLDERS[0],
            new,
            self.ends,
            file_size=self._store.config.mapped_file_size_consume_queue or _PLAIN_SIZE,
            with_rows=False,
        )
        if database is not None:
            move_tables(self._root)
        return [f"consumequeue/{topic}" for topic in topics]

    def _queue_database(self, new: Path) -> Path:
        if self._batches:
            what = f"queues of batches, as of topic {min(self._batches)}, cannot lie in RocksDB"
            message = f"{self._root}: {what}; nothing was changed"
            raise UnsupportedError(message, what, str(self._root))
        write_database(new, ("default", "offset"), self._rows())
        if findings := self.check(new):
            raise self._does_not_hold(findings[0].message)
        return new

    def _rows(self) -> Iterator[Row]:
        """The rows of all queues, from the log, and the ends of those without messages there."""
        reach = 0
        for name in sorted(self.bounds.keys() | self.ends.keys()):
            number, end = self.bounds.get(name, (0, 0))
            last = self.ends.get(name)
            while number < end:
                number, rows = self._made.rows(*name, number)
                for key, value, at, place, behind in rows:
                    yield "default", key, value
                    last = End(place, at)
                    reach = max(reach, behind)
            if last is not None:
                yield "offset", *_native._offset_row(*name, *last)  # noqa: SLF001 - our own
        yield "offset", *_native._offset_row("CHECKPOINT_TOPIC", 0, reach, 0)  # noqa: SLF001 - our own

    def _index_database(self, new: Path) -> Path:
        store = self._store
        write_database(new, ("default", "timer", "trans"), index_rows(store, self._root / DATABASE))
        found, last = count_index_rows(new, store.min_physical_offset)
        expected = sum_of_log(store, last)
        if found != expected:
            what = f"expected {expected.rows} rows of the index as of the log, found {found.rows}"
            raise self._does_not_hold(what)
        return new

    def _does_not_hold(self, found: str) -> CorruptionError:
        root = str(self._root)
        message = f"{root}: the new rows do not hold against the log: {found}; nothing was changed"
        return CorruptionError(message, root, 0, "rocksdb", "rows as of the log", found)


def _partly(error: StoreError | OSError, kept: list[str]) -> StoreError:
    """The error, with the state of a store of which a part was replaced."""
    done = (
        f"a part was replaced before, with the old ones in {', '.join(kept)}; all messages and"
        " numbers are in the store, and `mqstore convert` finishes the work when it is run again"
    )
    if not isinstance(error, StoreError):
        path = error.filename or kept[-1]
        return StoreIOError(f"{error}; {done}", error.errno, os.fsdecode(path), "copy")
    said, found, rest = error.message.partition("nothing was changed")
    message = f"{said}{done}{rest}" if found else f"{said}; {done}"
    return type(error)(message, *error.args[1:])


def write_database(folder: Path, families: tuple[str, ...], rows: Iterable[Row]) -> None:
    """Writes a new database of column families, ``default`` first.

    RocksDB 8.4 of a broker opens it: table format 5, and no file with options of a later release.

    Raises:
        StoreIOError: RocksDB cannot write.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    if not is_installed():
        what = "writing RocksDB needs the package rocksdict"
        raise UnsupportedError(f"{folder}: {what}: {INSTALL}", what, str(folder))
    import rocksdict

    options = _options(rocksdict)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    options.set_error_if_exists(enabled=True)
    left = iter(rows)
    try:
        others = {name: _options(rocksdict) for name in families}
        database = rocksdict.Rdict(str(folder), options, column_families=others)
        handles = {name: database.get_column_family_handle(name) for name in families}
        unlogged = rocksdict.WriteOptions()
        unlogged.disable_wal = True  # type: ignore[method-assign,assignment]  # an attribute
        database.set_write_options(unlogged)
        while batch := list(islice(left, _BATCH)):
            together = rocksdict.WriteBatch(raw_mode=True)
            for family, key, value in batch:
                together.put(key, value, handles[family])
            database.write(together, unlogged)
        for name in families:
            database.get_column_family(name).flush(wait=True)
        database.close()
    except Exception as error:
        # The package raises `Exception` itself.
        if type(error) is not Exception:
            raise
        raise StoreIOError(f"{folder}: RocksDB: {error}", None, str(folder), "write") from error
    for pattern in _OURS:
        for path in folder.glob(pattern):
            path.unlink()


def _options(rocksdict: Any) -> Any:  # noqa: ANN401 - classes of a package that may be missing
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())
    table.set_block_size(32 << 10)
    table.set_bloom_filter(16, block_based=False)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    return options


class _Findings:
    def __init__(self, root: Path) -> None:
        self.findings: list[Finding] = []
        self._root = root

    def add_damage(self, severity: str, error: CorruptionError) -> None:
        path = Path(error.path or self._root)
        self.add("MQ-RDB-01", severity, path, error.expected, error.found)

    def add(self, code: str, severity: str, path: Path, expected: str, found: str) -> None:
        if sum(one.code == code for one in self.findings) == _MOST:
            return
        title, fix = _native._code_text(code) or ("", "")  # noqa: SLF001 - our own
        name = os.path.relpath(path, self._root)
        message = f"{name}: {title}: expected {expected}, found {found}"
        self.findings.append(Finding(code, severity, name, None, expected, found, message, fix))  # type: ignore[arg-type]
