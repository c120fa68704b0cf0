"""The functions ``rebuild``, ``recover`` and ``clean``."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore import _native
from mqstore.errors import expected
from mqstore.results import RecoveryReport
from mqstore.results.upkeep import (
    CleanedFile,
    CleanReport,
    RebuildReport,
    RebuiltQueue,
    RebuiltTopic,
    UnreadMessages,
)
from mqstore.store import local, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mqstore.config import ConfigLike


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
    names = None if topics is None else [topics] if isinstance(topics, str) else list(topics)
    if "topics" in wanted:
        if len(wanted) > 1:
            raise ValueError(expected("what", "'topics' alone", repr(what), "call it twice"))
        found, counts = _native._rebuild_topics(  # noqa: SLF001 - this package's own
            path,
            topics=names,
            out=out,
            dry_run=dry_run,
            progress=progress,
            settings=settings_of(config),
        )
        kept = counts.pop("quarantine")
        return RebuildReport(
            path=os.fspath(path),
            what=wanted,
            applied=not dry_run,
            out=None if out is None else os.fspath(out),
            topics=tuple(RebuiltTopic(*row) for row in found),
            quarantine=None if kept is None else os.fspath(kept),
            **counts,
        )
    rows, fields = _native.rebuild(
        path,
        what=wanted,
        topics=names,
        out=out,
        dry_run=dry_run,
        threads=threads,
        progress=progress,
        settings=settings_of(config),
    )
    quarantine = fields["quarantine"]
    return RebuildReport(
        path=os.fspath(path),
        what=wanted,
        applied=not dry_run,
        out=None if out is None else os.fspath(out),
        messages=fields["messages"],
        log_start=fields["log_start"],
        log_end=fields["log_end"],
        damaged=tuple(fields["damaged"]),
        queues=tuple(RebuiltQueue(*row) for row in rows),
        kept=tuple(fields["kept"]),
        index_files=fields["index_files"],
        index_keys=fields["index_keys"],
        refused=fields["refused"],
        left_out=fields["left_out"],
        quarantine=quarantine,
    )


def recover(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    drop_beyond: bool = False,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
) -> RecoveryReport:
    """Says what recovery would do to a store; told so, does it.

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
        State of the store, truncated bytes and the whole messages among them, rebuilt parts; for
        damage before flushed messages their number and the repair commands.

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
    row = _native.recover(
        path,
        dry_run=dry_run,
        drop_beyond=drop_beyond,
        progress=progress,
        settings=settings_of(config),
    )
    return RecoveryReport(*row)


def clean(
    path: str | os.PathLike[str],
    *,
    now_ms: int | None = None,
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
    unread = tuple(UnreadMessages(*row) for row in counts["unread"])
    fields: dict[str, Any] = {**counts, "unread": unread}
    return CleanReport(
        path=os.fspath(path),
        applied=not dry_run,
        files=tuple(CleanedFile(*row) for row in rows),
        **fields,
    )
