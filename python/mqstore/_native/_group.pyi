from collections.abc import Mapping, Sequence
from typing import final

from mqstore._native._stored import StoredMessage
from mqstore._native._values import GroupOffset

@final
class _GroupPlaces:
    """Places of a consumer group in its queues, for ``mqstore.ConsumerGroup``."""

    @property
    def name(self) -> str:
        """Name of the group."""

    def queues(self, topic: str) -> list[int]:
        """Numbers of a topic's queues, ascending."""

    def take(self, topic: str, queue_id: int) -> int | None:
        """Takes a queue for this handle alone; its place, or ``None`` while another has it."""

    @property
    def has_moved(self) -> bool:
        """Whether places wait for a commit."""

    def release(self, topic: str, queue_id: int) -> bool:
        """Lets other processes take a queue; whether acknowledgements of it wait for a commit."""

    def ack(self, topic: str, queue_id: int, acks: Sequence[tuple[int, int, int]]) -> None:
        """Writes acknowledged messages, so that a kill does not lose them.

        Each has the places before and behind it, and its store time.
        """

    def read(
        self, topic: str, queue_id: int, place: int, max_messages: int, tags: str | None
    ) -> tuple[list[StoredMessage], list[tuple[int, int]], int, int]:
        """Reads messages from a place on: they, the span of each, the place behind all, and a loss.

        The loss is how many messages retention deleted there.
        """

    def seek(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Sets the group's place in one queue."""

    def advance(
        self, topic: str, queue_id: int, place: int, ranges: list[tuple[int, int]], end: int
    ) -> None:
        """Moves the group to its first message in flight; ``ranges`` behind it are done.

        The queue was read up to ``end``.
        """

    def check_place(self) -> None:
        """Fails if another store lies at the path by now."""

    def commit(self) -> None:
        """Commits the places that were set, durable on return."""

    def lag(self, places: Mapping[tuple[str, int], int]) -> list[GroupOffset]:
        """Lag in each queue, from the given places where there are any."""

    def close(self) -> None:
        """Releases the group's name and its queues."""
