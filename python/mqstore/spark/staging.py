"""New stores that nobody sees until all of them are whole.

Each attempt of a task writes into a directory of its own below ``<out>/_mqstore-<job>``; the driver
renames the ones that count, and removes the rest. Nothing below that name is found by a glob of
stores, so that what a killed driver leaves there is only space, never a half store.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import mqstore
from mqstore.errors import ConfigError, StoreIOError, StoreLockedError
from mqstore.files.durable import sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore.config import ConfigLike


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
        try:
            for number, old in enumerate(replace):
                _move(old, self.root / f"replaced-{number}", done)
            for name, path in staged:
                _move(Path(path), Path(self.out) / name, done)
            sync(Path(self.out))
        except OSError as error:
            for source, target in reversed(done):
                target.rename(source)
            raise StoreIOError(
                f"{error.filename2 or error.filename}: rename: {error.strerror}",
                error.errno,
                str(error.filename2 or error.filename),
                "rename",
            ) from error
        self.discard()

    def discard(self) -> None:
        """Removes everything that was staged."""
        shutil.rmtree(self.root, ignore_errors=True)


def _move(source: Path, target: Path, done: list[tuple[Path, Path]]) -> None:
    # A rename onto an empty directory would take its place.
    if target.exists():
        raise FileExistsError(17, "there is something of that name", str(source), None, str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    done.append((source, target))


def append(store: mqstore.Store, batch: pa.RecordBatch) -> int:
    """Appends the rows of a batch; how many there were."""
    return store.append_arrow(pa.Table.from_batches([batch])).count


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
