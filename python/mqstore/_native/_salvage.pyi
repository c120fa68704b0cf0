from collections.abc import Callable, Mapping
from typing import TypedDict, type_check_only

from mqstore._native._types import _Path

@type_check_only
class _Salvaged(TypedDict):
    files: list[tuple[str, int, int, int, int, int, int, int]]
    messages: int
    bytes: int
    duplicates: int
    conflict_count: int
    conflicts: list[tuple[int, str, int, str, int]]
    overlapping: int
    queues: int
    renumbered: list[tuple[str, int]]
    missing: int
    stand_ins: int
    passed_over: list[tuple[str, int, int, int, str]]
    problems: list[tuple[str, str]]
    in_place: bool | None
    config_files: list[str]

def salvage(
    source: _Path,
    out: _Path | None,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Salvaged:
    """Carves messages out of damaged files; ``mqstore.salvage`` is the public door to this.

    Args:
        source: A store, a folder of files, or a file.
        out: The store to make, or ``None`` to look only.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        settings: As for ``Store``.

    Returns:
        The fields of ``mqstore.SalvageReport`` but the two paths, with plain tuples in them.

    Raises:
        NotAStoreError: No file is there to read.
        ConfigError: ``out`` lies inside of ``source``.
        UnsupportedError: More loose pieces than can be put in order.
        StoreIOError: Something is at ``out`` already, or the system refused something.
    """
