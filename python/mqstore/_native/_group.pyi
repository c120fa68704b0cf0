from collections.abc import Iterator
from types import TracebackType
from typing import Self, final

from mqstore._native._stored import StoredMessage
from mqstore._native._types import _Tags
from mqstore._native._values import GroupOffset

@final
class ConsumerGroup:
    """A consumer group: reads topics and commits its offsets. Returned by ``Store.group``.

    Offsets are stored in ``config/consumerOffset.json``, with ``enable_lmq`` in
    ``config/lmqConsumerOffset.json``, as in a broker. Without that setting the file changed last
    is used. A new topic is read from the first entry of each queue. Several processes may commit,
    also with a store in mode ``"r"``, but not while a broker has the store open. ``close``, or
    leaving a ``with`` block, releases the group without a commit.
    """

    @property
    def name(self) -> str:
        """Name of the group."""

    def poll(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        tags: _Tags = None,
        timeout_s: float = 0,
    ) -> list[StoredMessage]:
        """Returns the next messages of a topic, its queues in turn; advances the group's offsets.

        Args:
            topic: Name of the topic.
            max_messages: At most this many.
            tags: A tag expression; other messages are skipped.
            timeout_s: Waits up to so many seconds for the first message.

        Returns:
            The messages; empty after a timeout.

        Raises:
            ValueError: ``max_messages`` below 0.
        """

    def messages(self, topic: str, *, tags: _Tags = None) -> Iterator[StoredMessage]:
        """Iterates over the messages of a topic; waits for new ones until the store is closed.

        The group's offset advances past each message. After ``seek`` or ``poll`` the iteration goes
        on from the new offset.
        """

    def commit(self) -> None:
        """Commits the group's offsets; they and the messages before them are durable on return.

        Raises:
            InvalidMessageError: After a ``seek`` beyond the end of a queue; nothing was committed.
            UnsupportedError: A broker has the store open and would overwrite the offsets; nothing
                was committed.
        """

    def seek(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Sets the group's offset in one queue."""

    def lag(self) -> list[GroupOffset]:
        """Returns the group's lag in each queue, from its current offsets, committed or not."""

    def close(self) -> None:
        """Releases the group's name; a second call does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
