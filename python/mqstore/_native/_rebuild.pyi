from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, type_check_only

from mqstore._native._types import _Path

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
        settings: As for ``Store``.

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
        settings: As for ``Store``.

    Returns:
        The folder with the old ones; ``None`` if there were none.
    """

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
        settings: As for ``Store``.

    Returns:
        The queues, each ``(topic, queue_id, kind, entries, min_offset, max_offset, was)``; and the
        other fields of ``mqstore.RebuildReport`` by name.
    """
