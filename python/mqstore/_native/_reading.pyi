from collections.abc import Iterable
from typing import Final, Self, final

from mqstore._native._stored import StoredMessage
from mqstore.status import GetStatus

@final
class ReadResult:
    """Result of a read of one queue (``GetMessageResult``)."""

    __match_args__: Final = (
        "status",
        "messages",
        "next_queue_offset",
        "min_queue_offset",
        "max_queue_offset",
    )
    def __new__(
        cls,
        status: GetStatus,
        messages: Iterable[StoredMessage],
        next_queue_offset: int,
        min_queue_offset: int,
        max_queue_offset: int,
    ) -> Self: ...
    @property
    def status(self) -> GetStatus:
        """RocketMQ's status, such as ``GetStatus.FOUND``."""
    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """The messages, oldest first."""
    @property
    def next_queue_offset(self) -> int:
        """Where the next read should begin."""
    @property
    def min_queue_offset(self) -> int:
        """First entry that the queue still has."""
    @property
    def max_queue_offset(self) -> int:
        """One past the queue's last entry."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
