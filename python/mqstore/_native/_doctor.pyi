from collections.abc import Callable, Mapping
from typing import Literal, TypedDict, type_check_only

from mqstore._native._rocksdb import _Databases
from mqstore._native._types import _Path

@type_check_only
class _Verdict(TypedDict):
    release: str
    in_use: bool
    will_start: bool
    obstacles: list[str]
    lost: int
    lost_queues: list[tuple[str, int, int, int, int]]
    lost_from_ms: int | None
    lost_to_ms: int | None
    groups: list[
        tuple[str, str, Literal["skips", "misses", "deleted-unread", "begins-anew"], int, int]
    ]
    commands: list[str]
    last_resort: list[str]

def doctor(
    path: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
    option: str,
    databases: _Databases | None,
) -> tuple[
    list[
        tuple[
            str,
            Literal["error", "warning", "info"],
            str,
            list[str],
            str | None,
            str,
            list[tuple[str, int]],
            int | None,
        ]
    ],
    _Verdict,
]:
    """Examines a store; ``mqstore.doctor`` is the public door to this. Never writes.

    Args:
        path: The store's root folder.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the examination.
        settings: As for ``Store``.
        option: The option that names the configuration in a command, or nothing.
        databases: Reader of databases in RocksDB; ``None`` without any.

    Returns:
        The diagnoses, each ``(code, severity, title, evidence, cure, fix, follows,
        first_missing)``, sorted by code, those of databases last, and the verdict's fields by name.
    """

def _swap_commands(path: _Path, new: _Path, /) -> list[str]:
    """Commands for a shell that put ``new`` in the place of ``path``; none for a name not text."""

def next_start(
    path: _Path, /, *, to: str, settings: Mapping[str, object]
) -> tuple[bool, list[str], int, list[str], list[str], tuple[int, int, str] | None, int]:
    """Forecasts RocketMQ's next start; ``mqstore.preflight`` uses it. Never writes.

    Args:
        path: The store's root folder.
        to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
        settings: As for ``Store``.

    Returns:
        Whether the store was not closed, what keeps RocketMQ from starting, where it begins to read
        the log, the index files and the stray files that it deletes, where it ends the log before
        whole messages (that offset, their number and why), and the number of delayed messages that
        it delivers again.
    """
