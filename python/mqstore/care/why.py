"""Answers where a message is, and why a consumer group has or has not got it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import mqstore
from mqstore._names import (
    kind_of_name,
    missing_topics,
    nearest,
    read_table,
    recent_keys,
    table_names,
    table_rows,
)
from mqstore.care.key_search import by_id, topics_of, unread_text, with_key
from mqstore.care.pending import DEAD_LETTER, OP_TOPICS, RETRY
from mqstore.errors import MessageNotFoundError, StoreError, checked
from mqstore.results import _Report as Report
from mqstore.store import connect
from mqstore.text import time_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from mqstore import QueueInfo, Store, StoredMessage
    from mqstore.config import ConfigLike

# `PermName.PERM_READ`.
_PERM_READ = 4
_WAITING = ("delayed", "timer")
_OF_TRANSACTIONS = ("half", "rolled-back")
_SCHEDULED = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")


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


@checked
def why(
    path: str | os.PathLike[str],
    *,
    group: str,
    topic: str | None = None,
    key: str | None = None,
    id: str | None = None,  # noqa: A002 - as `Store.get_by_id` has it
    queue_id: int | None = None,
    queue_offset: int | None = None,
    tags: str | None = None,
    now_ms: int | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WhyReport:
    """Says where a message is, and why a consumer group has or has not got it. Never writes.

    The message is given by `key`, by `id`, or by `topic`, `queue_id` and `queue_offset`. The store
    knows which entries a group has passed, not which messages its program handled.

    Args:
        path: The store's root folder.
        group: The consumer group.
        topic: With `key` only messages of this topic; else the topic of the queue.
        key: A key or unique key.
        id: A message id, or a unique key as clients show it.
        queue_id: The queue.
        queue_offset: The entry in it.
        tags: The tag expression that the group subscribes with, where the broker has not kept it.
        now_ms: The time that delays are compared with; the clock's if left out.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        MessageNotFoundError: No such group, topic, queue or message; the text has near names.
        ValueError: None or several of the three ways to name the message.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a") as store:
        ...     _ = store.append("orders", b"paid", keys="o-1")
        ...     with store.group("billing") as group:
        ...         _ = group.poll("orders"), group.commit()
        >>> [answer.code for answer in mqstore.why(folder, group="billing", key="o-1").answers]
        ['taken']
    """
    path = connect(path, storage_options)
    by_place = queue_id is not None and queue_offset is not None and topic is not None
    if (key is not None) + (id is not None) + by_place != 1 or (
        not by_place and (queue_id is not None or queue_offset is not None)
    ):
        raise ValueError(
            "key, id, topic: expected key, id, or topic with queue_id and queue_offset, got others"
        )
    with mqstore.open(path, config=config) as store:
        asked = _Question(store, group, tags, now_ms)
        if topic is not None and (missing := missing_topics(store, [topic])):
            raise MessageNotFoundError(missing[0])
        if by_place:
            answers = asked.at(str(topic), int(queue_id or 0), int(queue_offset or 0))
        else:
            answers = asked.named(key, id, topic)
    unread = tuple(sorted(asked.unread))
    return WhyReport(str(path), group, tuple(answers), asked.truncated, unread)


class _Question:
    """A group of a store, and what a broker keeps of it."""

    def __init__(self, store: Store, group: str, tags: str | None, now_ms: int | None) -> None:
        self.store = store
        self.group = group
        self.tags = tags
        self.truncated = False
        self.unread: set[tuple[int, int]] = set()
        self.now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        groups = store.groups()
        known = table_names(store, "subscriptionGroup.json", "subscriptionGroupTable")
        if group not in groups and group not in known:
            hint = nearest(group, {*groups, *known})
            raise MessageNotFoundError(f"no group {group!r} in {store.path}{hint}")
        self.offsets: dict[tuple[str, int], int] = {
            (one.topic, one.queue_id): one.queue_offset for one in groups.get(group, ())
        }
        self.queues: dict[tuple[str, int], QueueInfo] = {
            (queue.topic, queue.queue_id): queue for queue in store.queues()
        }
        self.settings = _row(store, "subscriptionGroup.json", "subscriptionGroupTable", group)

    # --- finding the message ---

    def at(self, topic: str, queue_id: int, queue_offset: int) -> list[WhyAnswer]:
        """The answer for a place in a queue."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            there = sorted(number for name, number in self.queues if name == topic)
            raise MessageNotFoundError(
                f"no queue {queue_id} of topic {topic!r} in {self.store.path}; there are "
                f"{', '.join(map(str, there)) or 'none'}"
            )
        place = topic, queue_id, queue_offset
        if queue_offset >= queue.max_offset:
            text = f"queue {queue_id} of {topic} ends at {queue.max_offset}: no such message yet"
            return [self._answer("beyond-queue", text, place)]
        if queue_offset < queue.min_offset:
            return [self._deleted(place, queue.min_offset)]
        read = self.store.read(topic, queue_id, queue_offset, max_messages=1)
        if not read.messages or read.messages[0].queue_offset > queue_offset:
            raise MessageNotFoundError(f"no message at {queue_offset} of {topic}/{queue_id}")
        return self._families(read.messages[:1], {read.messages[0].physical_offset})

    def named(self, key: str | None, message_id: str | None, topic: str | None) -> list[WhyAnswer]:
        """The answers for a key or an id."""
        name = str(message_id if key is None else key)
        if message_id is not None and (message := by_id(self.store, message_id)) is not None:
            with suppress(StoreError, ValueError):
                return self._families([message], {message.physical_offset})
        found = self._with_key(name, self.store.topics())
        if message_id is not None:
            found = [message for message in found if message.unique_key == name]
        if topic is not None:
            found = [message for message in found if topic in topics_of(message)]
        if not found:
            where = "" if topic is None else f" of topic {topic!r}"
            # A near name misleads where the message may lie in what was not read.
            recent = set() if self.unread else recent_keys(self.store)
            hint = unread_text(sorted(self.unread)) or nearest(name, {one for _, one in recent})
            raise MessageNotFoundError(
                f"no message{where} with {'key' if key else 'id'} {name!r} in {self.store.path}; "
                f"its log begins at {self.store.min_physical_offset} and ends at "
                f"{self.store.max_physical_offset}{hint}"
            )
        return self._families(found, None)

    def _with_key(self, key: str, topics: Sequence[str]) -> Sequence[StoredMessage]:
        found = with_key(self.store, key, topics)
        self.truncated |= found.truncated
        self.unread.update(found.unread)
        return found

    def _families(
        self, messages: Sequence[StoredMessage], only: set[int] | None
    ) -> list[WhyAnswer]:
        """An answer for each message, its copies by the broker taken together."""
        families: dict[str | int, dict[int, StoredMessage]] = {}
        for message in messages:
            name = message.unique_key or message.physical_offset
            family = families.setdefault(name, {})
            family[message.physical_offset] = message
            if isinstance(name, str) and len(family) == 1:
                own = f"{RETRY}{self.group}", f"{DEAD_LETTER}{self.group}"
                related = {*own, *_SCHEDULED, *OP_TOPICS, *topics_of(message)}
                for copy in self._with_key(name, sorted(related & {*self.store.topics()})):
                    if copy.unique_key == name:
                        family[copy.physical_offset] = copy
        answers = []
        for family in sorted(families.values(), key=min):
            records = [family[at] for at in sorted(family)]
            copies = [one for one in records if one.purpose != "normal"]
            originals = [one for one in records if one.purpose == "normal"]
            asked = [one for one in originals if only is None or one.physical_offset in only]
            asked = asked or originals
            # The messages of a batch have one unique key.
            answers += [self._judge(original, [original, *copies]) for original in asked]
            if not asked:
                answers.append(self._judge(None, copies))
        return answers

    # --- judging it ---

    def _judge(self, original: StoredMessage | None, records: list[StoredMessage]) -> WhyAnswer:
        code, text = self._fate(original, records)
        about = original or records[0]
        if code in _OF_TRANSACTIONS:
            about = next(one for one in reversed(records) if one.purpose == "half")
        place = about.topic, about.queue_id, about.queue_offset
        return self._answer(code, text, place, about, records)

    def _fate(
        self, original: StoredMessage | None, records: list[StoredMessage]
    ) -> tuple[WhyCode, str]:
        retry_topic = f"{RETRY}{self.group}"
        dead = [one for one in records if one.topic == f"{DEAD_LETTER}{self.group}"]
        retries = [one for one in records if one.topic == retry_topic]
        waiting = [one for one in records if one.purpose in _WAITING]
        redelivery = [one for one in waiting if one.real_topic == retry_topic]
        if dead:
            times = dead[-1].reconsume_times
            since = time_text(dead[-1].store_timestamp_ms)
            text = f"the group failed it {times} times; since {since} it is in {dead[-1].topic}"
            return "dead-letter", text
        if redelivery and redelivery[-1].reconsume_times > max(
            (one.reconsume_times for one in retries), default=-1
        ):
            return "retry", self._due(redelivery[-1], "redelivery")
        if retries:
            last = retries[-1]
            at = self.offsets.get((last.topic, last.queue_id))
            if at is None or at <= last.queue_offset:
                text = (
                    f"the group failed it; redelivery {last.reconsume_times} waits in {last.topic} "
                    f"at {last.queue_offset}, the group's place there is "
                    f"{'none' if at is None else at}"
                )
                return "retry", text
            took = f"redelivery {last.reconsume_times} from {last.topic}"
            return "taken", f"the group failed it and took {took}"
        if original is not None:
            return self._by_place(original)
        if waiting:
            return "delayed", self._due(waiting[-1], "delivery")
        if half := [one for one in records if one.purpose == "half"]:
            return self._transaction(half[-1])
        text = f"only a copy in {records[0].topic} is there, which is for another group"
        return "other-group", text

    def _due(self, message: StoredMessage, what: str) -> str:
        due_ms = message.deliver_timestamp_ms
        number = f" {message.reconsume_times}" if what == "redelivery" else ""
        if due_ms is None:
            return f"its {what}{number} waits in {message.topic} for a time that is not known"
        late = "" if due_ms > self.now_ms else ": the time has passed, and no broker delivered it"
        return f"its {what}{number} to {message.real_topic} is due at {time_text(due_ms)}{late}"

    def _transaction(self, half: StoredMessage) -> tuple[WhyCode, str]:
        if self._ended(half):
            return "rolled-back", "its transaction was rolled back: no group gets it"
        checks = half.properties.get("TRANSACTION_CHECK_TIMES", "0")
        text = (
            f"its transaction has not ended: it is a half message for {half.real_topic} until the "
            f"producer commits; a broker has asked {checks} times"
        )
        return "half", text

    def _ended(self, half: StoredMessage) -> bool:
        """Whether the half message is among those that a broker has noted as ended."""
        topic = OP_TOPICS.get(half.topic, "")
        if (topic, half.queue_id) not in self.queues:
            return False
        number = str(half.queue_offset).encode()
        ended = self.store.scan(
            start_physical_offset=half.physical_offset,
            topics=[topic],
            on_error="skip",
            decompress=False,
        )
        return any(number in one.raw_body.split(b",") for one in ended)

    def _by_place(self, message: StoredMessage) -> tuple[WhyCode, str]:
        at = self.offsets.get((message.topic, message.queue_id))
        subscription, matches = self._subscription(message)
        if not matches:
            wanted = f"none of those that the group takes: {subscription}"
            return "filtered", f"its tags {message.tags!r} are {wanted}"
        if at is not None and at > message.queue_offset:
            hint = (
                "" if subscription else "; the store does not say by which tags the group filters"
            )
            text = f"the group's place {at} is behind it: it got or skipped it{hint}"
            return "taken", text
        if self.settings.get("consumeEnable") is False:
            text = "the group may not consume: consumeEnable is false in subscriptionGroup.json"
            return "disabled", text
        if (reason := self._not_served(message)) is not None:
            return "not-served", reason
        if at is None:
            reads = any(topic == message.topic for topic, _ in self.offsets)
            where = f"queue {message.queue_id} of " if reads else ""
            text = (
                f"the group has no place in {where}{message.topic}: it never took from there, or "
                "it is a broadcasting group, whose clients keep the place"
            )
            return "no-offset", text
        before = message.queue_offset - at
        count = f"{before} messages before it" if before else "it is the next one"
        return "waiting", f"the group's place is {at}: {count}"

    def _not_served(self, message: StoredMessage) -> str | None:
        """Why a broker gives the queue to no consumer, by ``topics.json``."""
        table = read_table(self.store, "topics.json", "topicConfigTable")
        of_table = kind_of_name(message.topic) in {None, "retry", "dead letter"}
        if table is not None and of_table and message.topic not in table:
            return f"not served: topics.json has no topic {message.topic}"
        row = _row(self.store, "topics.json", "topicConfigTable", message.topic)
        queues, perm = row.get("readQueueNums"), row.get("perm")
        where = f"in topics.json of {message.topic}"
        if isinstance(queues, int) and message.queue_id >= queues:
            return f"not served: readQueueNums is {queues} {where}, its queue is {message.queue_id}"
        if isinstance(perm, int) and not perm & _PERM_READ:
            return f"not served: perm is {perm} {where}, which does not allow reading"
        return None

    def _deleted(self, place: tuple[str, int, int], first: int) -> WhyAnswer:
        topic, queue_id, queue_offset = place
        at = self.offsets.get((topic, queue_id))
        gone = f"it was deleted: queue {queue_id} of {topic} begins at {first}"
        if at is None or at <= queue_offset:
            where = "the group has no place there"
            if at is not None:
                where = f"the group's place {at} had not reached it"
            return self._answer("deleted-unread", f"{gone}, and {where}", place)
        return self._answer("below-log", f"{gone}, and the group's place {at} was behind it", place)

    def _subscription(self, message: StoredMessage) -> tuple[str | None, bool]:
        """The group's expression for the topic, and whether the message's tags match it."""
        expression, is_tags = self.tags, True
        if expression is None:
            for kept in self.settings.get("subscriptionDataSet") or ():
                if isinstance(kept, dict) and kept.get("topic") == message.topic:
                    expression = kept.get("expression")
                    is_tags = kept.get("expressionType", "TAG") == "TAG"
        if expression is None:
            table = _row(self.store, "consumerFilter.json", "filterDataByTopic", message.topic)
            filters = table.get("groupFilterData")
            kept = filters.get(self.group) if isinstance(filters, dict) else None
            if isinstance(kept, dict):
                expression, is_tags = kept.get("expression"), False
        if not isinstance(expression, str) or not is_tags:
            return (f"SQL: {expression}" if expression else None), True
        names = {name.strip() for name in expression.split("||")}
        return expression, "*" in names or expression.strip() == "" or message.tags in names

    def _answer(
        self,
        code: WhyCode,
        text: str,
        place: tuple[str, int, int],
        message: StoredMessage | None = None,
        records: Sequence[StoredMessage] = (),
    ) -> WhyAnswer:
        topic, queue_id, queue_offset = place
        at = self.offsets.get((topic, queue_id))
        more: dict[str, Any] = {}
        if message is not None:
            more = {name: getattr(message, name) for name in ("tags", "keys", "unique_key")}
            more["subscription"] = self._subscription(message)[0]
        return WhyAnswer(
            code=code,
            text=text,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            group_offset=at,
            before=None if at is None else max(queue_offset - at, 0),
            places=tuple(
                WhyPlace(*(getattr(record, name) for name in WhyPlace.__match_args__))
                for record in records
            ),
            **more,
        )


def _row(store: Store, file: str, table: str, name: str) -> dict[str, Any]:
    """An entry of one of the broker's tables; empty where there is none."""
    row = table_rows(store, file, table).get(name)
    return row if isinstance(row, dict) else {}
