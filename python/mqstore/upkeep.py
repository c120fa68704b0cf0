"""Operations that mend a store or make room in it: rebuild, recover, clean."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.store import _settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mqstore.config import ConfigLike
    from mqstore.upkeep_results import RebuildReport

__all__ = ["rebuild"]


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
    """Makes queues and index again from the log alone, as RocketMQ's dispatch would.

    In place, they are made beside the old ones first and take their place when they are durable:
    a process killed at any moment leaves the old ones or the new ones, and the next opening for
    writing tidies up. The old ones are kept in ``quarantine`` below the store. The store must not
    be in use: the lock is taken. With `out` the store is only read, and may be in use.

    Args:
        path: The store's root folder.
        what: ``"consumequeue"``: plain, batch and light queues and their extensions; ``"index"``:
            the index files. Both by default.
        topics: The topics whose queues are made; ``None`` for all. The index always has the keys of
            all topics.
        out: A folder to make them in, which must be empty or not there; the store is left as it is.
        dry_run: Only reads the log and says what there would be.
        threads: How many threads; ``None`` is one for each processor.
        progress: Called with ``(done_bytes, total_bytes)`` now and then; an exception from it ends
            the work and leaves the store as it was.
        config: As for :func:`open`. Light queues and queue extensions are made where it asks for
            them (``enable_lmq`` with ``enable_multi_dispatch``, ``enable_consume_queue_ext``).

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreLockedError: In place, and a process writes to the store.
        ConfigError: A setting that cannot be, or an `out` that is not empty or lies in the store.
        MessageNotFoundError: One of `topics` has no message in the log.
        StoreIOError: The operating system refused something, such as space on the disk; the store
            is as it was.
        ValueError: Something else in `what`, no topic in `topics`, or fewer than 1 thread.

    Example:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one", keys="o-1")
        >>> report = mqstore.rebuild(folder)
        >>> report.messages, report.queues[0].max_offset, report.index_keys
        (1, 1, 1)
    """
    from mqstore.upkeep_results import RebuildReport, RebuiltQueue  # not needed to import mqstore

    wanted = (what,) if isinstance(what, str) else tuple(what)
    names = None if topics is None else [topics] if isinstance(topics, str) else list(topics)
    rows, fields = _native.rebuild(
        path,
        what=wanted,
        topics=names,
        out=out,
        dry_run=dry_run,
        threads=threads,
        progress=progress,
        settings=_settings(config),
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
