from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict, type_check_only

from mqstore._native._scan import ArrowScan
from mqstore._native._types import _Path, _Tags, _Time

def stats(
    path: _Path,
    /,
    *,
    by: Sequence[str],
    topics: Iterable[str] | None,
    tags: _Tags,
    begin_ms: _Time | None,
    end_ms: _Time | None,
    on_error: str,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> tuple[
    ArrowScan,
    list[tuple[object, ...]],
    tuple[int, int, int, int],
    tuple[int, int],
    tuple[int, int],
    int,
]:
    """Counts messages; ``mqstore.stats`` is the public door to this.

    Args:
        path: The store's root folder.
        by: Names out of ``topic``, ``queue_id``, ``minute``, ``quarter_hour``, ``hour``, ``day``,
            ``tags``.
        topics: As for ``Store.scan``, and so are the next four.
        tags: As for ``Store.scan``.
        begin_ms: As for ``Store.scan``.
        end_ms: As for ``Store.scan``.
        on_error: As for ``Store.scan``.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the count.
        settings: As for ``Store``.

    Returns:
        The counts as an Arrow stream; the same as rows; messages, bytes, first and last store time
        of what had no room; how many damaged ranges were skipped, and their bytes; how many
        messages and bytes of the whole store were deleted; how many counted messages stand in for
        lost ones.
    """

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
