"""Waiting for another thread or process to have done its part."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import mqstore


def wait_until(is_true: Callable[[], bool], minutes: int = 2) -> None:
    for _ in range(minutes * 600):
        if is_true():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"it did not come true in {minutes} minutes")


def wait_for_notes(store: mqstore.Store) -> None:
    """Until the writer's thread has sent back the failed messages that readers left."""
    notes = Path(store.path, "mqstore.failed")
    wait_until(lambda: not any(notes.glob("*-*")))
