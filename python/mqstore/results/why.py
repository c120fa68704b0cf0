"""Results of ``mqstore.why``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from mqstore.results import _Report as Report

if TYPE_CHECKING:
    from mqstore import StoredMessage

WhyCode: TypeAlias = Literal[
    "taken",
    "waiting",
    "filtered",
    "not-served",
    "no-offset",
    "disabled",
    "half",
    "rolled-back",
    "delayed",
    "retry",
    "dead-letter",
    "deleted-unread",
    "below-log",
    "beyond-queue",
    "other-group",
]


@dataclass(frozen=True, slots=True)
class WhyPlace(Report):
    """A record of a message: itself, or a copy that a broker made of it.

    Attributes:
        topic: Topic of the record.
        queue_id: Its queue.
        queue_offset: Its entry there.
        physical_offset: Where it begins in the log.
        message_id: Its id.
        store_timestamp_ms: When it was stored.
        purpose: ``"normal"``, or what a broker uses it for, as ``StoredMessage.purpose``.
        reconsume_times: Number of redeliveries.
        deliver_timestamp_ms: When it is due, for a delayed one.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str
    store_timestamp_ms: int
    purpose: str
    reconsume_times: int
    deliver_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class WhyAnswer(Report):
    """The fate of one message for the group.

    Attributes:
        code: ``"taken"``: the group's place is behind it; ``"waiting"``: the group's place is at or
            before it; ``"filtered"``: its tags are not those that the group subscribed to;
            ``"not-served"``: the topic's table keeps consumers from its queue;
            ``"no-offset"``: the group has no place in the queue; ``"disabled"``: the group may not
            consume; ``"half"``: its transaction has not ended; ``"rolled-back"``: it ended so;
            ``"delayed"``: not due, or not delivered yet; ``"retry"``: failed, to be redelivered;
            ``"dead-letter"``: failed too often; ``"deleted-unread"``: retention deleted it before
            the group's place; ``"below-log"``: deleted behind it; ``"beyond-queue"``: no such entry
            yet; ``"other-group"``: only a copy for another group is there.
        text: The same as a sentence.
        topic: The message's topic.
        queue_id: Its queue.
        queue_offset: Its entry there.
        tags: Its tags.
        keys: Its keys.
        unique_key: Its unique key.
        group_offset: The group's place in that queue; ``None`` where it has none.
        before: How many entries the group has to take before it.
        subscription: The tag or SQL expression of the group for the topic, where the store has it.
        places: The records of it that are in the log, oldest first.
    """

    code: WhyCode
    text: str
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None = None
    keys: tuple[str, ...] = ()
    unique_key: str | None = None
    group_offset: int | None = None
    before: int | None = None
    subscription: str | None = None
    places: tuple[WhyPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class WhyReport(Report):
    """Result of ``mqstore.why``.

    Attributes:
        path: The store.
        group: The consumer group.
        answers: One for each message that was asked for, in the order of the log.
        truncated: Whether more than 64 messages of a topic have the key; the newest are answered.
        unread: Parts of the log that may have more of them: where each begins and ends.
    """

    path: str
    group: str
    answers: tuple[WhyAnswer, ...]
    truncated: bool = False
    unread: tuple[tuple[int, int], ...] = ()


def place_of(message: StoredMessage) -> WhyPlace:
    """The place of a record."""
    return WhyPlace(*(getattr(message, name) for name in WhyPlace.__match_args__))
