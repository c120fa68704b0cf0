"""The function ``restore``."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import mqstore
from mqstore._names import listed, missing_topics
from mqstore.backup.moment import SETTINGS, BackupFiles, files_at
from mqstore.backup.snapshot import kept_bytes, log_files
from mqstore.backup.source import PIECE, path_of
from mqstore.backup.target import existing, make_root, target_of
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    MessageNotFoundError,
    StoreLockedError,
    checked,
    io_errors,
    wrong_setting,
)
from mqstore.files.durable import sync, sync_up
from mqstore.results import Finding, _Report
from mqstore.store import check_outside, has_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime


_JOURNAL = "mqstore.restoring"
# A copy of single topics, whole; it is made in the folder that it is for, beside the journal.
_COPY = "mqstore.copying"
_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class RestoreReport(_Report):
    """Result or plan of ``mqstore.restore``.

    Attributes:
        target: The backup.
        path: The restored store.
        applied: Whether it was restored; ``False`` for a dry run.
        snapshot: Id of the snapshot that has the log.
        timeline: Timeline of the log.
        begin_offset: Physical offset of the log's first byte.
        end_offset: Physical offset of the log's end.
        files: Files of the moment.
        bytes: Bytes that the backup has of them.
        left_out: Files of the store that the snapshot lacks, a line for each kind.
        findings: What ``mqstore.verify`` reports of the restored store; empty for a dry run.
        topics: The topics that were asked for; empty for all.
        messages: How many of them there are in the queues of these topics; ``None`` for all.
        redact: ``"bodies"`` if the backup has zeros in the place of each body.
    """

    target: str
    path: str
    applied: bool
    snapshot: str
    timeline: str
    begin_offset: int
    end_offset: int
    files: int
    bytes: int
    left_out: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    topics: tuple[str, ...] = ()
    messages: int | None = None
    redact: str | None = None


@checked
def restore(
    target: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    at: datetime | int | None = None,
    snapshot: str | None = None,
    to_offset: int | None = None,
    topics: Iterable[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RestoreReport:
    """Makes a store of a moment of a backup, and verifies it.

    The log is byte for byte that of the moment, with files that the store has deleted since, as far
    as the backup has them. Queues and index are the backup's own. Configuration and offsets of
    groups are those of the nearest snapshot not after the moment; no offset leads beyond the log.
    The store is cleanly closed then, so a broker of the release that wrote it starts on it. A
    restore that was interrupted goes on when it is called again.

    Args:
        target: The backup: a folder or a URL.
        path: The new store's root folder; it must be empty or not there.
        at: A ``datetime`` or Unix milliseconds: the log ends before the first record that was
            stored later. The newest snapshot without it, `snapshot` and `to_offset`.
        snapshot: Id of a snapshot.
        to_offset: A physical offset: the log ends before the first record that reaches beyond it.
        topics: Only messages of these topics, as ``mqstore.copy`` copies them: they have the same
            queue offsets and other physical offsets. An interrupted copy begins again.
        dry_run: Only returns the plan.
        progress: Called with ``(done_bytes, total_bytes)`` now and then; an exception from it ends
            the work.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: There is no backup.
        MessageNotFoundError: The backup has no such snapshot, nothing as old as `at`, or not one
            of the topics.
        OffsetOutOfRangeError: The backup does not reach `to_offset`.
        ConfigError: The folder is not empty, or lies inside of the backup.
        StoreLockedError: Another restore writes there.
        CorruptionError: An object is missing or damaged; the error has its name. With `topics`: the
            log is damaged.
        StoreIOError: A file or an object cannot be read or written.

    Examples:
        >>> import mqstore, tempfile
        >>> folder, backup, new = (tempfile.mkdtemp() for _ in range(3))
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one")
        >>> _ = mqstore.sync(folder, backup)
        >>> report = mqstore.restore(backup, new)
        >>> report.findings, [message.body for message in mqstore.open(new).scan()]
        ((), [b'one'])
    """
    if has_scheme(path):
        raise wrong_setting("path", "a folder of this machine", f"the URL {path!s}")
    check_outside("path", path, target, "backup")
    files = files_at(
        existing(target_of(target, storage_options)),
        at=at, snapshot=snapshot, to_offset=to_offset,
    )  # fmt: skip
    moment = files.loaded.snapshot
    end = moment.end_offset if files.cut is None else files.cut
    names = sorted(name for name in files.files if name != SETTINGS or name not in files.made)
    size = sum(kept_bytes(files.files[name]) for name in names)
    report = RestoreReport(
        files.url, os.fspath(path), False, moment.id, moment.timeline,  # noqa: FBT003
        min(log_files(files.files), default=end), end, len(names), size, moment.left_out,
        redact=moment.redact,
    )  # fmt: skip
    out, settings = Path(path), files.loaded.settings
    plan = {"snapshot": moment.id, "end_offset": end, "configuration": files.configuration}
    if topics is not None:
        # Their order must not make another plan, in another process.
        plan["topics"] = topics = tuple(sorted(set(listed(topics) or ())))
        with mqstore.open(files.path()) as store:
            missing = missing_topics(store, topics) if topics else ["expected at least one"]
            if missing:
                text = f"topics: {'; '.join(missing)}; nothing was written"
                raise MessageNotFoundError(text)
            counts = (q.max_offset - q.min_offset for q in store.queues() if q.topic in topics)
            report = replace(report, topics=topics, messages=sum(counts))
    with io_errors("read", out):
        done = _begin(out, plan)
    if dry_run:
        return report
    with _journal(out, plan, done) as journal:
        if topics is None:
            _write(out, files, journal, [name for name in names if name not in done], progress)
            # Damage that the store had stays as it was, such as an index file of another length
            # than its settings make; the findings have it.
            with contextlib.suppress(ConfigError, CorruptionError):
                mqstore.recover(out, dry_run=False, config=settings)
            with mqstore.open(out, config=settings) as store:
                found = store.max_physical_offset
            if found != end:
                text = f"{out}: expected a log up to {end}, found one up to {found}"
                text += "; `mqstore snapshots TARGET --check` reports damage of the backup"
                raise CorruptionError(text, str(out), found, "log-end", str(end), str(found))
        else:
            if not done:
                _copy(out, files, topics, progress)
                _note(journal, "commitlog")
            with io_errors("delete", out / _COPY), contextlib.suppress(FileNotFoundError):
                (out / _COPY).rmdir()
        # Until it is verified, an interrupted restore goes on.
        findings = mqstore.verify(out, config=settings if topics is None else None).findings
        (out / _JOURNAL).unlink()
    sync(out)
    return replace(report, applied=True, findings=findings)


def _begin(out: Path, plan: dict[str, object]) -> set[str]:
    """The files that an interrupted restore has finished; refuses anything else that is there."""
    try:
        there = {path.name for path in out.iterdir()}
    except FileNotFoundError:
        return set()
    if not there or (there == {_JOURNAL} and not (out / _JOURNAL).stat().st_size):
        return set()
    if _JOURNAL in there:
        first, *names = (out / _JOURNAL).read_text("utf-8").split("\n")
        if first == json.dumps(plan):
            return set(names[:-1])  # the last line may have been cut
    advice = "nothing was written: take another folder, or empty it"
    raise wrong_setting("path", "an empty folder", f"{out} with {len(there)} entries", advice)


def _write(
    out: Path,
    files: BackupFiles,
    journal: TextIO,
    names: list[str],
    progress: Callable[[int, int], object] | None,
) -> None:
    """Writes files, and enters each in the journal once it is durable."""
    copied, total = 0, sum(files.files[name].end for name in names)
    # A store without a message has this folder, too.
    with io_errors("create", out):
        (out / "commitlog").mkdir(exist_ok=True)
    for name in names:
        path, has_data = path_of(out, name), False
        path.parent.mkdir(parents=True, exist_ok=True)
        with io_errors("write", path), path.open("wb") as file:
            file.truncate(files.files[name].length)
            for at, content in _pieces(files, name):
                kept = content.rstrip(b"\0")
                has_data = has_data or bool(kept)
                file.seek(at)
                file.write(kept)
                copied += len(content)
                if progress is not None:
                    progress(copied, total)
            file.flush()
            os.fsync(file.fileno())
        if not has_data and name.startswith(("consumequeue/", "batchconsumequeue/")):
            path.unlink()  # all of its entries led beyond the log's end
        sync_up(path.parent, out)
        _note(journal, name)


def _copy(
    out: Path,
    files: BackupFiles,
    topics: tuple[str, ...],
    progress: Callable[[int, int], object] | None,
) -> None:
    """Copies messages of topics into a folder that has the journal and nothing else of others."""
    copy = out / _COPY
    if not copy.exists():
        with io_errors("delete", out):
            for killed in out.glob(f".{_COPY}.*.partial"):
                shutil.rmtree(killed)
        try:
            mqstore.copy(
                files.path(), copy, topics=topics, allow_empty=True,
                config=files.loaded.settings, progress=progress,
            )  # fmt: skip
        except BaseException:
            if not copy.exists():  # then another moment may be restored there
                (out / _JOURNAL).unlink()
            raise
    with io_errors("rename", copy):
        # Before it has the log, the folder is no store.
        for path in sorted(copy.iterdir(), key=lambda path: path.name == "commitlog"):
            path.rename(out / path.name)
        sync(out)


def _pieces(files: BackupFiles, name: str) -> Iterator[tuple[int, bytes]]:
    """Parts of a file with their positions, of which several are fetched at once."""
    end = files.files[name].end
    for at in range(0, end, PIECE * _WINDOWS):
        begins = range(at, min(at + PIECE * _WINDOWS, end), PIECE)
        parts = [(begin, min(begin + PIECE, end)) for begin in begins]
        yield from zip(begins, files.ranges((name, end, "", 0), parts), strict=True)


@contextlib.contextmanager
def _journal(out: Path, plan: dict[str, object], done: set[str]) -> Iterator[TextIO]:
    with io_errors("create", out):
        make_root(out)
    with (out / _JOURNAL).open("a", encoding="utf-8") as journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"{out}: another restore writes there; this one wrote nothing: wait for its end"
            raise StoreLockedError(text, os.fspath(out)) from None
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.ENOTSUP}:
                raise
        if _begin(out, plan) != done:
            text = f"{out}: another restore wrote there; this one wrote nothing: run it again"
            raise StoreLockedError(text, os.fspath(out))
        if journal.tell() == 0:
            _note(journal, json.dumps(plan))
        yield journal


def _note(journal: TextIO, line: str) -> None:
    journal.write(f"{line}\n")
    journal.flush()
    os.fsync(journal.fileno())
