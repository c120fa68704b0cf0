from collections.abc import Callable, Mapping
from typing import Literal

from mqstore._native._types import _Path

def doctor(
    path: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> list[tuple[str, Literal["error", "warning", "info"], str, list[str], str | None, str]]:
    """Examines a store; ``mqstore.doctor`` is the public door to this. Never writes.

    Args:
        path: The store's root folder.
        progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
            exception from it ends the examination.
        settings: As for ``open_store``.

    Returns:
        The diagnoses, each ``(code, severity, title, evidence, cure, fix)``, sorted by code.
    """
