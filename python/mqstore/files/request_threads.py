"""The threads that send requests to object storage, and their end with the interpreter."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from mqstore.errors import UnsupportedError

_MOST_IN_FLIGHT = 32
_LONGEST_EXIT_S = 5.0
SIGNAL_CHECK_S = 0.1
"""Seconds that a wait for a request lasts at most before signals are handled."""

ENDING = threading.Event()
CALLED: set[object] = set()
"""Waits of the extension for requests."""
_was_used = False
_is_forked = False
_pool: ThreadPoolExecutor | None = None


def _end() -> None:
    """Ends requests before the interpreter does: a thread that it ends in the extension aborts."""
    ENDING.set()
    end = time.monotonic() + _LONGEST_EXIT_S
    were_any = bool(CALLED)
    while CALLED and time.monotonic() < end:
        time.sleep(SIGNAL_CHECK_S / 10)
    if were_any:
        # Their callers return.
        time.sleep(SIGNAL_CHECK_S)


def _forget() -> None:
    global _is_forked
    _is_forked = _was_used


os.register_at_fork(after_in_child=_forget)


def request_threads() -> ThreadPoolExecutor:
    """The threads that send requests."""
    global _pool, _was_used
    if _is_forked:
        what = (
            "this process was forked off one that had read behind a URL, and the network's threads "
            "do not come back here; nothing was read: start processes with "
            'multiprocessing.get_context("spawn") or "forkserver", and open the store there'
        )
        raise UnsupportedError(what, what, "")
    if ENDING.is_set():
        raise OSError("not read: the interpreter ends")
    if _pool is None:
        _was_used = True
        _pool = ThreadPoolExecutor(_MOST_IN_FLIGHT, "mqstore-io")
        threading._register_atexit(_end)  # type: ignore[attr-defined]  # noqa: SLF001
    return _pool
