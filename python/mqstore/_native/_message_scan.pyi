from collections.abc import Iterator
from typing import Self, final

from mqstore._native._stored import StoredMessage

@final
class MessageScan(Iterator[StoredMessage]):
    """An iterator over messages; made by ``Store.scan`` and ``CommitLog.scan``."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> StoredMessage: ...
    @property
    def physical_offset(self) -> int:
        """How far the scan has come: behind what it gave or skipped last."""
    @property
    def stop_physical_offset(self) -> int:
        """Where the scan ends."""
    @property
    def skipped_ranges(self) -> int:
        """How many damaged ranges were skipped so far (``on_error="skip"``)."""
    @property
    def skipped_bytes(self) -> int:
        """How many bytes these had."""
