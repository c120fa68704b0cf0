"""The functions ``check_backup`` and ``prune``, and files of a log that a backup has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mqstore.backup.snapshot import (
    Loaded,
    day_ms,
    document_name,
    ids,
    load,
    ranges_of,
    shown,
    time_ms_of,
)
from mqstore.backup.target import damaged, digest_of, existing, object_name, target_of
from mqstore.errors import CorruptionError
from mqstore.results import Finding, VerifyReport, _Report

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from mqstore.backup.target import Target

__all__ = ["PruneReport", "check_backup", "prune"]

_AT_ONCE = 8
_LEAST_AGE_S = 24 * 3600
_FIXES = {
    "MQ-BK-01": (
        "put the object back from a copy of the backup; without one `mqstore sync STORE TARGET` "
        "keeps what the store still has, and snapshots that need no damaged object stay readable"
    ),
    "MQ-BK-02": (
        "put the document back from a copy of the backup; other snapshots stay readable, and the "
        "next `mqstore sync STORE TARGET` writes a new one"
    ),
}


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
    needed: dict[str, int] = {}
    known = ids(found)
    for name in known:
        try:
            loaded = load(found, name)
            for digest, size in _needs(found, loaded, day_ms(known[0][:8])):
                needed[digest] = max(size, needed.get(digest, 0))
        except CorruptionError as error:
            code = "MQ-BK-02" if error.path == f"{found.url}/{document_name(name)}" else "MQ-BK-01"
            findings.setdefault(str(error.path), _finding(found, code, error))
    count = total = 0
    digests = list(needed)
    for at in range(0, len(digests), _AT_ONCE):
        several = digests[at : at + _AT_ONCE]
        contents = found.get([object_name(digest) for digest in several])
        for digest, content in zip(several, contents, strict=True):
            name = object_name(digest)
            if content is None:
                wrong = damaged(found, name, "an object", "nothing")
            elif digest_of(content) != digest:
                wrong = damaged(found, name, "the content that its name proves", "other content")
            elif len(content) < needed[digest]:
                wrong = damaged(found, name, f"{needed[digest]} bytes", f"{len(content)} bytes")
            else:
                count, total = count + 1, total + len(content)
                continue
            findings.setdefault(str(wrong.path), _finding(found, "MQ-BK-01", wrong))
        if progress is not None:
            progress(min(at + _AT_ONCE, len(digests)), len(digests))
    counts = {"snapshots": len(known), "objects": count, "bytes": total}
    return VerifyReport(found.url, "full", not findings, tuple(findings.values()), counts)


def _finding(target: Target, code: str, error: CorruptionError) -> Finding:
    path = str(error.path).removeprefix(f"{target.url}/")
    return Finding(
        code, "error", path, None, error.expected, error.found,
        f"{path}: expected {error.expected}, found {error.found}", _FIXES[code],
    )  # fmt: skip


def _needs(target: Target, loaded: Loaded, floor_ms: int) -> Iterator[tuple[str, int]]:
    """Each object that a snapshot needs, and the bytes that it must have."""
    if loaded.base:
        yield loaded.base, 1
    for file in shown(loaded.files, floor_ms).values():
        if file.manifest:
            yield file.manifest, 1
        for _, size, digest, place in ranges_of(target, file):
            yield digest, place + size


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
        keep: Snapshots so young stay.
        keep_hourly: The newest snapshot of each of so many hours stays too, counted back over hours
            that have one.
        dry_run: Only returns the plan.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: There is no backup.
        CorruptionError: A snapshot that stays cannot be read: then nothing is deleted.
        StoreIOError: The target cannot be read or written.
    """
    if keep < timedelta(0) or keep_hourly < 0:
        name, given = ("keep", keep) if keep < timedelta(0) else ("keep_hourly", keep_hourly)
        raise ValueError(f"{name}: expected 0 or more, got {given}; nothing was deleted")
    found = existing(target_of(target, storage_options))
    known = ids(found)
    now_s = found.now()
    least_ms = (now_s - keep.total_seconds()) * 1000
    hours = {name[:11]: name for name in known}
    stays = {name for name in known if time_ms_of(name) >= least_ms} | set(known[-1:])
    if keep_hourly > 0:
        stays |= {hours[hour] for hour in sorted(hours)[-keep_hourly:]}
    removed = [name for name in known if name not in stays]
    # Read before anything goes: what cannot be read may need any object.
    needed = _needed(found, stays)
    if not dry_run:
        found.remove([document_name(name) for name in removed])
        needed |= _needed(found, set(ids(found)) - stays)
    unneeded = [
        (name, size, now_s - time_s)
        for name, size, time_s in found.names("objects")
        if name.rpartition("/")[2] not in needed
    ]
    going = [(name, size) for name, size, age_s in unneeded if age_s >= _LEAST_AGE_S]
    if not dry_run:
        found.remove([name for name, _ in going])
    return PruneReport(
        target=found.url,
        applied=not dry_run,
        kept=tuple(sorted(stays)),
        removed=tuple(removed),
        objects=len(going),
        bytes=sum(size for _, size in going),
        waiting=len(unneeded) - len(going),
    )


def _needed(target: Target, several: set[str]) -> set[str]:
    """Digests of the objects that snapshots need."""
    floor_ms = day_ms(min(several)[:8]) if several else 0
    found: set[str] = set()
    for name in several:
        loaded = load(target, name)
        found |= {digest for digest, _ in _needs(target, loaded, floor_ms)}
    return found
