"""Prints new messages of a store, as ``tail -f`` does."""

from __future__ import annotations

import select
import sys
import time
from typing import TYPE_CHECKING

from mqstore.cli.output import OutputClosedError, note
from mqstore.errors import StoreIOError
from mqstore.store import below, root_of
from mqstore.text import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import Store

# Interval of checks for the reader while nothing is written.
_CHECK_S = 0.5


def follow(store: Store, position: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of new messages, without end.

    Reports on standard error messages that retention deleted before they were read, and
    messages that a recovery truncated.

    Args:
        store: The store, read-only.
        position: Up to where its log was read already, a physical offset.

    Yields:
        From which physical offset until which something was written.

    Raises:
        OutputClosedError: Nobody reads standard output any more.
        OffsetOutOfRangeError: Another log lies there now, without that position.
    """
    while True:
        while not _has_grown(store, position):
            end = store.max_physical_offset if below(root_of(store)).is_dir() else 0
            if end < position:
                note(f"the log now ends at {end}, {size_text(position - end)} were cut off")
                position = end
                if not end:
                    # One that is made anew is read from its beginning.
                    store._forget_log()  # noqa: SLF001 - our own
            _check_reader()
        if store.min_physical_offset > position:
            begin = store.min_physical_offset
            note(f"the log now begins at {begin}, {size_text(begin - position)} went unread")
            position = begin
        end = store.max_physical_offset
        yield position, end
        position = end


def _has_grown(store: Store, position: int) -> bool:
    try:
        return store.wait(position, timeout_s=_CHECK_S)
    except StoreIOError:
        if below(root_of(store)).is_dir():
            raise
        time.sleep(_CHECK_S)  # it may be made anew
        return False


def _check_reader() -> None:
    """Ends the wait where standard output is a pipe that nobody reads.

    Raises:
        OutputClosedError: It is.
    """
    poller = select.poll()
    poller.register(sys.stdout, 0)
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in poller.poll(0)):
        raise OutputClosedError
