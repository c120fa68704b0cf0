"""Target of a pipeline: one pipeline at a time, and a table that this session can write."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from mqstore.errors import ConfigError, StoreError, StoreLockedError
from mqstore.spark.books import read_lines, write_line
from mqstore.spark.failures import reason, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mqstore.spark.ingest import PipelineConfig

LEASE_S = 120
"""Seconds without a sign of life after which a lock on another file system is free."""
_RENEW_S = 30
_held: dict[str, TargetLock] = {}
"""Locks of this process, by file."""
_UNREACHABLE = re.compile(
    r"ClassNotFound|DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source|No FileSystem|"
    r"UNSUPPORTED_FILE_SYSTEM|Cannot find catalog|CATALOG_NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE"
)


class TargetLock:
    """Lock on a target: a lock of the file in a folder of this machine, elsewhere a lease.

    The system frees the first with its process, also where the file system is shared. A lease is
    renewed while the query runs, and free at its end or when its time is over. The file keeps why
    the query ended, for the next one.

    Args:
        books: The folder of the pipeline's books; the lock lies beside it.
    """

    def __init__(self, books: str) -> None:
        self.is_local = "://" not in books
        self.path = f"{books.removeprefix('file:')}_lock"
        self.query: StreamingQuery | None = None
        self.previous_end: str | None = None
        """Why the pipeline that had the lock before ended; ``None`` if it was meant to end."""
        self._ended: str | None = None
        self._spark: SparkSession | None = None
        self._token = uuid.uuid4().hex
        # A release that has begun ends before the lock is taken again.
        self._releasing = threading.Lock()
        self._file: Any = None

    def take(self, spark: SparkSession | None) -> None:
        """Takes the lock.

        Raises:
            StoreLockedError: Another pipeline has it.
        """
        free_ended(self.path)
        if self.is_local:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(self.path).open("a+", encoding="utf-8")  # noqa: SIM115 - held
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise self._taken(_owner(self.path)) from None
            before = _owner(self.path)
            self._write()
        else:
            before = self.check(spark)
            self.renew(spark)
            if (owner := self._lease(spark)).get("token") != self._token:
                raise self._taken(owner)
        _held[self.path] = self
        if before:
            # Only a process that was killed says nothing.
            self.previous_end = str(before.get("ended", "driver gone")) or None

    def check(self, spark: SparkSession | None) -> dict[str, Any]:
        """Whether it could be taken, without taking it; the lease that is over, if there is one.

        Raises:
            StoreLockedError: Another pipeline has it.
        """
        free_ended(self.path)
        if self.is_local:
            with contextlib.suppress(FileNotFoundError), Path(self.path).open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise self._taken(_owner(self.path)) from None
            return {}
        owner = self._lease(spark)
        is_free = owner.get("token") == self._token or "ended" in owner
        if owner and not is_free and time.time() - float(owner.get("time_s", 0)) < LEASE_S:
            raise self._taken(owner)
        return owner

    def renew(self, spark: SparkSession | None) -> None:
        """Renews a lease."""
        self._spark = spark
        if not self.is_local and spark is not None:
            write_line(spark, self.path, self._text())

    def _write(self) -> None:
        self._file.truncate(0)
        self._file.write(self._text())
        self._file.flush()

    def hold(self, query: StreamingQuery, spark: SparkSession) -> None:
        """Holds the lock until a query ends, in a thread of its own."""
        self.query = query

        def wait() -> None:
            with contextlib.suppress(Exception):  # the query's, which its caller gets too
                while not query.awaitTermination(_RENEW_S):
                    self.renew(spark)
            self.release(self.end() or "")

        atexit.register(free_ended, self.path)
        threading.Thread(target=wait, name="mqstore-lock", daemon=True).start()

    def end(self) -> str | None:
        """Why its query ended, empty for an end that was asked for; ``None`` while it runs."""
        error: BaseException | None
        try:
            if self.query is None or self.query.isActive:
                return None
            error = self.query.exception()
        except Exception as broken:  # whatever a JVM that is gone causes
            error = broken
        return "" if error is None else reason(error)

    def release(self, ended: str = "") -> None:
        """Gives the lock back; a lease that cannot be written runs out.

        Args:
            ended: A reason as `reason` gives it; empty for an end that was asked for.
        """
        with self._releasing:
            if _held.get(self.path) is not self:
                return
            self._ended = ended
            with contextlib.suppress(Exception):  # a full disk, a JVM that is gone
                if self._file is not None:
                    self._write()
                else:
                    self.renew(self._spark)
            with contextlib.suppress(OSError):
                if self._file is not None:
                    self._file.close()
            del _held[self.path]

    def _lease(self, spark: SparkSession | None) -> dict[str, Any]:
        return {} if spark is None else _parse("".join(read_lines(spark, self.path)))

    def _text(self) -> str:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "time_s": time.time()}
        ended = {} if self._ended is None else {"ended": self._ended}
        return json.dumps({**owner, "token": self._token, **ended})

    def _taken(self, owner: dict[str, Any]) -> StoreLockedError:
        pid = owner.get("pid")
        by = f"process {pid} on {owner.get('host')}" if owner else "another process"
        free = "" if self.is_local else f", or {LEASE_S} seconds after its last sign of life"
        return StoreLockedError(
            f"{self.path}: a pipeline of {by} writes to this target; nothing was written. Try "
            f"again when it has ended{free}",
            self.path,
            pid if isinstance(pid, int) else None,
        )


def free_ended(path: str) -> None:
    """Releases the lock of an ended query of this process, with the reason, before its thread does.

    Args:
        path: The lock's file.
    """
    held = _held.get(path)
    if held is not None and (ended := held.end()) is not None:
        held.release(ended)


def _owner(path: str) -> dict[str, Any]:
    return _parse(Path(path).read_text(encoding="utf-8", errors="replace"))


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def needs_session(settings: PipelineConfig) -> bool:
    """Whether only a session knows if the target can be written."""
    places = (settings.path, settings.checkpoint, settings.books)
    return settings.is_table or settings.format != "parquet" or any("://" in one for one in places)


def check_target(settings: PipelineConfig, spark: SparkSession | None = None) -> None:
    """Whether the tables of a pipeline can be written.

    Args:
        settings: Its settings.
        spark: The session; without one only folders of this machine are checked.

    Raises:
        ConfigError: A folder that cannot be made, jars or a catalog that the session lacks.
        StoreLockedError: Another pipeline writes to them.
    """
    names = [settings.checkpoint, settings.books]
    names += [] if settings.is_table else [settings.path, settings.quarantine, settings.metrics]
    for name in names:
        if "://" not in name:
            _check_folder(Path(name.removeprefix("file:")).absolute())
    if spark is not None and needs_session(settings):
        _check_session(settings, spark)
    TargetLock(settings.books).check(spark)


def _check_session(settings: PipelineConfig, spark: SparkSession) -> None:
    catalog = settings.path.split(".")[0] if settings.is_table else ""
    if settings.path.count(".") > 1 and catalog and catalog != "spark_catalog":
        key = f"spark.sql.catalog.{catalog}"
        if spark.conf.get(key, None) is None:
            raise ConfigError(
                f"[sink] table: the session has no catalog {catalog!r}; nothing was written. Give "
                f"{key} and its jars under [spark]",
                "table",
            )
    places = [settings.checkpoint, settings.books, *([] if settings.is_table else [settings.path])]
    far = next((one for one in places if "://" in one), settings.checkpoint)
    try:
        if settings.is_table:
            spark.catalog.tableExists(settings.path)
        # A table that is not there is fine, unlike a format or a file system that is unknown.
        kind = "parquet" if settings.format == "iceberg" else settings.format
        _ = spark.read.format(kind).load(f"{far}/_none").schema
    except Exception as error:
        if _UNREACHABLE.search(str(error)):
            raise ConfigError(
                f"[sink] {settings.format} at {settings.path}: the session cannot reach it "
                f"({_reason(error)}); nothing was written. Add the jars and settings under [spark]",
                "format",
            ) from None
        if not isinstance(error, AnalysisException):
            raise StoreError(f"[sink] {settings.path}: {sentence(error)}") from None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if _UNREACHABLE.search(line)), lines[0])[:300]


def _check_folder(folder: Path) -> None:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        raise ConfigError(f"[sink] {folder}: {there} is a file, not a folder", "path")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"[sink] {folder}: this user cannot write in {there}", "path")
