from collections.abc import Iterator
from types import TracebackType
from typing import Self, final

from mqstore._native._stored import StoredMessage
from mqstore._native._types import _Tags
from mqstore._native._values import GroupOffset

@final
class ConsumerGroup:
    """A consumer group: reads the queues of topics and keeps its place in them.

    Made by ``Store.group``; the place is kept in ``config/consumerOffset.json``, with
    ``enable_lmq`` in ``config/lmqConsumerOffset.json``, as a broker does; without that setting in
    the one of them that was changed last. A topic never taken
    before begins at the first entry of each queue. Several processes may commit, also with a
    store in mode ``"r"``, but not beside a broker. Leaving a ``with`` block or ``close`` gives the
    name free, without a commit.
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
        """The next messages of a topic, its queues in turn; the group's place moves on behind them.

        Args:
            topic: Name of the topic.
            max_messages: At most this many.
            tags: A tag expression; what does not match is skipped.
            timeout_s: Waits up to so many seconds for the first message.

        Returns:
            The messages; empty where there was none in time.

        Raises:
            ValueError: ``max_messages`` below 0.
        """

    def messages(self, topic: str, *, tags: _Tags = None) -> Iterator[StoredMessage]:
        """The messages of a topic one by one; waits at the end, until the store is closed.

        The group's place is behind the message given last. Where ``seek`` or ``poll`` moves it, the
        next message is the one there.
        """

    def commit(self) -> None:
        """Writes the group's place; durable on return, and so are the messages before it.

        Raises:
            InvalidMessageError: ``seek`` led beyond the end of a queue; nothing was committed.
            UnsupportedError: A broker has the store open, and would write its own offsets over
                these; nothing was committed.
        """

    def seek(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Moves the group's place in one queue."""

    def lag(self) -> list[GroupOffset]:
        """The group's lag from where it is now, committed or not."""

    def close(self) -> None:
        """Gives the name free; closing twice does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
