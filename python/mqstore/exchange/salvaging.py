"""Whole messages out of damaged files."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore import _native
from mqstore.errors import checked
from mqstore.results import _Report as Report
from mqstore.store import connect, is_remote, local, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mqstore.config import ConfigLike

# Entries of queue and index, the record of a stand-in; and files of a store without messages.
_BESIDE_MESSAGE = 300
_BESIDE_STORE = 8 << 20


class SalvagedFile(NamedTuple):
    """Result for one file."""

    path: str
    """The file."""
    bytes: int
    """Its length."""
    messages: int
    """Whole messages in it."""
    message_bytes: int
    """Their bytes."""
    other_ranges: int
    """Ranges that are neither messages nor zeros: of a log, its damages."""
    other_bytes: int
    """Their bytes."""
    left: int
    """Likely messages not checked, because too many before them were false."""
    passed_over: int
    """Messages whose lengths add up, and that are not whole, or not known to be."""


class PassedOver(NamedTuple):
    """A message with consistent lengths that was not copied, for one reason."""

    path: str
    """The file that holds it."""
    offset: int
    """The byte at which it begins there."""
    bytes: int
    """Its length."""
    physical_offset: int
    """Physical offset stored in it."""
    reason: str
    """Reason why it was not taken."""


class SalvageProblem(NamedTuple):
    """A file that could not be read or used."""

    path: str
    """The file."""
    reason: str
    """The problem, and what was done instead."""


class SalvageConflict(NamedTuple):
    """Two messages that are not the same and name the same place in the log; both are kept."""

    physical_offset: int
    """The place."""
    first_path: str
    """The file that holds the one."""
    first_offset: int
    """The byte at which it begins there."""
    second_path: str
    """The file that holds the other."""
    second_offset: int
    """The byte at which it begins there."""


@dataclass(frozen=True, slots=True)
class SalvageReport(Report):
    """Result of ``salvage``.

    Attributes:
        source: The source: a store, folder or file.
        out: The new store; ``None`` where none was written.
        messages: Whole messages, each counted once.
        bytes: Bytes of their records.
        files: Result for each file.
        duplicates: Messages that were found a second time, the same byte for byte.
        conflict_count: Messages that name the same place in the log as another, different one.
        conflicts: The first 1,000 of them.
        overlapping: Messages that begin inside of the one before them in the log.
        queues: Queues that hold one of the messages.
        renumbered: Queues, as topic and number, that could not keep their numbers: messages stand
            twice, a broker would act on stand-ins, or they would be too many. Their messages stand
            close together now, and the consumer offsets were moved with them. All others, and the
            consumer offsets in them, have kept their numbers.
        missing: How many queue offsets have no message, between the first and the last of a queue.
        stand_ins: How many empty messages stand in for missing ones, with the property
            ``MQSTORE_LEFT_OUT``.
        space_bytes: About how much room the new store takes on the disk.
        in_place: Whether every record lies at the physical offset that it names; ``None`` where
            nothing was written.
        config_files: The files of the store's ``config`` that came along; of a damaged one its
            backup.
        passed_over_count: Messages whose lengths add up and that were not taken.
        passed_over: The first 1,000 of them, each with its place and the reason.
        problems: Files that could not be read or made use of: of the log, or damaged tables of the
            configuration.
        in_use: Whether a process writes to the store: what it wrote since the salvage began is left
            behind.
    """

    source: str
    out: str | None
    messages: int
    bytes: int
    files: tuple[SalvagedFile, ...] = ()
    duplicates: int = 0
    conflict_count: int = 0
    conflicts: tuple[SalvageConflict, ...] = ()
    overlapping: int = 0
    queues: int = 0
    renumbered: tuple[tuple[str, int], ...] = ()
    missing: int = 0
    stand_ins: int = 0
    space_bytes: int = 0
    in_place: bool | None = None
    config_files: tuple[str, ...] = ()
    passed_over_count: int = 0
    passed_over: tuple[PassedOver, ...] = ()
    problems: tuple[SalvageProblem, ...] = ()
    in_use: bool = False


def _keep_owner(source: Path, out: Path) -> None:
    """Gives the new files owner and mode of the source's: of the same file, else of its first."""
    inside = sorted(source.rglob("*")) if source.is_dir() else []
    first = next((path for path in inside if path.is_file()), source)

    def apply_owner(descriptor: int, path: Path, *, is_folder: bool) -> None:
        like = source / path.relative_to(out)
        if like.is_symlink() or not like.exists() or like.is_dir() != is_folder:
            like = source if is_folder else first
        if is_folder and not like.is_dir():
            return
        stat = like.stat()
        with suppress(PermissionError):
            os.fchown(descriptor, stat.st_uid, stat.st_gid)
        os.fchmod(descriptor, stat.st_mode & 0o777 | (0o700 if is_folder else 0o600))

    # Each before the folder that it lies in, by descriptor: an owner could put a link in its place.
    for folder, _, names, descriptor in os.fwalk(out, topdown=False):
        for name in names:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
            try:
                apply_owner(file, Path(folder, name), is_folder=False)
            finally:
                os.close(file)
        apply_owner(descriptor, Path(folder), is_folder=True)


@checked
def salvage(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> SalvageReport:
    """Carves whole messages out of damaged or partial files, and makes a store of them.

    A message counts as whole when its lengths add up and its body has its checksum, and so has the
    record where it holds one. Nothing else is asked for: it may begin at any byte of any file, so
    damaged, cut, renamed and joined commit log files will do, and images of disks. What lies in
    several files comes once. Queue offsets are kept, with empty stand-ins for lost messages, and so
    are consumer offsets, sizes of files, the layout of the index, and owner and mode of the
    source's files, the owner where the system lets this process give files away. A file or a place
    that cannot be read and a damaged table of the configuration stop nothing: the report names
    them, and each message that looks whole and was not taken.

    Args:
        source: A store, a folder with files of a log, or one file. It is read only.
        out: The store to make; nothing, or an empty folder, may be there now. ``None`` looks, and
            writes nothing.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``mqstore.open``, for the new store. What it leaves out is taken from the
            files where their names and lengths tell.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No file is there to read.
        ConfigError: A setting that cannot be, or an `out` inside of `source`.
        UnsupportedError: More loose pieces than can be put in order.
        StoreIOError: Something is at `out` already, or the system refused something.
    """
    source = connect(source, storage_options)
    local(out, "mqstore.salvage")
    in_use = _is_written(source)
    real, real_out = source, out
    if not is_remote(source) and Path(source).is_symlink():  # links below it are not followed
        real = os.path.realpath(source)
        real_out = out and Path(os.path.realpath(Path(out).parent), Path(out).name)
    found = _native.salvage(real, real_out, progress=progress, settings=settings_of(config))
    if out is not None and not is_remote(source):
        _keep_owner(Path(real), Path(out))
    messages = found["messages"] + found["stand_ins"]
    return SalvageReport.made_of(
        found,
        source=str(source),
        out=None if out is None else str(out),
        space_bytes=found["bytes"] + _BESIDE_MESSAGE * messages + _BESIDE_STORE,
        passed_over_count=sum(SalvagedFile(*row).passed_over for row in found["files"]),
        in_use=in_use or _is_written(source),
    )


def _is_written(source: str | os.PathLike[str]) -> bool:
    """Whether a process writes to the store, or to the one that the folder or file belongs to."""
    if is_remote(source):
        return False
    paths = Path(source).absolute(), Path(source).resolve()
    roots = {root for path in paths for root in (path, *path.parents[:2])}
    return any(_native.lock_state(root)[0] for root in roots)
