from collections.abc import Sequence
from typing import final

from mqstore._native._message import Message
from mqstore._native._stored import StoredMessage

@final
class _Requests:
    """Messages on their way to RocketMQ's client, put together into requests.

    Args:
        dropped: Names of properties that are left out.
        broker: Name of the broker that the messages come from.
        batch: Most messages of a request.
        keeps_queue: Whether messages go to their own queue, and not to any.
        most_body: Most bytes of a body, decompressed.
    """

    def __new__(
        cls, dropped: Sequence[str], broker: str, batch: int, keeps_queue: bool, most_body: int
    ) -> _Requests: ...
    def add(
        self,
        number: int,
        physical_offset: int,
        message: Message | StoredMessage,
        topic: str,
        queue_id: int,
        lane: int,
        added: bytes,
        /,
    ) -> int:
        """Puts a message into the request of its topic, queue and lane, with properties ``added``.

        Returns its bytes; 0 if its body has more than ``most_body``, and then it is not taken.
        """
    def take(self, all: bool) -> bytes:
        """Frames of the full requests; of ``all``, the others as well."""
