"""A limit on work in a second."""

from __future__ import annotations

import time


class Pace:
    """Messages and bytes in a second, evenly."""

    def __init__(self, messages_per_s: float | None, bytes_per_s: float | None) -> None:
        self._cost_s = 1 / messages_per_s if messages_per_s else 0.0
        self._byte_cost_s = 1 / bytes_per_s if bytes_per_s else 0.0
        self._due_s = 0.0
        self.is_free = not (messages_per_s or bytes_per_s)

    def wait_s(self) -> float:
        """Seconds until the next message may be sent."""
        return self._due_s - time.monotonic() if self._due_s else 0.0

    def take(self, size: int) -> None:
        """Counts a message of so many bytes."""
        if cost_s := self._cost_s + size * self._byte_cost_s:
            self._due_s = max(self._due_s, time.monotonic() - 0.1) + cost_s

    def wait(self, size: int) -> None:
        """Waits until so many bytes may be read, and counts them."""
        if (wait_s := self.wait_s()) > 0:
            time.sleep(wait_s)
        self.take(size)
