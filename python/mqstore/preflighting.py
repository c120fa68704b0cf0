"""Foresees how a release of RocketMQ would start on a store.

The rules are those of ``CommitLog#recoverNormally``, ``CommitLog#recoverAbnormally`` and
``ConsumeQueueStore#isMappedFileMatchedRecover``: where a start begins to read, and what it puts
into queues and index from there on.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import mqstore
from mqstore.errors import ConfigError, CorruptionError, MessageNotFoundError, OffsetOutOfRangeError
from mqstore.results import _Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore._native import QueueInfo, Store
    from mqstore.config import ConfigLike

__all__ = ["PreflightNote", "PreflightReport", "preflight"]

_RELEASES = ("5.3", "5.4", "5.5")
# ``commitLogRecoverMaxNum`` from 5.4 on: files of the log that a start looks at.
_MOST_FILES = 10
_FOLDER_OF = {"SimpleCQ": "consumequeue", "BatchCQ": "batchconsumequeue"}
_STARTS_NOT = {"MQ-FS-01", "MQ-FS-02", "MQ-FS-04", "MQ-FS-09"}


@dataclass(frozen=True, slots=True)
class PreflightNote(_Report):
    """One thing that a start of RocketMQ would do to a store.

    Attributes:
        severity: ``"error"``: it does not start, or messages come out of reach; ``"warning"``:
            something is dropped or built anew in part; ``"info"``: worth knowing.
        what: What would happen.
        before: The command that prevents it, to be run before the broker is started; ``None``
            where no command does.
    """

    severity: Literal["error", "warning", "info"]
    what: str
    before: str | None = None


@dataclass(frozen=True, slots=True)
class PreflightReport(_Report):
    """How a release of RocketMQ would start on a store.

    Attributes:
        path: The store.
        to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
        ok: Whether it starts and nothing is lost.
        starts: Whether it starts.
        begin_physical_offset: Where it begins to put messages into queues and index.
        lost: How many messages no consumer could reach through its queue any more.
        notes: What would happen, the worst first.
    """

    path: str
    to: str
    ok: bool
    starts: bool
    begin_physical_offset: int
    lost: int
    notes: tuple[PreflightNote, ...] = ()


def preflight(
    path: str | os.PathLike[str], *, to: str, config: ConfigLike = None
) -> PreflightReport:
    """Says what a release of RocketMQ would do with a store at its next start.

    That is whether it opens the store, which messages it would not put into their queues, which
    index files it would drop, and what its queries would not find; each with the command to run
    before the broker is started. It never writes and takes no lock. The store is taken as it is
    now, and the broker's settings as RocketMQ's defaults, queues in files.

    Args:
        path: The store's root folder.
        to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
        config: As for ``open``; where it is the path of a ``broker.conf``, the commands name it.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: No such release, or a setting that cannot be.
        StoreIOError: The operating system refused something.
    """
    if to not in _RELEASES:
        raise ConfigError(f"to: must be 5.3, 5.4 or 5.5, not {to!r}", "to")
    root = os.fspath(path)
    report = mqstore.verify(root, level="quick", config=config)
    broken = [found for found in report.findings if found.code in _STARTS_NOT]
    notes = [PreflightNote("error", f"it does not start: {one}", one.fix) for one in broken]
    with mqstore.open(root, config=config) as store:
        flight = _Flight(store, root, to, config)
        lost = [] if broken else list(flight.lost())
        notes += [] if broken else lost + list(flight.others())
        begin = flight.begin
        missing = flight.missing
    order = {"error": 0, "warning": 1, "info": 2}
    notes.sort(key=lambda note: order[note.severity])
    ok = not any(note.severity == "error" for note in notes)
    return PreflightReport(root, to, ok, not broken, begin, missing, tuple(notes))


class _LogFile(NamedTuple):
    begin: int
    store_timestamp_ms: int | None


class _Flight:
    """A store, and the release that is to open it."""

    def __init__(self, store: Store, root: str, to: str, config: ConfigLike) -> None:
        self.store = store
        self.to = to
        self.missing = 0
        conf = config if isinstance(config, (str, os.PathLike)) else None
        given = f" --config {shlex.quote(os.fspath(conf))}" if conf is not None else ""
        self._recover = f"mqstore recover {shlex.quote(root)}{given} --apply"
        self._rebuild = f"mqstore rebuild {shlex.quote(root)}{given} --what"
        self._crashed = Path(root, "abort").exists()
        checkpoint = Path(root, "checkpoint")
        self._checkpoint = mqstore.Checkpoint(checkpoint) if checkpoint.is_file() else None
        self._queues = [(queue, self._in_files(queue)) for queue in store.queues()]
        reach = [files.max_physical_offset for _, files in self._queues if files is not None]
        self._reach = max(reach, default=-1)
        self.start = self._start()
        # After a clean stop only what lies behind all queues is put into them.
        self.begin = self.start if self._crashed else max(self.start, self._reach)

    def _in_files(self, queue: QueueInfo) -> mqstore.ConsumeQueue | None:
        folder = Path(self.store.path, _FOLDER_OF[queue.kind], queue.topic, str(queue.queue_id))
        return mqstore.ConsumeQueue(folder) if folder.is_dir() else None

    # --- where a start begins ---

    def _files(self) -> list[_LogFile]:
        """The files of the log that a start looks at, the newest first."""
        names = sorted(Path(self.store.path, "commitlog").iterdir(), reverse=True)
        begins = [int(path.name) for path in names if path.name.isdecimal() and path.is_file()]
        looked_at = begins if self.to == "5.3" else begins[:_MOST_FILES]
        return [_LogFile(begin, self._first_time(begin)) for begin in looked_at]

    def _first_time(self, begin: int) -> int | None:
        """The store time of a file's first message; ``None`` where none is whole."""
        try:
            return self.store.get(begin).store_timestamp_ms
        except (CorruptionError, MessageNotFoundError, OffsetOutOfRangeError):
            return None

    def _start(self) -> int:
        """The beginning of the file at which a start begins to read."""
        files = self._files()
        for file in files:
            if file.store_timestamp_ms and self._matches(file):
                return file.begin
        return files[-1].begin if files else 0

    def _matches(self, file: _LogFile) -> bool:
        assert file.store_timestamp_ms is not None  # noqa: S101 - asked before
        if not self._crashed:
            return file.begin <= self._reach
        checkpoint = self._checkpoint
        if checkpoint is None:
            return False
        if self.to != "5.5":
            return file.store_timestamp_ms <= checkpoint.min_timestamp_ms
        if checkpoint.logics_physical_offset > 0:
            return file.begin <= checkpoint.logics_physical_offset
        return file.store_timestamp_ms <= checkpoint.logics_msg_timestamp_ms

    # --- what comes of it ---

    def lost(self) -> Iterator[PreflightNote]:
        """Messages that no queue would lead to."""
        for queue, files in self._queues:
            first = queue.min_offset if files is None else max(files.max_offset, queue.min_offset)
            after = self._first_from(queue, first)
            if after > first:
                self.missing += after - first
                what = (
                    f"{after - first} messages of queue {queue.queue_id} of {queue.topic}, at"
                    f" {first} to {after - 1}, come out of reach: they are in no queue file, and a"
                    f" start of {self.to} enters only what lies from offset {self.begin} on"
                )
                yield PreflightNote("error", what, self._recover)

    def _first_from(self, queue: QueueInfo, low: int) -> int:
        """The first queue offset from `low` on whose message a start would enter."""
        high = queue.max_offset
        while low < high:
            middle = (low + high) // 2
            result = self.store.read(queue.topic, queue.queue_id, middle, max_messages=1)
            if result.messages and result.messages[0].physical_offset < self.begin:
                low = middle + 1
            else:
                high = middle
        return low

    def others(self) -> Iterator[PreflightNote]:
        """Notes on parts that the release would drop, rebuild in part or not find."""
        if self._crashed:
            yield from self._doomed_index()
        versions = self.store.versions()
        marks = versions["marks"]
        later = max((mark["since"] for mark in marks), default="5.3")
        is_old = any(mark["until"] == "5.3" for mark in marks)
        if self.to != "5.3" and is_old:
            what = (
                "messages that were indexed by 5.3 are found by key and not by tag: 5.3 puts no"
                " index entries for tags, and no later release adds them"
            )
            before = f"{self._rebuild} index --apply"
            yield PreflightNote("info", what, before if later > "5.3" else None)
        if later > self.to:
            what = f"{later} or later wrote to the store; {self.to} opens it, "
            lacks = "and puts no index entries for tags" if self.to == "5.3" else ""
            lacks = lacks or "and leaves bytes 40 to 47 of the checkpoint as they are"
            yield PreflightNote("info", what + lacks)
        yield from self._databases()

    def _doomed_index(self) -> Iterator[PreflightNote]:
        known = self._checkpoint.index_msg_timestamp_ms if self._checkpoint else 0
        doomed = []
        for path in _index_files(Path(self.store.path, "index")):
            with path.open("rb") as file:
                end_ms = int.from_bytes(file.read(16)[8:], "big", signed=True)
            if end_ms > known:
                doomed.append(path.name)
        if doomed:
            what = (
                f"{len(doomed)} index files are newer than the checkpoint and are deleted; their"
                f" keys come back from physical offset {self.start} on"
            )
            yield PreflightNote("warning", what, self._recover)

    def _databases(self) -> Iterator[PreflightNote]:
        for found in mqstore.inventory(self.store.path):
            path = str(found["path"])
            if found["structure"] != "rocksdb" or not path.startswith("consumequeue"):
                continue
            has_files = any(files is not None for _, files in self._queues)
            what = (
                f"queues lie in the RocksDB database {path}, which a broker with storeType=default"
                " does not read"
            )
            if has_files:
                yield PreflightNote("info", what)
            else:
                yield PreflightNote("warning", what, f"{self._rebuild} consumequeue --apply")
        timer = Path(self.store.path, "timerwheel")
        if self._crashed and timer.is_file():
            what = (
                "timed messages: where the log was cut, the timer log may lead behind its end"
                " (apache/rocketmq#10668)"
            )
            yield PreflightNote("info", what, self._recover)


def _index_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if path.is_file() and path.name.isdecimal())
    return sorted(files)
