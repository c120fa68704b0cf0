"""Holds the rows of queues in RocksDB against the log, and counts the rows of each database.

The queues are made from the log in a folder of their own, as ``rebuild`` makes them, and each row
is compared with its entry there.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from bisect import bisect_left
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import mqstore
from mqstore import _native
from mqstore.errors import ConfigError, CorruptionError, StoreIOError, UnsupportedError
from mqstore.results import Diagnosis, Finding
from mqstore.rocksdb.queue_files import FOLDERS, ends_of, rows_of
from mqstore.rocksdb.reading import (
    has_rows,
    is_database,
    is_installed,
    read_rows,
    was_database,
)
from mqstore.rocksdb.rows import QueueRow
from mqstore.store import Store, _wants_database

if TYPE_CHECKING:
    from mqstore.config import ConfigLike

# Database, and the column families in it by what their rows are.
_FAMILIES = {
    "consumequeue": {"queue entries": "default", "bounds of queues": "offset"},
    "consumequeue_rocksdb": {"queue entries": "default", "bounds of queues": "offset"},
    "rocksdbstore": {"index entries": "default", "timers": "timer", "open transactions": "trans"},
    "config/topics": {"topics": "default"},
    "config/subscriptionGroups": {"groups": "default"},
    "config/consumerOffsets": {"offsets": "default"},
    "config/metadata": {
        "topics": "topic",
        "groups": "subscriptionGroup",
        "offsets": "consumerOffset",
    },
    "config/rdb": {"rows": "default"},
    "kvStore": {"rows": "popState"},
}
# Rows that are no index entry, timer or transaction but a place in the log or a time.
_PLACES = {b"lastOffsetPy", b"lastStoreTimeStamp", b"timeline_checkpoint"}
_PLACES |= {b"sys_topic_scan_offset_checkpoint"}
_MOST = 100
# An entry that leads nowhere.
_FILLER = bytes(8) + (2**31 - 1).to_bytes(4, "big") + bytes(8)


def count_rows(root: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Counts the rows of each database of a store by what they are.

    Raises:
        CorruptionError: Damage in a file of a database.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    return {
        name: _count(Path(root, name), families)
        for name, families in _FAMILIES.items()
        if is_database(Path(root, name))
    }


def _count(folder: Path, families: dict[str, str]) -> dict[str, int]:
    if not has_rows(folder):
        return dict.fromkeys(families, 0)
    counts = dict.fromkeys(families.values(), 0)
    for family, key, _ in read_rows(folder, list(counts)):
        counts[family] += key not in _PLACES
    return {what: counts[family] for what, family in families.items()}


def check(
    path: str | os.PathLike[str], *, level: str, config: ConfigLike
) -> tuple[list[Finding], dict[str, int]]:
    """Checks the databases of a store; gives findings, and counts for the report of ``verify``."""
    root = Path(path)
    queues = next(filter(was_database, (root / name for name in FOLDERS)), None)
    told = _Findings(root)
    counts = {"rocksdb_rows": 0}
    is_gone = queues is None and _wants_database(config)
    if is_gone and level == "full":
        try:
            with queues_of_log(root, config, more=False) as made:
                for (topic, queue_id), (first, end) in made.bounds.items():
                    what = f"{end - first} rows of queue {queue_id} of {topic}, by storeType"
                    told.add("MQ-RDB-03", "error", root / FOLDERS[0], what, "no database")
        except (ConfigError, CorruptionError, StoreIOError, UnsupportedError) as error:
            if isinstance(error, StoreIOError) and root not in Path(error.filename).parents:
                raise
            # What keeps the log from being read is an error by itself, to be cured first.
            found = f"no database; its rows are not known: {error}"
            told.add("MQ-RDB-03", "info", root / FOLDERS[0], "rows, by storeType", found)
    for name, families in _FAMILIES.items():
        folder = root / name
        # Without tables, only RocksDB knows whether there should be any; `rocksdbstore` rarely has.
        if not was_database(folder) or (name == "rocksdbstore" and not has_rows(folder)):
            continue
        if not is_installed():
            told.add("MQ-RDB-05", "info", folder, "the package rocksdict", "none")
            continue
        try:
            if folder == queues:
                counts["rocksdb_rows"] += _check(root, folder, told, level, config)
            else:
                counts["rocksdb_rows"] += sum(_count(folder, families).values())
        except (CorruptionError, UnsupportedError) as error:
            if error.path and folder not in (Path(error.path), *Path(error.path).parents):
                # Damage in the log has findings of its own.
                continue
            # A broker starts without what lies in `rocksdbstore`, and not without the others.
            severity = "warning" if name == "rocksdbstore" else "error"
            found = error.found if isinstance(error, CorruptionError) else str(error)
            expected = error.expected if isinstance(error, CorruptionError) else "rows"
            told.add("MQ-RDB-01", severity, Path(error.path or folder), expected, found)
    found_of = {code: number for code, number in told.counts.items() if number}
    return told.findings, {**counts, **found_of}


def diagnoses(path: str | os.PathLike[str], given: str, config: ConfigLike) -> list[Diagnosis]:
    """The findings of `check` as ``doctor`` tells them; `given` names a configuration."""
    findings, _ = check(path, level="full", config=config)
    name = shlex.quote(str(Path(path).absolute()))
    cure = f"mqstore convert {name} --queues rocksdb --apply{given}"
    found: dict[str, Diagnosis] = {}
    for one in findings:
        if one.severity == "info":
            continue
        title, _ = _native._code_text(one.code) or ("", "")  # noqa: SLF001 - our own
        before = found[one.code].evidence if one.code in found else ()
        evidence = (*before, f"{one.path}: expected {one.expected}, found {one.found}")
        is_queues = one.path.startswith("consumequeue")
        cured = cure if is_queues else None
        found[one.code] = Diagnosis(one.code, one.severity, title, evidence, cured, one.fix)
    return list(found.values())


def _check(root: Path, folder: Path, told: _Findings, level: str, config: ConfigLike) -> int:
    if level == "quick":
        return len(ends_of(folder)[0])
    with queues_of_log(root, config, more=_has_light_queues(folder)) as queues:
        return check_queues(folder, queues, told)


def _has_light_queues(folder: Path) -> bool:
    return any(topic.startswith("%LMQ%") for topic, _ in ends_of(folder)[0])


class _Findings:
    def __init__(self, root: Path) -> None:
        self.findings: list[Finding] = []
        self.counts: dict[str, int] = {}
        self._root = root

    def add(self, code: str, severity: str, path: Path, expected: str, found: str) -> None:
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] > _MOST:
            return
        title, fix = _native._code_text(code) or ("", "")  # noqa: SLF001 - our own
        # A hostile name is of any length and may be no UTF-8.
        shown = [text[:300].encode("utf-8", "backslashreplace") for text in (expected, found)]
        expected, found = (text.decode() for text in shown)
        name = os.path.relpath(path, self._root)
        message = f"{name}: {title}: expected {expected}, found {found}"
        self.findings.append(Finding(code, severity, name, None, expected, found, message, fix))  # type: ignore[arg-type]


class LogQueue(NamedTuple):
    """The entries of one queue as the log has them, 20 bytes each, from an offset on."""

    first: int
    entries: bytes

    def at(self, queue_offset: int) -> bytes:
        """An entry; empty bytes where the log has none."""
        begin = (queue_offset - self.first) * 20
        return self.entries[begin : begin + 20] if begin >= 0 else b""

    def before(self, physical_offset: int) -> int:
        """How many entries lead before a place in the log."""
        numbers = range(len(self.entries) // 20)
        return bisect_left(numbers, physical_offset, key=lambda number: self.place(number))

    def place(self, number: int) -> int:
        """Where the message of an entry, counted from the first, begins."""
        return int.from_bytes(self.entries[number * 20 : number * 20 + 8], "big", signed=True)


class LogQueues:
    """The queues of a store, made from its log in a folder of their own."""

    def __init__(self, root: Path, config: ConfigLike, *, more: bool) -> None:
        self._made = ExitStack()
        try:
            self._make(root, config, more=more)
        except BaseException:
            self._made.close()
            raise

    def _make(self, root: Path, config: ConfigLike, *, more: bool) -> None:
        folder = self._made.enter_context(tempfile.TemporaryDirectory(prefix="mqstore-"))
        self.out = Path(folder, "queues")
        # Rows have the tags' code itself, no place in an extension.
        given = {**mqstore.store.settings_of(config), "enable_consume_queue_ext": False}
        if more:
            given = {**given, "enable_lmq": True, "enable_multi_dispatch": True}
        self.report = mqstore.rebuild(root, what=("consumequeue",), out=self.out, config=given)
        self.bounds = {
            (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
            for queue in self.report.queues
            if queue.kind == "SimpleCQ"
        }
        self.batches = {queue.topic for queue in self.report.queues if queue.kind == "BatchCQ"}
        self.store = self._made.enter_context(Store(root, "r", given))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def __getitem__(self, queue: tuple[str, int]) -> LogQueue:
        if queue not in self.bounds:
            return LogQueue(0, b"")
        first, end = self.bounds[queue]
        folder = self.out / "consumequeue" / queue[0] / str(queue[1])
        parts = [(int(path.name) // 20, path) for path in sorted(folder.iterdir())]
        entries = b"".join(
            path.read_bytes()[max(0, first - begin) * 20 : max(0, end - begin) * 20]
            for begin, path in parts
        )
        return LogQueue(first, entries)


def queues_of_log(root: Path, config: ConfigLike, *, more: bool) -> LogQueues:
    """Makes the queues of a store from its log; `more`: light queues too."""
    return LogQueues(root, config, more=more)


def check_queues(folder: Path, queues: LogQueues, told: _Findings) -> int:
    """Holds each row of the queues of a database against the log; gives the number of rows."""
    ends, checkpoint = ends_of(folder)
    log = range(queues.report.log_start, queues.report.log_end)
    if checkpoint > log.stop:
        what = f"a message that ends at physical offset {checkpoint}"
        told.add("MQ-RDB-02", "warning", folder, what, f"the log's end {log.stop}")
    total, tail, reach = 0, 0, 0
    held: dict[tuple[str, int], int] = {}
    current: tuple[str, int] | None = None
    queue = LogQueue(0, b"")
    for name, number, value in rows_of(folder, ends):
        total += 1
        if name != current:
            current, queue = name, queues[name]
        place = int.from_bytes(value[:8], "big", signed=True)
        if place < log.start or name[0] in queues.batches:
            continue
        reach = max(reach, place + int.from_bytes(value[8:12], "big", signed=True))
        wrong = _wrong(QueueRow.of(name, number, value), value, queue, queues)
        if wrong is None:
            held[name] = held.get(name, 0) + 1
        else:
            told.add("MQ-RDB-02", "error", folder, *wrong)
    for name, end in ends.items():
        entry = queues[name].at(end.queue_offset)
        is_ahead = end.queue_offset >= queues.bounds.get(name, (0, 2**63))[1]
        is_wrong = entry[:8] != end.physical_offset.to_bytes(8, "big", signed=True)
        if (end.physical_offset in log and is_wrong) or (
            end.physical_offset < log.start and is_ahead
        ):
            what = f"a greatest offset of queue {name[1]} of {name[0]} that leads to its message"
            told.add("MQ-RDB-02", "error", folder, what, f"{end.queue_offset}")
    if reach > checkpoint:
        what = f"CHECKPOINT_TOPIC at the end of the last row's message, {reach}"
        told.add("MQ-RDB-02", "error", folder, what, str(checkpoint))
    for name in queues.bounds:
        queue = queues[name]
        known = queue.before(checkpoint)
        tail += len(queue.entries) // 20 - known
        # Numbers that no message has need no row.
        known -= queue.entries[: known * 20].count(_FILLER)
        if held.get(name, 0) < known:
            what = f"{known} rows of queue {name[1]} of {name[0]}"
            told.add("MQ-RDB-03", "error", folder, what, f"{held.get(name, 0)}")
    if tail:
        what = f"rows up to physical offset {log.stop}"
        told.add("MQ-RDB-04", "info", folder, what, f"rows up to {checkpoint}, {tail} less")
    return total


def _wrong(
    row: QueueRow, value: bytes, queue: LogQueue, queues: LogQueues
) -> tuple[str, str] | None:
    """The expected row and the found one; ``None`` where they are equal."""
    entry = queue.at(row.queue_offset)
    place = f"queue {row.queue_id} of {row.topic} at {row.queue_offset}"
    if not entry:
        return f"a message of {place}", f"a row to physical offset {row.physical_offset}"
    if entry != value[:20]:
        expected = row._replace(**_fields(entry))  # type: ignore[arg-type]
        return f"{place}: {_text(expected)}", _text(row)
    time_ms = queues.store.get(row.physical_offset).store_timestamp_ms
    if time_ms != row.store_timestamp_ms:
        return f"{place}: store time {time_ms}", f"store time {row.store_timestamp_ms}"
    return None


def _fields(entry: bytes) -> dict[str, int]:
    names = {"physical_offset": (0, 8), "store_size": (8, 12), "tags_code": (12, 20)}
    return {
        name: int.from_bytes(entry[begin:end], "big", signed=True)
        for name, (begin, end) in names.items()
    }


def _text(row: QueueRow) -> str:
    return f"physical offset {row.physical_offset}, {row.store_size} bytes, tags {row.tags_code}"
