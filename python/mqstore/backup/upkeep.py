"""The functions ``check_backup`` and ``prune``, and files of a log that a backup has."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mqstore.backup.snapshot import (
    File,
    Loaded,
    document_name,
    ids,
    load,
    log_name,
    needed,
    newest,
    ranges_of,
    same_bytes,
    shown,
    time_ms_of,
)
from mqstore.backup.source import SourceFile
from mqstore.backup.target import digest_of, existing, object_name, target_of
from mqstore.errors import ConfigError, CorruptionError, MessageNotFoundError, checked
from mqstore.results import Finding, VerifyReport, _Report

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mqstore.backup.target import Target


_AT_ONCE = 8
_CLOCK_MS = 60_000
_LEAST_AGE_S = 24 * 3600
_DELETED_AT_ONCE = 256
_FIXES = {
    "MQ-BK-01": (
        "put the object back from a copy of the backup; without one delete it, and "
        "`mqstore sync STORE TARGET --verify` copies again what the store still has; snapshots "
        "that need no damaged object stay readable"
    ),
    "MQ-BK-02": (
        "put the document back from a copy of the backup, or delete it; other snapshots stay "
        "readable, and `mqstore sync STORE TARGET` goes on from the newest of them"
    ),
}


@checked
def check_backup(
    target: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Reads every object that a snapshot of a backup needs, and compares it with its checksum.

    Args:
        target: The backup: a folder or a URL.
        progress: Called with ``(done_objects, total_objects)`` now and then.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Returns:
        The findings: ``MQ-BK-01`` for an object, ``MQ-BK-02`` for a snapshot. ``counts`` has
        ``snapshots``, ``objects`` and ``bytes``.

    Raises:
        NotAStoreError: There is no backup.
        UnsupportedError: The backup's format is newer than this mqstore.
        StoreIOError: The target cannot be read.
    """
    found = existing(target_of(target, storage_options))
    findings: dict[str, Finding] = {}

    def note(code: str, error: CorruptionError) -> None:
        path = str(error.path).removeprefix(f"{found.url}/")
        text = f"{path}: expected {error.expected}, found {error.found}"
        finding = Finding(
            code, "error", path, None, error.expected, error.found, text, _FIXES[code]
        )
        findings.setdefault(path, finding)

    known = ids(found)
    needs = _Needs(found, min(known, default=""))
    for name in known:
        try:
            needs.add(name)
        except CorruptionError as error:
            is_document = error.path == f"{found.url}/{document_name(name)}"
            note("MQ-BK-02" if is_document else "MQ-BK-01", error)
    count, total, digests = 0, 0, list(needs.bytes)
    for at in range(0, len(digests), _AT_ONCE):
        several = digests[at : at + _AT_ONCE]
        contents = found.get([object_name(digest) for digest in several])
        for digest, content in zip(several, contents, strict=True):
            try:
                found.proven(digest, content, needs.bytes[digest])
                count, total = count + 1, total + len(content or b"")
            except CorruptionError as error:
                note("MQ-BK-01", error)
        if progress is not None:
            progress(min(at + _AT_ONCE, len(digests)), len(digests))
    counts = {"snapshots": len(known), "objects": count, "bytes": total}
    return VerifyReport(found.url, "full", not findings, tuple(findings.values()), counts)


@dataclass
class _Needs:
    """Objects that snapshots need, and the bytes that each must have."""

    _target: Target
    _oldest: str
    bytes: dict[str, int] = field(default_factory=dict)
    _last: Loaded | None = None

    def add(self, name: str) -> None:
        """Adds those of a snapshot; one that was deleted meanwhile needs none."""
        try:
            self._last = loaded = load(self._target, name, self._last)
        except MessageNotFoundError:
            return
        if loaded.base:
            self.bytes.setdefault(loaded.base, 1)
        for file in shown(loaded.files, self._oldest).values():
            # The same manifest needs the same objects.
            if file.manifest not in self.bytes:
                for digest, size in needed(self._target, file):
                    self.bytes[digest] = max(size, self.bytes.get(digest, 0))


@dataclass(frozen=True, slots=True)
class PruneReport(_Report):
    """Result or plan of ``mqstore.prune``.

    Attributes:
        target: The backup.
        applied: Whether they were deleted; ``False`` for a dry run.
        kept: Ids of the snapshots that stay, oldest first.
        removed: Ids of the snapshots that go.
        objects: Objects that go.
        bytes: Their bytes.
        waiting: Objects that no snapshot needs and that stay for their first 24 hours.
    """

    target: str
    applied: bool
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    objects: int
    bytes: int
    waiting: int


@checked
def prune(
    target: str | os.PathLike[str],
    *,
    keep: timedelta,
    keep_hourly: int = 0,
    dry_run: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> PruneReport:
    """Deletes old snapshots of a backup, then objects that no other snapshot needs.

    Log files that the store had deleted before the day of the oldest snapshot left go too. The
    newest snapshot always stays, and so does an object for 24 hours by the target's clock. A sync
    may run.

    Args:
        target: The backup: a folder or a URL.
        keep: Snapshots stay that are no more than so much older than the newest one.
        keep_hourly: The newest snapshot of each of so many hours stays too, counted back over hours
            that have one.
        dry_run: Only returns the plan.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: There is no backup.
        CorruptionError: A snapshot that stays cannot be read: then nothing is deleted.
        MessageNotFoundError: There is no snapshot: then nothing is deleted.
        StoreIOError: The target cannot be read or written.
    """
    if keep < timedelta(0) or keep_hourly < 0:
        name, given = ("keep", keep) if keep < timedelta(0) else ("keep_hourly", keep_hourly)
        raise ValueError(f"{name}: expected 0 or more, got {given}; nothing was deleted")
    found = existing(target_of(target, storage_options))
    known = ids(found)
    if not known and not dry_run:
        text = f"target: expected a backup with snapshots, {found.url} has none"
        raise MessageNotFoundError(f"{text}; nothing was deleted: look for its folder snapshots")
    now_s = time.time() if dry_run else found.clock_s()
    # A clock that was ahead once makes no other snapshot old.
    newest_ms = min(max(map(time_ms_of, known), default=0), now_s * 1000)
    least_ms = newest_ms - keep.total_seconds() * 1000
    hours = {name[:11]: name for name in known}
    stays = {name for name in known if time_ms_of(name) >= least_ms}
    stays |= {*[name for name in known if time_ms_of(name) <= now_s * 1000 + _CLOCK_MS][-1:]}
    if keep_hourly > 0:
        stays |= {hours[hour] for hour in sorted(hours)[-keep_hourly:]}
    removed = [name for name in known if name not in stays]
    # Read before anything goes: what cannot be read may need any object.
    needs = _Needs(found, min(stays, default=""))
    for name in sorted(stays):
        needs.add(name)
    since_s, ended = _since(found, now_s)
    if not dry_run:
        found.remove([document_name(name) for name in removed] + ended)
        # Killed syncs leave temporary files, which keep an empty day's folder.
        listed = found.names("snapshots")
        found.remove([name for name, _, time_s in listed if "/." in name and time_s <= since_s])
    objects = found.names("objects")
    unneeded = [entry for entry in objects if entry[0].rpartition("/")[2] not in needs.bytes]
    going = {name: size for name, size, time_s in unneeded if time_s <= since_s}
    names = [] if dry_run else list(going)
    for at in range(0, len(names), _DELETED_AT_ONCE):
        # A sync may have written a snapshot meanwhile, or may reuse an object.
        for name in set(ids(found)) - stays:
            needs.add(name)
            stays.add(name)
        several = names[at : at + _DELETED_AT_ONCE]
        times = zip(several, found.times(several), strict=True)
        old = [name for name, time_s in times if time_s is not None and time_s <= since_s]
        found.remove([name for name in old if name.rpartition("/")[2] not in needs.bytes])
    return PruneReport(
        found.url, not dry_run, tuple(sorted(stays)), tuple(removed), len(going),
        sum(going.values()), len(unneeded) - len(going),
    )  # fmt: skip


def _since(target: Target, now_s: float) -> tuple[float, list[str]]:
    """Unix time from which on objects stay, and names that syncs left that ended.

    Objects stay for 24 hours, and while a sync lasts that began before they were written.
    """
    least_s = since_s = now_s - _LEAST_AGE_S
    ended = []
    for name, _, time_s in target.names("syncs"):
        lasted_s = name.rpartition("-")[2]
        if time_s <= least_s:
            ended.append(name)
        elif lasted_s.isdecimal():
            since_s = min(since_s, time_s - int(lasted_s))
    return since_s, ended


def backed_up_end(
    target: str | os.PathLike[str],
    files: Mapping[int, Path],
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Physical offset up to which the newest snapshot has each byte of log files.

    The files follow each other, and are given by the physical offset at which each begins.
    """
    found, end = existing(target_of(target, storage_options)), 0
    loaded = newest(found)
    if loaded is None:
        return 0
    if loaded.snapshot.redact:
        text = f"expected a backup of every byte, {found.url} lacks {loaded.snapshot.redact}"
        raise ConfigError(f"only_backed_up: {text}; nothing was deleted", "only_backed_up")
    for at, path in files.items():
        kept = loaded.files.get(log_name(at))
        if kept is None or not is_kept(found, kept, path):
            break
        end = at + kept.length
    # A sync withdraws a snapshot that lacks an object after all.
    return end if found.times([document_name(loaded.snapshot.id)]) != [None] else 0


def is_kept(
    target: Target,
    kept: File,
    path: Path,
    opened: Callable[[Path], SourceFile] = SourceFile,
    *,
    by_digest: bool = False,
) -> bool:
    """Whether a backup has each byte of a file; `by_digest` as for ``first_difference``."""
    # `prune` would delete one that the store has lost before.
    if kept.gone_ms:
        return False
    try:
        with opened(path) as file:
            if kept.length != file.length:
                return False
            return first_difference(target, kept, file, file.length, by_digest=by_digest) is None
    except FileNotFoundError:  # the store's retention deleted it meanwhile
        return False


def first_difference(
    target: Target, kept: File, file: SourceFile, end: int, *, by_digest: bool = False
) -> int | None:
    """Position of the first byte before `end` that a backup has otherwise; ``None`` without one.

    With `by_digest` the names of objects prove their content, and few are read.
    """
    at = 0
    for one in ranges_of(target, kept):
        # Zeros between ranges are not kept.
        if between := next(file.pieces(at, min(one.begin, file.length)), None):
            return between[0]
        at, there = one.end, file.read(one.begin, one.end)
        if by_digest and one.place == 0 and digest_of(there) == one.digest:
            continue
        content = target.objects([one.digest])[0][one.place : one.place + one.size]
        if content != there:
            return one.begin + same_bytes(content, there)
    return next((place for place, _ in file.pieces(at, end)), None)
