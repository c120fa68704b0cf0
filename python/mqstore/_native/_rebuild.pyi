from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, type_check_only

from mqstore._native._types import _Path

def _rebuild_scan(
    path: _Path,
    /,
    *,
    begin: int,
    end: int,
    groups: int,
    spill: _Path,
    what: Sequence[str],
    settings: Mapping[str, object],
) -> bytes:
    """Reads a range of a store's log and puts down what queues and index need of it.

    Together, ``_rebuild_scan``, ``_rebuild_settle``, ``_rebuild_queues`` and ``_rebuild_index``
    make what ``rebuild`` does, and each may run on another machine.

    Args:
        path: The store's root folder.
        begin: First physical offset.
        end: One past the last.
        groups: How many groups of queues there are.
        spill: The file that is written, which must not be there.
        what: As for ``rebuild``.
        settings: As for ``open_store``.

    Returns:
        What ``_rebuild_settle`` needs of it.
    """

def _rebuild_settle(
    path: _Path,
    /,
    *,
    scans: Sequence[bytes],
    end: int,
    groups: int,
    spill: _Path,
    what: Sequence[str],
    settings: Mapping[str, object],
) -> tuple[bytes, _Settled]:
    """Decides what of the ranges that were read belongs to the log.

    Args:
        path: The store's root folder.
        scans: What ``_rebuild_scan`` gave, in the order of the ranges.
        end: Where the last of them ends.
        groups: As for ``_rebuild_scan``.
        spill: A file beside theirs that is written, which must not be there.
        what: As for ``rebuild``.
        settings: As for ``open_store``.

    Returns:
        The plan that the other two need, and what was learned of the log.
    """

def _rebuild_queues(
    path: _Path,
    /,
    *,
    plan: bytes,
    group: int,
    groups: int,
    spills: _Path,
    out: _Path,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, int, Literal["SimpleCQ", "BatchCQ"], int, int, int, tuple[int, int] | None]],
    list[tuple[str, int]],
    int,
]:
    """Makes a group of a store's queues of what was put down.

    Args:
        path: The store's root folder.
        plan: What ``_rebuild_settle`` gave.
        group: The group's number, from 0.
        groups: As for ``_rebuild_scan``.
        spills: The folder of the files that were written.
        out: An empty folder.
        settings: As for ``open_store``.

    Returns:
        The queues as ``rebuild`` gives them, those that were kept, and how many entries no queue
        takes.
    """

def _rebuild_index(
    path: _Path,
    /,
    *,
    plan: bytes,
    number: int,
    now_ms: int,
    spills: _Path,
    out: _Path,
    settings: Mapping[str, object],
) -> None:
    """Makes one of a store's index files of what was put down.

    Args:
        path: The store's root folder.
        plan: What ``_rebuild_settle`` gave.
        number: Which of the files, from 0.
        now_ms: The time that the file is named after.
        spills: The folder of the files that were written.
        out: An empty folder.
        settings: As for ``open_store``.
    """

def _rebuild_topics(
    path: _Path,
    /,
    *,
    topics: Sequence[str] | None,
    out: _Path | None,
    dry_run: bool,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[list[tuple[str, int, Literal["SimpleCQ", "BatchCQ"], int | None]], dict[str, Any]]:
    """Makes the table of topics again; ``mqstore.rebuild`` is the public door to this.

    Args:
        path: The store's root folder.
        topics: Only these; ``None`` for all.
        out: The folder to make it in; ``None`` is the store itself.
        dry_run: Makes nothing.
        progress: As for ``rebuild``.
        settings: As for ``open_store``.

    Returns:
        The topics, each ``(name, queues, kind, was)``; and other fields of
        ``mqstore.RebuildReport`` by name.
    """

def _replace_folders(
    path: _Path,
    /,
    *,
    build: Callable[[str], Sequence[str]],
    now_ms: int,
    settings: Mapping[str, object],
) -> str | None:
    """Replaces folders of a store by new ones, all or none, under the writer's lock.

    Args:
        path: The store's root folder.
        build: Called with a folder; puts the new ones there and returns the names of those to
            replace. Those that it names and does not put are removed.
        now_ms: The time that the quarantine is named after.
        settings: As for ``open_store``.

    Returns:
        The folder with the old ones; ``None`` if there were none.
    """

@type_check_only
class _Settled(TypedDict):
    messages: int
    log_start: int
    log_end: int
    damaged: list[tuple[int, int]]
    index_files: int
    index_keys: int
    left_out: int

@type_check_only
class _Rebuilt(TypedDict):
    messages: int
    log_start: int
    log_end: int
    damaged: list[tuple[int, int]]
    kept: list[tuple[str, int]]
    index_files: int
    index_keys: int
    refused: int
    left_out: int
    quarantine: str | None

def rebuild(
    path: _Path,
    /,
    *,
    what: Sequence[str],
    topics: Sequence[str] | None,
    out: _Path | None,
    dry_run: bool,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[
    list[tuple[str, int, Literal["SimpleCQ", "BatchCQ"], int, int, int, tuple[int, int] | None]],
    _Rebuilt,
]:
    """Makes queues and index again; ``mqstore.rebuild`` is the public door to this.

    Args:
        path: The store's root folder.
        what: ``"consumequeue"``, ``"index"``.
        topics: The topics whose queues are made; ``None`` for all.
        out: The folder to make them in; ``None`` is the store itself.
        dry_run: Makes nothing.
        threads: How many threads; ``None`` is as many as there are processors.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the work.
        settings: As for ``open_store``.

    Returns:
        The queues, each ``(topic, queue_id, kind, entries, min_offset, max_offset, was)``; and the
        other fields of ``mqstore.RebuildReport`` by name.
    """
