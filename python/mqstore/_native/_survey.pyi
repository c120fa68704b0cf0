from collections.abc import Callable, Mapping
from typing import TypedDict, type_check_only

from mqstore._native._types import _Path

@type_check_only
class _Latency(TypedDict):
    ranges: list[tuple[int, int, int]]
    quantiles_ms: dict[float, int]
    negative: int
    unknown: int

@type_check_only
class _Survey(TypedDict):
    topics: list[tuple[str, int, int, int, int]]
    others: tuple[int, int, int, int]
    step_ms: int
    cells: list[tuple[int, int, int, int]]
    latency: _Latency
    skipped_ranges: int
    skipped_bytes: int

def _survey(
    path: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Survey:
    """Data of a report about the messages; damage is skipped.

    ``topics`` are ``(name, messages, bytes, first_ms, last_ms)``, the largest first, at
    most 4,096, and ``others`` the rest. ``cells`` are ``(begin_ms, topic, messages, bytes)`` by
    time, each ``step_ms`` long, the topic by its place in ``topics`` or one behind the last.
    """
