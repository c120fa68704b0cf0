"""The functions ``rebuild``, ``recover`` and ``clean``."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mqstore
from mqstore import _native
from mqstore._names import listed
from mqstore.errors import StoreError, checked, expected
from mqstore.results import RecoveryReport, _Report
from mqstore.store import local, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from mqstore import GroupOffset
    from mqstore.config import ConfigLike


@dataclass(frozen=True, slots=True)
class RebuiltQueue(_Report):
    """A queue that the log has messages of.

    Attributes:
        topic: Its topic.
        queue_id: Its number.
        kind: ``"SimpleCQ"`` has an entry for each message, ``"BatchCQ"`` one for each batch.
        entries: How many entries it gets.
        min_offset: The first queue offset.
        max_offset: One past the last.
        was: ``(min_offset, max_offset)`` of the replaced queue; ``None`` if there was none.
    """

    topic: str
    queue_id: int
    kind: Literal["SimpleCQ", "BatchCQ"]
    entries: int
    min_offset: int
    max_offset: int
    was: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RebuiltTopic(_Report):
    """A topic of a table that was made again.

    Attributes:
        name: Its name.
        queues: Queues to read and write.
        kind: ``"SimpleCQ"`` or ``"BatchCQ"``.
        was: Queues in the table before; ``None`` without an entry.
    """

    name: str
    queues: int
    kind: Literal["SimpleCQ", "BatchCQ"]
    was: int | None = None


@dataclass(frozen=True, slots=True)
class RebuildReport(_Report):
    """Result or plan of ``mqstore.rebuild``.

    Attributes:
        path: The store.
        what: What was to be made: ``"consumequeue"``, ``"index"`` or both, or ``"topics"``.
        applied: Whether it was made; ``False`` for a dry run.
        out: The folder it was made in; ``None`` for the store itself.
        messages: How many messages the log has.
        log_start: Physical offset of the log's first byte.
        log_end: Where its last message ends.
        damaged: Ranges of physical offsets that hold no message although the log goes on behind
            them, the first 10,000. What lay there has no entry anywhere.
        queues: The queues, by topic and number.
        kept: Queues, as ``(topic, queue_id)``, of whose messages the log holds none any more; they
            keep their last file, so that their next message gets the right number.
        index_files: How many index files were made.
        index_keys: How many keys the index has.
        refused: Entries that no queue takes: of a topic that cannot name a folder, of a queue
            number that a broker does not take, or too far behind the one before.
        left_out: Entries of light queues (``%LMQ%``) that were not made, because neither
            ``enable_lmq`` with ``enable_multi_dispatch`` was given nor the queue there.
        quarantine: The folder in which the old queues and index are kept; ``None`` where there were
            none or nothing was replaced. Of ``"topics"``: where a table that could not be read is.
        topics: The topics that queues and log name, with ``what=("topics",)``.
        skipped_ranges: Damaged ranges of the log that were skipped for them.
    """

    path: str
    what: tuple[str, ...]
    applied: bool
    out: str | None = None
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    queues: tuple[RebuiltQueue, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    index_files: int = 0
    index_keys: int = 0
    refused: int = 0
    left_out: int = 0
    quarantine: str | None = None
    topics: tuple[RebuiltTopic, ...] = ()
    skipped_ranges: int = 0


@dataclass(frozen=True, slots=True)
class CleanedFile(_Report):
    """A file of a store and the decision of retention.

    Attributes:
        path: The file, relative to the store where it lies below it.
        bytes: Its length.
        delete: Whether it is (or would be) deleted.
        reason: Reason for the decision.
    """

    path: str
    bytes: int
    delete: bool
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadMessages(_Report):
    """Messages of a queue that are deleted before a consumer group has read them.

    Attributes:
        group: The group. It counts in all queues of a topic once it has committed an offset in one.
        topic: The topic.
        queue_id: The queue.
        messages: How many messages.
    """

    group: str
    topic: str
    queue_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class CleanReport(_Report):
    """Result or plan of ``mqstore.clean``.

    Attributes:
        path: The store.
        applied: Whether the files were deleted; ``False`` for a dry run.
        files: The log's files, then those of queues, then the index's, each oldest first.
        log_start: First physical offset of the log before.
        new_log_start: First physical offset of the log afterwards.
        freed_bytes: Bytes of the deleted files.
        log_disk_percent: How full the emptiest disk with files of the log was, in per cent.
        queue_disk_percent: How full the disk with the queues was, in per cent.
        disk_full: Whether that is past ``disk_space_warning_level_ratio``, where a store takes no
            messages under ``retention="rocketmq"``.
        unread: Deleted messages that consumer groups have not read.
    """

    path: str
    applied: bool
    files: tuple[CleanedFile, ...] = ()
    log_start: int = 0
    new_log_start: int = 0
    freed_bytes: int = 0
    log_disk_percent: int = 0
    queue_disk_percent: int = 0
    disk_full: bool = False
    unread: tuple[UnreadMessages, ...] = ()


@checked
def rebuild(
    path: str | os.PathLike[str],
    *,
    what: Iterable[str] = ("consumequeue", "index"),
    topics: Iterable[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
) -> RebuildReport:
    """Rebuilds queues and index from the log, as RocketMQ's dispatch would write them.

    **Writes unless `dry_run` or `out` is given**, unlike `recover` and `clean`. New files are
    written beside the old ones and swapped when durable: a process killed at any moment leaves the
    old or the new ones, and the next open for writing cleans up. The old files go to ``quarantine``
    below the store. The lock is taken. With `out` the store is only read, and a broker may run.

    Args:
        path: The store's root folder.
        what: ``"consumequeue"``: plain, batch and light queues and their extensions; ``"index"``:
            the index files. Both by default. ``"topics"``, which goes alone: ``topics.json``, with
            each topic that queues or log name and as many queues as are in use; a table that can be
            read keeps its entries.
        topics: The topics whose queues are made; ``None`` for all. The index always has the keys of
            all topics.
        out: A folder to make them in, which must be empty or not there; the store is left as it is.
        dry_run: Only reads the log and returns the plan.
        threads: How many threads; ``None`` is one for each processor.
        progress: Called with ``(done_bytes, total_bytes)`` now and then; an exception from it ends
            the work and leaves the store as it was.
        config: As for ``open``. Light queues and queue extensions are made where it asks for
            them (``enable_lmq`` with ``enable_multi_dispatch``, ``enable_consume_queue_ext``).

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreLockedError: In place, and a process writes to the store.
        ConfigError: A setting that cannot be, or an `out` that is not empty or lies in the store.
        MessageNotFoundError: One of `topics` has no message in the log.
        CorruptionError: Without `out`: files of the log are missing at its end or have a wrong
            place, the log is DLedger's, or messages of an ended epoch lie in it.
        StoreIOError: The operating system refused something, such as space on the disk; the store
            is as it was.
        ValueError: Something else in `what`, no topic in `topics`, or fewer than 1 thread.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one", keys="o-1")
        >>> report = mqstore.rebuild(folder)
        >>> report.messages, report.queues[0].max_offset, report.index_keys
        (1, 1, 1)
    """
    local(path, "mqstore.rebuild")
    wanted = (what,) if isinstance(what, str) else tuple(what)
    given: dict[str, Any] = {"topics": listed(topics), "out": out, "dry_run": dry_run}
    given |= {"progress": progress, "settings": settings_of(config)}
    if "topics" in wanted:
        if len(wanted) > 1:
            raise ValueError(expected("what", "'topics' alone", repr(what), "call it twice"))
        rows, counts = _native._rebuild_topics(path, **given)  # noqa: SLF001 - this package's own
        made: dict[str, object] = {**counts, "topics": [RebuiltTopic(*row) for row in rows]}
    else:
        queues, fields = _native.rebuild(path, what=wanted, threads=threads, **given)
        made = {**fields, "queues": [RebuiltQueue(*row) for row in queues]}
    return RebuildReport.made_of(
        made,
        path=os.fspath(path),
        what=wanted,
        applied=not dry_run,
        out=None if out is None else os.fspath(out),
    )


@checked
def recover(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    drop_beyond: bool = False,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
) -> RecoveryReport:
    """Plans the recovery of a store; with ``dry_run=False`` performs it.

    A dry run reads only. Otherwise the store is recovered and cleanly closed. Where whole messages
    lie behind damage, or files are missing at the log's end, it refuses. With `drop_beyond` the log
    ends there, and what lies behind is kept in ``quarantine`` below the store.

    Args:
        path: The store's root folder.
        dry_run: Only says it.
        drop_beyond: Ends the log at damage although whole messages lie behind it, and cuts queues
            to the log although files are missing at its end.
        progress: Called with ``(done_bytes, total_bytes)`` now and then while the log is read; an
            exception from it ends the call before anything was changed.
        config: As for ``open``.

    Returns:
        State of the store, truncated bytes and the whole messages among them, rebuilt parts, groups
        that are set back; for damage before flushed messages their number and the repair commands.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreLockedError: A process writes to the store.
        ConfigError: A setting that cannot be, or that contradicts the files.
        CorruptionError: When it is to be done: files of the log are missing or cut short, or whole
            messages lie behind damage and `drop_beyond` is not set.
        StoreIOError: The operating system refused something.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one")
        >>> report = mqstore.recover(folder)
        >>> report.mode, report.cut, report.rebuilt, report.applied
        ('clean', 0, (), False)
    """
    local(path, "mqstore.recover")
    fields = _native.recover(
        path,
        dry_run=dry_run,
        drop_beyond=drop_beyond,
        progress=progress,
        settings=settings_of(config),
    )
    if dry_run and fields["damage"] is None:
        fields["warnings"] = list(_set_back(path, config))
    return RecoveryReport(**fields)


def _set_back(path: str | os.PathLike[str], config: ConfigLike) -> Iterator[str]:
    """Says which offsets of groups opening for writing would set back."""
    with suppress(StoreError), mqstore.open(path, config=config) as store:
        for group, at in beyond_ends(store.groups()):
            yield (
                f"group {group} stands at queue offset {at.queue_offset} of queue {at.queue_id}"
                f" of topic {at.topic}, beyond the queue's end {at.max_offset}: it is set back to"
                " there"
            )


def beyond_ends(groups: Mapping[str, list[GroupOffset]]) -> Iterator[tuple[str, GroupOffset]]:
    """Offsets beyond their queues' ends, by group: opening for writing sets them back to there."""
    for group, offsets in sorted(groups.items()):
        yield from ((group, at) for at in offsets if at.queue_offset > at.max_offset)


@checked
def clean(
    path: str | os.PathLike[str],
    *,
    now_ms: datetime | int | None = None,
    dry_run: bool = True,
    only_backed_up: str | os.PathLike[str] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CleanReport:
    """Deletes expired files of a store; by default only lists them with the reasons.

    Where ``keep_hours`` or ``keep_bytes`` is given, files of the log go from the front by these
    limits: by the store time of their newest message, or by the length of the log behind them.
    Else RocketMQ's rules hold as when it is asked by hand, at any hour of the day: files go while
    they were last written longer ago than ``file_reserved_time`` hours; past
    ``disk_space_clean_forcibly_ratio`` of the disk the oldest ``delete_file_batch_max`` go whatever
    their age. The last file stays. Queue and index files follow that lead to nothing any more.

    A store that is open for writing deletes by itself only with ``retention="rocketmq"``,
    ``keep_hours`` or ``keep_bytes``. A deletion is logged as a warning of the logger ``mqstore``.

    Args:
        path: The store's root folder.
        now_ms: The time that counts; ``None`` is now.
        dry_run: Only says it, and may be asked beside a running broker.
        only_backed_up: A backup that ``mqstore.sync`` wrote, a folder or a URL. A file of the log
            stays unless its newest snapshot has each byte of it: they are read and compared. A
            redacted one is refused.
        config: As for ``open``; its retention settings decide.
        storage_options: Options of the object store of the backup's URL, as for ``open``.

    Raises:
        NotAStoreError: No such folder, or no store in it; no backup.
        StoreLockedError: When it is to be done: a process writes to the store.
        CorruptionError: When it is to be done: damage before flushed messages. An object of the
            backup is damaged: nothing was deleted.
        ConfigError: A setting that cannot be, or that contradicts the files.
        StoreIOError: The operating system refused something.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one")
        >>> mqstore.clean(folder).files[0].reason
        'the last file is always kept'
    """
    local(path, "mqstore.clean")
    settings, backed_up_to = settings_of(config), None
    if only_backed_up is not None:
        from mqstore.backup.upkeep import backed_up_end

        rows, plan = _native.clean(path, now_ms=now_ms, dry_run=True, settings=settings)
        # The files of the log come first.
        begins = ((int(Path(name).name), Path(path, name)) for name, *_ in rows)
        going = dict(takewhile(lambda one: one[0] < plan["new_log_start"], begins))
        backed_up_to = backed_up_end(only_backed_up, going, storage_options)
    rows, counts = _native.clean(
        path, now_ms=now_ms, dry_run=dry_run, settings=settings, backed_up_to=backed_up_to
    )
    return CleanReport.made_of(
        counts,
        path=os.fspath(path),
        applied=not dry_run,
        files=[CleanedFile(*row) for row in rows],
        unread=[UnreadMessages(*row) for row in counts["unread"]],
    )
