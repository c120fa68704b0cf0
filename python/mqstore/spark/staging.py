"""New stores that nobody sees until all of them are whole.

Each attempt of a task writes into a directory of its own below ``<out>/_mqstore-<job>``; the driver
renames the ones that count, and removes the rest. Nothing below that name is found by a glob of
stores, so that what a killed driver leaves there is only space, never a half store. Only a driver
that is killed while it replaces stores leaves the old ones there; the next write cures that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import mqstore
from mqstore.errors import ConfigError, InvalidMessageError, StoreIOError, StoreLockedError
from mqstore.files.durable import sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore.config import ConfigLike

_LIST, _OLD = "_publishing.json", "replaced"
_log = logging.getLogger("mqstore.spark")


@dataclass(frozen=True)
class Staging:
    """Where the tasks of one job write.

    Attributes:
        out: The directory that the stores go to.
        config: Settings of the new stores.
        job: A name that no other job has.
    """

    out: str
    config: ConfigLike = None
    job: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def root(self) -> Path:
        """The directory of everything that is not there yet."""
        return Path(self.out) / f"_mqstore-{self.job}"

    @contextlib.contextmanager
    def store(self, name: str, attempt: int) -> Iterator[tuple[mqstore.Store, str]]:
        """A new store to write, and its path; it is removed again when writing fails.

        Args:
            name: What the store is to be called.
            attempt: The task's attempt, which no other has.
        """
        path = self.root / f"{name}.{attempt}"
        try:
            with mqstore.open(path, "a", config=self.config) as store:
                yield store, str(path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def publish(self, staged: Iterable[tuple[str, str]], *, replace: Iterable[Path] = ()) -> None:
        """Renames staged stores to their names, all or none.

        Args:
            staged: Name and path of each.
            replace: Stores that go when these come.

        Raises:
            StoreIOError: A name is taken, or a directory cannot be renamed; what was renamed is
                renamed back.
        """
        done: list[tuple[Path, Path]] = []
        staged, replace, out = list(staged), list(replace), Path(self.out)
        with self._listed(staged) if replace else contextlib.nullcontext():
            try:
                for old in replace:
                    _move(old, self.root / _OLD / old.relative_to(out), done)
                for name, path in staged:
                    _move(Path(path), out / name, done)
                sync(out)
            except OSError as error:
                for source, target in reversed(done):
                    target.rename(source)
                (self.root / _LIST).unlink(missing_ok=True)
                raise StoreIOError(
                    f"{error.filename2 or error.filename}: rename: {error.strerror}",
                    error.errno,
                    str(error.filename2 or error.filename),
                    "rename",
                ) from error
            self.discard()

    @contextlib.contextmanager
    def _listed(self, staged: list[tuple[str, str]]) -> Iterator[None]:
        """Keeps for ``cure`` what is published, locked for as long as this process does it."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / _LIST).open("w", encoding="utf-8") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            # From here, since the folder may be renamed before it is cured.
            json.dump([(name, os.path.relpath(path, self.root)) for name, path in staged], file)
            file.flush()
            os.fsync(file.fileno())
            yield

    def discard(self) -> None:
        """Removes everything that was staged."""
        _remove(self.root)

    def abort(self) -> None:
        """Removes what was staged, but what a killed commit was replacing comes back first."""
        out = Path(self.out)
        cure(out)
        if not (self.root / _LIST).exists():
            self.discard()


def cure(out: Path) -> None:
    """Ends what a driver left that was killed while it replaced stores, all or none of them."""
    for names in out.glob(f"_mqstore-*/{_LIST}"):
        try:
            with names.open("r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _cure(names.parent, out, json.load(file))
        except BlockingIOError:  # its driver lives
            continue
        except (OSError, ValueError) as error:
            text = "%s has stores that overwrite was replacing, which stay there: %s"
            _log.warning(text, names.parent, error)


def _cure(root: Path, out: Path, staged: list[tuple[str, str]]) -> None:
    moves = [(root / path, out / name) for name, path in staged]
    if all(path.exists() for path, _ in moves):
        # No new store has its name.
        moves = [(one, out / one.name) for one in (root / _OLD).glob("*") if is_store(one)]
    for path, target in moves:
        if path.exists():
            _move(path, target, [])
        elif not target.exists():
            raise FileNotFoundError(2, "it is neither here nor there", str(path))
    sync(out)
    _remove(root)


def _remove(root: Path) -> None:
    # The list first: what is left of a removal is no publishing.
    (root / _LIST).unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)


def _move(source: Path, target: Path, done: list[tuple[Path, Path]]) -> None:
    # A rename onto an empty directory would take its place.
    if target.exists():
        raise FileExistsError(17, "there is something of that name", str(source), None, str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    done.append((source, target))


class Rows:
    """Appends the rows of one task, and does with bad ones what ``badRows`` says.

    Args:
        staging: Where they are kept until the job is done.
        bad_rows: ``fail``, ``drop`` or ``quarantine``.
        task: The task's number.
        attempt: The task's attempt.
    """

    def __init__(self, staging: Staging, bad_rows: str, task: int, attempt: int) -> None:
        self.bad_rows = bad_rows
        self.task = task
        self.row = 0
        self.dropped = 0
        self.path = staging.root / f"bad-{task}.{attempt}.parquet"
        self._writer: pq.ParquetWriter | None = None

    def append(self, store: mqstore.Store, batch: pa.RecordBatch) -> None:
        """Appends the rows of a batch.

        Raises:
            InvalidMessageError: A row is no message, and ``badRows`` is ``fail``.
        """
        rest = batch
        self.row += batch.num_rows
        while rest.num_rows:
            begin = self.row - rest.num_rows
            try:
                store.append_arrow(pa.Table.from_batches([rest]), atomic=self.bad_rows != "fail")
            except InvalidMessageError as error:
                if (at := getattr(error, "index", None)) is None:
                    raise
                text = f"row {begin + at} of task {self.task}: {str(error).partition('; ')[0]}"
                if self.bad_rows == "fail":
                    raise InvalidMessageError(
                        f"{text}; rows are counted from 0; option badRows=drop leaves such rows "
                        "out, badRows=quarantine keeps them in _bad_rows of the target",
                        error.field,
                        error.status,
                        error.limit,
                    ) from None
                self._keep(rest.slice(at, 1), begin + at, str(error).partition("; ")[0])
                if at:
                    store.append_arrow(pa.Table.from_batches([rest.slice(0, at)]))
                rest = rest.slice(at + 1)
            else:
                return

    def close(self) -> str | None:
        """Ends the file of bad rows; its path if there are some."""
        if self.dropped and self.bad_rows == "drop":
            _log.warning("task %d: badRows=drop left out %d rows", self.task, self.dropped)
        if self._writer is None:
            return None
        self._writer.close()
        return str(self.path)

    def _keep(self, row: pa.RecordBatch, number: int, text: str) -> None:
        self.dropped += 1
        if self.bad_rows == "drop":
            return
        kept = row.append_column("row", pa.array([number])).append_column("error", pa.array([text]))
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self.path, kept.schema)
        self._writer.write_batch(kept)


def is_store(path: Path) -> bool:
    """Whether a directory is a store."""
    return (path / "commitlog").is_dir()


def check_out(out: str) -> Path:
    """The directory that new stores go to, made if need be.

    Raises:
        ConfigError: It is a store itself.
        StoreIOError: It cannot be made.
    """
    path = Path(out)
    if is_store(path):
        raise ConfigError(
            f"path {out!r} is a store itself; new stores are made in a directory beside it", "path"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreIOError(f"{out}: mkdir: {error.strerror}", error.errno, out, "mkdir") from error
    cure(path)
    return path


def stores_in(out: Path, *, written: bool = False) -> list[Path]:
    """The stores in a directory.

    Args:
        out: The directory.
        written: Whether a store may be there that a process writes to.

    Raises:
        StoreLockedError: A process writes to one of them.
    """
    stores = [path for path in sorted(out.iterdir()) if is_store(path)]
    for path in [] if written else stores:
        locked, pid = mqstore.lock_state(path)
        if locked:
            by = "" if pid is None else f" by process {pid}"
            raise StoreLockedError(f"{path}: locked{by}; it is not replaced", str(path), pid)
    return stores
