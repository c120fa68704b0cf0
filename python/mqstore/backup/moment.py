"""Moments of a backup: which snapshots show a store as it was."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import mqstore
from mqstore import _native
from mqstore.backup.snapshot import (
    Loaded,
    Snapshot,
    ids,
    load,
    log_files,
    log_name,
    newest,
    ranges_of,
    same_bytes,
    shown,
    time_ms_of,
)
from mqstore.backup.target import existing, target_of
from mqstore.backup.view import BackupFiles
from mqstore.errors import MessageNotFoundError, OffsetOutOfRangeError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mqstore.backup.target import Target
    from mqstore.files.remote_path import RemotePath


_CLOCK_MS = 60_000
"""Store times so far behind the snapshot that has them are believed."""


def snapshots(
    target: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> list[Snapshot]:
    """Returns the snapshots of a backup, oldest first.

    Args:
        target: The backup: a folder or a URL.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: There is no backup.
        CorruptionError: A snapshot cannot be read; ``mqstore.check_backup`` reports all.
        UnsupportedError: The backup's format is newer than this mqstore.
        StoreIOError: An object cannot be read.
    """
    found = existing(target_of(target, storage_options))
    several: list[Snapshot] = []
    for name in ids(found):
        with contextlib.suppress(MessageNotFoundError):  # pruned meanwhile
            several.append(load(found, name).snapshot)
    return several


def newest_snapshot(
    target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Snapshot | None:
    """The newest snapshot of a backup; ``None`` without one."""
    loaded = newest(existing(target_of(target, storage_options)))
    return None if loaded is None else loaded.snapshot


def backup_path(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    at: datetime | int | None,
    snapshot: str | None,
) -> RemotePath:
    """The files of a store at a moment of a backup; arguments as of ``mqstore.open``."""
    target = existing(target_of(path, storage_options or None))
    return files_at(target, at=at, snapshot=snapshot).path()


def files_at(
    target: Target,
    *,
    at: datetime | int | None = None,
    snapshot: str | None = None,
    to_offset: int | None = None,
) -> BackupFiles:
    """The files of a store at a moment; the newest snapshot's without one.

    Args:
        target: The backup.
        at: A time: the log ends before the first record that was stored later.
        snapshot: Id of a snapshot.
        to_offset: A physical offset: the log ends before the first record that reaches beyond it.

    Raises:
        MessageNotFoundError: There is no such snapshot, or all messages are later than `at`.
        OffsetOutOfRangeError: The backup does not reach `to_offset`.
        ValueError: More than one of them.
    """
    if sum(given is not None for given in (at, snapshot, to_offset)) > 1:
        raise ValueError("at, snapshot, to_offset: expected one of them, got several")
    known = ids(target)
    if snapshot is not None:
        return BackupFiles(target, _load(target, snapshot, known))
    if not known:
        raise MessageNotFoundError(
            f"snapshot: {target.url} has none yet: mqstore sync STORE TARGET"
        )
    if at is not None:
        return _at_time(target, known, _native._time_ms(at))  # noqa: SLF001 - our own
    last = _load(target, known[-1], known)
    if to_offset is None or to_offset == last.snapshot.end_offset:
        return BackupFiles(target, last)
    return _to_offset(target, known, last, to_offset)


def _load(target: Target, name: str, known: Sequence[str]) -> Loaded:
    """A snapshot without files that the store had deleted before the oldest one's day."""
    loaded = load(target, name)
    loaded.files = shown(loaded.files, known[0])
    return loaded


def _at_time(target: Target, known: list[str], at_ms: int) -> BackupFiles:
    earlier = [name for name in known if time_ms_of(name) <= at_ms]
    later = known[len(earlier) :]
    before = _load(target, earlier[-1], known) if earlier else None
    if not later and before is not None:
        return BackupFiles(target, before)
    after = _load(target, later[0], known)
    timeline = after.snapshot.timeline
    is_fork = before is not None and before.snapshot.timeline != timeline
    if before is None:
        start = min(log_files(after.files), default=0)
    else:
        start = _fork_of(target, before, after) if is_fork else before.snapshot.end_offset
    cut = _first_later(target, after, start, at_ms)
    for name in later[1:]:
        following = _load(target, name, known) if cut == after.snapshot.end_offset else None
        # Where a clock was set back, a later snapshot too may have records of before.
        if following is None or following.snapshot.timeline != timeline:
            break
        after, cut = following, _first_later(target, following, cut, at_ms)
    if before is None and cut <= start:
        first = after.snapshot
        text = f"at: expected a time that {target.url} reaches back to, got an earlier one"
        raise MessageNotFoundError(f"{text}; its first snapshot is {first.id} of {first.time}")
    if before is not None and is_fork and cut <= start:
        return BackupFiles(target, before)  # the log was cut after that time
    return BackupFiles(target, after, cut, before)


def _fork_of(target: Target, before: Loaded, after: Loaded) -> int:
    """Where the logs of two snapshots differ; timelines between them may have been pruned."""
    views = [BackupFiles(target, one) for one in (before, after)]
    files = log_files(after.files)
    for at, kept in sorted(log_files(before.files).items()):
        there = files.get(at)
        if there is None:
            return min(at, before.snapshot.end_offset)
        if (kept.manifest, kept.ranges) == (there.manifest, there.ranges):
            continue
        same = {*ranges_of(target, there)}
        for one in ranges_of(target, kept):
            if one not in same:
                was, now = (view.read(log_name(at), one.begin, one.end) for view in views)
                if was != now:
                    return at + one.begin + same_bytes(was, now)
    return before.snapshot.end_offset


def _first_later(target: Target, after: Loaded, start: int, at_ms: int) -> int:
    """Where the first record begins that was stored after a time."""
    most_ms = after.snapshot.time_ms + _CLOCK_MS
    with mqstore.open(BackupFiles(target, after).path()) as store:
        begin = max((at for at in log_files(after.files) if at <= start), default=start)
        for message in store.scan(
            # A fork may lie within a record.
            start_physical_offset=start if after.snapshot.fork_offset is None else begin,
            begin_ms=at_ms + 1,
            on_error="skip",
            decompress=False,
        ):
            is_new = message.physical_offset + message.store_size > start
            if is_new and message.store_timestamp_ms <= most_ms:
                return message.physical_offset
        return store.max_physical_offset


def _to_offset(target: Target, known: list[str], last: Loaded, to_offset: int) -> BackupFiles:
    reached: Loaded | None = None
    for name in reversed(known):
        found = _load(target, name, known)
        if found.snapshot.timeline != last.snapshot.timeline:
            break
        if found.snapshot.end_offset <= to_offset:
            reached = found
            break
        last = found
    end = last.snapshot.end_offset
    begin = min(log_files(last.files), default=last.snapshot.begin_offset)
    if not begin <= to_offset <= end:
        text = f"to_offset: expected {begin} to {end}, got {to_offset}; nothing was restored"
        raise OffsetOutOfRangeError(text, to_offset, begin, end)
    start = reached.snapshot.end_offset if reached else None
    with mqstore.open(BackupFiles(target, last).path()) as store:
        cut = start if start is not None else store.min_physical_offset
        for message in store.scan(
            start_physical_offset=cut, stop_physical_offset=to_offset, on_error="skip"
        ):
            if message.physical_offset + message.store_size > to_offset:
                break
            cut = message.physical_offset + message.store_size
    return BackupFiles(target, last, cut, reached)
