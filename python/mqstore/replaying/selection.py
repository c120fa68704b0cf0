"""Which messages of a store are sent, to which topic, and which are refused."""

from __future__ import annotations

import contextlib
import functools
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from mqstore._names import broker_of, is_system_topic, missing_topics
from mqstore._native import Damage, decode
from mqstore.care.pending import DEAD_LETTER, RETRY, PendingMessages, delivered_offsets
from mqstore.errors import CorruptionError, MessageNotFoundError, StoreError
from mqstore.exchange.matching import Choice, body_matches
from mqstore.exchange.narrowing import has_all_queues, offsets_of_keys
from mqstore.groups.failed import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mqstore import Message, Store, StoredMessage
    from mqstore._native import _Pattern
    from mqstore.replaying.report import ReplayFailure

Refused = Literal["half", "rolled-back", "system", "damaged", "copy", "not-utf8"]
REFUSED: tuple[Refused, ...] = get_args(Refused)
# Messages that wait for their own topic.
_WAITING = ("half", "delayed", "timer")
# Compressed, of a transaction, or a batch: bits of `MessageSysFlag`.
_UNUSUAL = 0x1 | 0xC | 0xC0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The requested messages: arguments of ``mqstore.replay``; ``None`` and empty are no bound.

    Attributes:
        dead_letters: A group whose dead letters are meant.
        to_origin: Whether these go to their topic, and not to their group.
    """

    topics: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    first_queue_offset: int | None = None
    last_queue_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    keys: tuple[str, ...] = ()
    ids: tuple[str | int, ...] = ()
    grep: _Pattern | None = None
    missed_by: str | None = None
    dead_letters: str | None = None
    to_origin: bool = False
    include: tuple[Refused, ...] = ()

    @property
    def group(self) -> str | None:
        """The group whose retry topic the messages go to."""
        return None if self.to_origin else self.missed_by or self.dead_letters


NOTHING: dict[Any, Any] = {}


# A struct is made faster than a dataclass, and there is one for each message, without cycles.
class Chosen(msgspec.Struct, gc=False):
    """A record to be sent, and how far it is.

    Attributes:
        place: Its physical offset.
        time_ms: When it was stored.
        topic: Topic of the target.
        queue_id: Its queue; of a waiting message the one that it is for.
        lane: A number of the queue that it comes from, in whose order it is sent.
        added: Properties that its messages get.
        messages: Its messages, by place in their batch, from 0; ``None`` outside of one.
        changed: What is sent in the place of some of them.
        is_again: Whether it lies before handled ones.
        first: Number of the first of its messages in the run.
        waiting: How many of them have no answer yet.
        size: Bytes of those that were handed on.
        failures: Those that the cluster did not take.
    """

    place: int
    time_ms: int
    topic: str
    queue_id: int
    lane: int
    added: Mapping[str, str]
    messages: Mapping[int | None, StoredMessage]
    changed: Mapping[int | None, Message] = NOTHING
    is_again: bool = False
    first: int = 0
    waiting: int = 0
    size: int = 0
    failures: tuple[ReplayFailure, ...] = ()

    def goes_to(self, index: int | None) -> tuple[str, int]:
        """Topic and queue of one of its messages; a transform may have changed them."""
        topic, queue_id = self.topic, self.queue_id
        if self.changed and (changed := self.changed.get(index)):
            message = self.messages[index]
            if changed.topic != message.topic:
                topic = changed.topic
            if changed.queue_id != message.queue_id:
                queue_id = changed.queue_id or 0
        return topic, queue_id


@dataclass(frozen=True, slots=True)
class NotSent:
    """A message that is not sent, or a damaged range."""

    place: int
    reason: str
    topic: str = ""
    detail: str = ""
    length: int = 1


class Selector:
    """The chosen messages of an open store, in the order of the log."""

    def __init__(self, store: Store, what: Selection, *, allow_empty: bool = False) -> None:
        self._store = store
        self._what = what
        self._group, self._to_group = what.missed_by or what.dead_letters, what.group
        self._own = () if self._group is None else (RETRY + self._group, DEAD_LETTER + self._group)
        self._broker = broker_of(store.path)
        self._delivered = delivered_offsets(store)
        self._begins: dict[tuple[str, int], int] | None = None
        self._wanted: set[str] = set()
        # Offsets of the group that missed messages, by topic and queue.
        self.offsets: dict[str, dict[int, int]] = {}
        topics: tuple[str, ...] = what.topics
        if what.dead_letters is not None:
            topics = (DEAD_LETTER + what.dead_letters,)
        if not allow_empty and (missing := missing_topics(store, topics)):
            raise MessageNotFoundError(f"{'; '.join(missing)}; nothing was sent")
        if what.missed_by is not None:
            self._begins = self._missed(what.missed_by)
            # A message that waits there for its time may be for the group.
            topics = (*sorted(self._wanted), SCHEDULE_TOPIC)
        self._choice = Choice(
            topics=topics or None,
            tags=what.tags,
            keys=what.keys or None,
            begin_ms=what.begin_ms,
            end_ms=what.end_ms,
        )
        self._matches = None if what.grep is None else body_matches(what.grep)
        self._plain_lane = functools.lru_cache(maxsize=4096)(self._find_plain_lane)
        self.log_begin = self.begin = store.min_physical_offset
        self.end = store.max_physical_offset

    def chosen(
        self, spans: Iterable[tuple[int, int | None]] = ((0, None),)
    ) -> Iterator[Chosen | NotSent]:
        """The messages of parts of the log; by ids or keys, of others as well."""
        if self._what.ids:
            # An id is looked up, and then read as all others.
            places = (
                one if isinstance(one, int) else self._store.get_by_id(one).physical_offset
                for one in self._what.ids
            )
            yield from self.at(dict.fromkeys(places))
            return
        for found in self._found(spans):
            if isinstance(found, Damage):
                yield from self._damaged(found)
            elif (one := self._judged(found)) is not None:
                yield one

    def at(self, places: Mapping[int, str | None]) -> Iterator[Chosen | NotSent]:
        """The messages at physical offsets, with these ids, as far as the selection has them."""
        for place, message_id in sorted(places.items()):
            try:
                message = self._store.get(place)
            except CorruptionError as error:
                yield from self._damaged(Damage(place, 1, str(error)))
                continue
            except StoreError as error:
                if self._what.ids:
                    raise
                yield NotSent(place, "another-message", detail=str(error))
                continue
            if message_id not in (None, message.message_id):
                yield NotSent(place, "another-message", message.topic, message.message_id)
                continue
            is_there = next(self._scan(place, place + 1), None) is not None
            one = self._judged(message) if is_there else None
            yield one or NotSent(place, "not-selected", message.topic)

    def _missed(self, group: str) -> dict[tuple[str, int], int]:
        """The first queue offset that a group has not taken, of queues that it knows."""
        offsets = self._store.groups().get(group)
        if offsets is None:
            raise MessageNotFoundError(
                f"no offsets of group {group!r} in {self._store.path}; `mqstore groups` lists the "
                "groups; nothing was sent"
            )
        taken = {(at.topic, at.queue_id): max(at.queue_offset, 0) for at in offsets}
        self._wanted = {RETRY + group, *(topic for topic, _ in taken)}
        if self._what.topics:
            self._wanted &= {*self._what.topics, RETRY + group}
        taken = {place: offset for place, offset in taken.items() if place[0] in self._wanted}
        for queue_id, offset in self._delivered.items():
            taken[SCHEDULE_TOPIC, queue_id] = offset
        self.offsets = {topic: {} for topic in (*self._wanted, SCHEDULE_TOPIC)}
        for (topic, queue_id), offset in taken.items():
            self.offsets[topic][queue_id] = offset
        return taken

    def _scan(self, start: int, stop: int | None) -> Iterator[StoredMessage | Damage]:
        found = self._store.scan(
            start_physical_offset=start,
            stop_physical_offset=stop,
            on_error="report",
            decompress=False,
            **self._choice.filters,
        )
        if not self._what.keys:
            return found
        return (one for one in found if isinstance(one, Damage) or self._choice.has_key(one))

    def _found(self, spans: Iterable[tuple[int, int | None]]) -> Iterator[StoredMessage | Damage]:
        what = self._what
        if what.keys and what.tags is None:
            asked = {"keys": what.keys, "begin_ms": what.begin_ms, "end_ms": what.end_ms}
            places = None
            # Where the index may lack some, or leads to damage, the log is read.
            with contextlib.suppress(CorruptionError):
                places = offsets_of_keys(self._store, asked, self._choice.topics)
            if places is not None:
                yield from map(self._store.get, sorted({*places}))
                return
        start, stop = self._range()
        self.begin, self.end = start, self.end if stop is None else stop
        most = sys.maxsize if stop is None else stop
        for first, last in spans:
            to = stop if last is None else min(last, most)
            if to is None or max(first, start) < to:
                yield from self._scan(max(first, start), to)
        if what.end_ms is None and stop is None:
            self._store._check_end(self._choice.topics, None)  # noqa: SLF001

    def _range(self) -> tuple[int, int | None]:
        """The part of the log to read, by the queues where none of them can have lost entries."""
        whole = self._store.min_physical_offset, None
        if self._begins is None and self._what.dead_letters is None:
            return whole
        begins, topics = self._begins or {}, self._choice.topics or ()
        queues = {(q.topic, q.queue_id): q for q in self._store.queues() if q.topic in topics}
        # The levels of a delay have queues of their own, few of which are in use.
        asked = {"topics": [topic for topic in topics if topic != SCHEDULE_TOPIC]}
        if not has_all_queues(self._store, asked, {*queues}) or not {*begins} <= {*queues}:
            return whole
        firsts: list[int] = []
        lasts: list[int] = []
        for place, queue in queues.items():
            begin = begins.get(place, 0)
            if begin < queue.min_offset:
                return whole
            if begin >= queue.max_offset:
                continue
            try:
                for offset, places in ((begin, firsts), (queue.max_offset - 1, lasts)):
                    read = self._store.read(*place, offset, max_messages=1)
                    places.append(read.messages[0].physical_offset)
            except (StoreError, IndexError):
                return whole
        if not firsts:
            # Only what is in no queue is left: none of a group's offsets leads there.
            return (0, 0) if self._begins is not None else whole
        return min(firsts), max(lasts) + 1

    def _find_plain_lane(self, topic: str, queue_id: int) -> int | None:
        """The lane of a queue whose usual messages are sent; ``None`` if each is looked at."""
        what = self._what
        bounds = what.first_queue_offset, what.last_queue_offset, self._begins, self._group
        is_plain = (*bounds, self._matches) == (None,) * 5
        is_plain = is_plain and queue_id in (what.queue_ids or (queue_id,))
        return _lane(topic, queue_id) if is_plain and not _is_system(topic) else None

    def _judged(self, message: StoredMessage) -> Chosen | NotSent | None:
        """Decides about a message; ``None`` if the selection has not got it."""
        topic, queue_id, raw = message.topic, message.queue_id, message.raw_properties
        lane = self._plain_lane(topic, queue_id)
        if (
            lane is None
            or message.sys_flag & _UNUSUAL
            or raw.find(b"MQSTORE_") >= 0  # `in` would first raise an error, and catch it
            or not raw.isascii()
        ):
            return self._judged_closely(message)
        place, time_ms = message.physical_offset, message.store_timestamp_ms
        return Chosen(place, time_ms, topic, queue_id, lane, NOTHING, {None: message})

    def _judged_closely(self, message: StoredMessage) -> Chosen | NotSent | None:
        what, group = self._what, self._to_group
        first, last = what.first_queue_offset, what.last_queue_offset
        topic, queue_id = message.topic, message.queue_id
        if self._begins is not None and (
            message.queue_offset < self._begins.get((topic, queue_id), 0)
        ):
            return None
        purpose, real, lane = message.purpose, topic, _lane(topic, queue_id)
        if purpose in _WAITING and message.real_topic not in (None, "", topic):
            real = message.real_topic
            queue_id = queue_id if message.real_queue_id is None else message.real_queue_id
        origin: str | None = real
        if real.startswith((RETRY, DEAD_LETTER)):
            properties = message.properties
            origin = properties.get("RETRY_TOPIC") or properties.get("DLQ_ORIGIN_TOPIC")
        if (
            (self._begins is not None and real not in self._wanted)
            or (what.topics and self._group is not None and origin not in what.topics)
            or (what.queue_ids and queue_id not in what.queue_ids)
            or (first is not None and message.queue_offset < first)
            or (last is not None and message.queue_offset > last)
            or (self._matches is not None and not self._matches(message))
        ):
            return None
        to, added = real, NOTHING
        if group is not None:
            to, added = RETRY + group, {"RETRY_TOPIC": origin or real}
        elif what.to_origin:
            to = origin or real
        reason = self._reason(message, purpose, real)
        if reason is None and origin is None and self._group is not None:
            reason = "no-origin"
        if reason is None and group is None and to != topic and self._refuses(to):
            reason = "system"
        if reason is not None:
            return NotSent(message.physical_offset, reason, topic)
        messages: Mapping[int | None, StoredMessage] = {None: message}
        try:
            if batch := message.batch:
                messages = dict(enumerate(batch))
            for one in messages.values():
                _ = one.body
        except StoreError as error:
            if "damaged" not in what.include:
                return NotSent(message.physical_offset, "damaged", topic, str(error))
            messages = {None: message}
        place, time_ms = message.physical_offset, message.store_timestamp_ms
        return Chosen(place, time_ms, to, queue_id, lane, added, messages)

    def _reason(self, message: StoredMessage, purpose: str, real: str) -> str | None:
        """Why a message is not sent."""
        include, raw = self._what.include, message.raw_properties
        if b"MQSTORE_LEFT_OUT\x01" in raw:
            return "stand-in"
        if purpose == "half" and "half" not in include:
            return "half"
        if message.transaction == "rollback":
            return None if "rolled-back" in include else "rolled-back"
        topic = message.topic if self._group is None else real
        if purpose != "half" and topic not in self._own and self._refuses(topic):
            return "system"
        if "copy" not in include and b"MQSTORE_ORIGIN" in raw and self._is_copy(message):
            return "copy"
        if (
            "not-utf8" not in include
            and not raw.isascii()
            and raw.decode(errors="ignore").encode() != raw
        ):
            return "not-utf8"
        if purpose == "delayed":
            is_ended = message.queue_offset < self._delivered.get(message.queue_id, 0)
        else:
            is_ended = purpose in _WAITING and message.physical_offset not in self._waiting
        return "ended" if is_ended else None

    def _is_copy(self, message: StoredMessage) -> bool:
        """Whether a replay of this very broker has sent it; a dead letter is one anew."""
        broker, _, place = message.properties.get("MQSTORE_ORIGIN", "").rpartition("/")
        is_ours = broker == self._broker and place.isdecimal() and len(place) < 20
        is_dead = message.topic.startswith(DEAD_LETTER)
        return is_ours and not is_dead and int(place) < message.physical_offset

    def _refuses(self, topic: str) -> bool:
        return "system" not in self._what.include and _is_system(topic)

    @functools.cached_property
    def _waiting(self) -> set[int]:
        """Where half messages and timers lie that no broker has ended or delivered."""
        pending = PendingMessages(self._store)
        timers = pending.timers(sys.maxsize).values()
        return {*pending.half().values(), *(place for place, _ in timers)}

    def _damaged(self, damage: Damage) -> Iterator[Chosen | NotSent]:
        """A damaged range; the message in it where only its body is damaged, and it is wanted."""
        if "damaged" in self._what.include:
            scan: Any = self._store.scan_arrow(
                columns=["record"],
                start_physical_offset=damage.physical_offset,
                stop_physical_offset=damage.physical_offset + max(damage.length, 1),
                verify_crc=False,
                on_error="skip",
                **self._choice.filters,
            )
            records = [bytes(row.as_py()) for batch in scan for row in batch.column(0)]
            messages = [decode(record, verify_crc=False) for record in records]
            for message in filter(self._choice.has_key, messages):
                if (one := self._judged(message)) is not None:
                    yield one
            if messages:
                return
        length = max(damage.length, 1)
        yield NotSent(damage.physical_offset, "damaged", detail=damage.reason, length=length)


_is_system = functools.lru_cache(maxsize=4096)(is_system_topic)


@functools.lru_cache(maxsize=4096)
def _lane(topic: str, queue_id: int) -> int:
    return zlib.crc32(f"{topic}/{queue_id}".encode()) & 0x7FFFFFFF
