from collections.abc import Callable, Mapping
from typing import Any, TypedDict, type_check_only

from mqstore._native._types import _Path, _Time

def recover(
    path: _Path,
    /,
    *,
    dry_run: bool,
    drop_beyond: bool,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> dict[str, Any]:
    """Says what recovery would do, or does it; ``mqstore.recover`` is the public door to this.

    Args:
        path: The store's root folder.
        dry_run: Changes nothing.
        drop_beyond: Ends the log at damage although whole messages lie behind it.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the call before anything was changed.
        settings: As for ``Store``.
    """

@type_check_only
class _Cleaned(TypedDict):
    log_start: int
    new_log_start: int
    freed_bytes: int
    log_disk_percent: int
    queue_disk_percent: int
    disk_full: bool
    unread: list[tuple[str, str, int, int]]

def clean(
    path: _Path,
    /,
    *,
    now_ms: _Time | None,
    dry_run: bool,
    settings: Mapping[str, object],
    backed_up_to: int | None = None,
) -> tuple[list[tuple[str, int, bool, str]], _Cleaned]:
    """Says what retention would delete, or deletes it; ``mqstore.clean`` is the public door.

    Args:
        path: The store's root folder.
        now_ms: The time that counts, Unix milliseconds; ``None`` is now.
        dry_run: Changes nothing.
        settings: As for ``Store``.
        backed_up_to: Physical offset up to which a backup has the log; files that end behind it
            are kept. ``None`` asks for no backup.

    Returns:
        The files, each ``(path, bytes, delete, reason)``, and the other fields of
        ``mqstore.CleanReport`` by name.
    """
