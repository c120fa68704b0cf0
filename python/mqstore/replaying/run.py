"""The run: messages handed on at a rate, answers noted in the journal, failures told apart."""

from __future__ import annotations

import functools
import re
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqstore.errors import StoreError
from mqstore.replaying.journal import Line
from mqstore.replaying.report import ACTIONS, FailureKind, ReplayFailure
from mqstore.replaying.sender import MOST_BODY_BYTES, Failed, Sender, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mqstore import Message
    from mqstore.replaying.journal import Journal
    from mqstore.replaying.selection import Chosen

ANY_QUEUE = -1
WINDOW = 1_024
"""Most messages in flight: those that a killed run may send twice."""
_WINDOW_BYTES = 32 << 20
_MOST_UNCOUNTED = 64 * WINDOW
_MOST_IN_A_ROW = 20
_MOST_FAILURES = 10_000
# Failures of one message, which the others do not wait for in their order; as in Java.
_OF_ONE = ("empty-body", "refused")
# A broker adds properties of its own to the 32,767 bytes that a record can hold.
_MOST_PROPERTY_BYTES = 32_500
_CODES: dict[int, FailureKind] = {
    2: "flow-control",
    215: "flow-control",
    11: "not-writable",
    16: "no-permission",
    17: "no-topic",
    10005: "no-topic",
    -2: "no-queue",
    -3: "dead-letter",
    26: "no-group",
    13: "refused",
    10001: "unreachable",
    10002: "unreachable",
    10003: "unreachable",
    10004: "unreachable",
}
_PERMISSION = re.compile("AclException|Authenticat|Authoriz|No accessKey|[Cc]heck signature")
_DISK = re.compile(r"[0-9]\.[0-9]+")
# A broker takes no messages from this use of its disk on (`diskSpaceWarningLevelRatio`).
_FULL = 0.89


def kind_of(answer: Failed) -> FailureKind:
    """The meaning of an answer."""
    text = answer.text
    if "length is zero" in text and answer.code in (13, -1):
        return "empty-body"
    # Other answers quote names of the store.
    if answer.code in (1, 16, -1) and _PERMISSION.search(text):
        return "no-permission"
    if answer.code == 14:
        used = [float(number) for number in _DISK.findall(text)]
        return "disk-full" if used and max(used) >= _FULL else "not-writable"
    if answer.kind.startswith("Remoting"):
        return "unreachable"
    return _CODES.get(answer.code, "broker-error")


class Pace:
    """Messages and bytes in a second, evenly."""

    def __init__(self, messages_per_s: float | None, bytes_per_s: float | None) -> None:
        self._cost_s = 1 / messages_per_s if messages_per_s else 0.0
        self._byte_cost_s = 1 / bytes_per_s if bytes_per_s else 0.0
        self._due_s = time.monotonic()

    def wait_s(self) -> float:
        """Seconds until the next message may be sent."""
        return self._due_s - time.monotonic()

    def take(self, size: int) -> None:
        """Counts a message of so many bytes."""
        begin = max(self._due_s, time.monotonic() - 0.1)
        self._due_s = begin + self._cost_s + size * self._byte_cost_s


@dataclass(slots=True)
class _Unit:
    """A record in flight, of a batch all its messages."""

    place: int
    time_ms: int
    size: int = 0
    messages: int = 0
    parts: int = 0
    whole: bool = False
    is_again: bool = False
    # A failure of an older journal is of the whole batch.
    tried: set[int | None] = field(default_factory=lambda: {None})
    failures: list[ReplayFailure] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.whole and not self.parts


@dataclass(slots=True, kw_only=True)
class Ways:
    """How messages are changed and sent."""

    broker: str
    keep_queue: bool = True
    properties: dict[str, str] = field(default_factory=dict)
    on_failure: str = "stop"
    ordered: bool = False


class Run:
    """Messages on their way to the cluster."""

    def __init__(self, sender: Sender, journal: Journal, pace: Pace, ways: Ways) -> None:
        self._sender, self._journal, self._pace, self._ways = sender, journal, pace, ways
        # With the message that an answer is for, and its topic.
        self._units: dict[int, tuple[_Unit, Chosen, str]] = {}
        self._order: deque[_Unit] = deque()
        self._answered: list[_Unit] = []
        self._number = self._in_flight = self._bytes = self._in_a_row = self._failed = 0
        self._last: _Unit | None = None
        self.sent = self.unreplicated = 0
        self.stopped: str | None = None
        self.interrupted = False

    def send(
        self,
        messages: Iterable[tuple[Chosen, Message | None]],
        advance: Callable[[int], object],
        *,
        again: bool = False,
    ) -> None:
        """Sends messages, ``again`` those before handled ones, until they end or the run stops."""
        for chosen, changed in messages:
            if self._last is None or self._last.place != chosen.place:
                if self._last is not None:
                    self._close_unit()
                self._begin_unit(chosen, again=again)
                advance(chosen.place)
            self._hand_on(chosen, changed)
            if self.stopped is not None or self.interrupted:
                break
        if self._last is not None and self.stopped is None and not self.interrupted:
            self._close_unit()

    def finish(self) -> None:
        """Waits for the answers that are due, and notes them."""
        # Its last messages may not have been handed on: it counts as not sent.
        self._last = None
        try:
            self._sender.flush()
            while self._units and self.stopped is None and not self.interrupted:
                for answer in self._sender.answers(0.1):
                    self._take(answer)
                self._commit()
            for answer in self._sender.end():
                self._take(answer)
        finally:
            if self._journal.is_open:
                self._commit()

    def _begin_unit(self, chosen: Chosen, *, again: bool) -> None:
        unit = _Unit(chosen.place, chosen.message.store_timestamp_ms, is_again=again)
        self._last = unit
        if not again:
            self._order.append(unit)

    def _close_unit(self) -> None:
        unit, self._last = self._last, None
        assert unit is not None  # noqa: S101 - asked by the callers
        unit.whole = True
        if unit.is_done:
            self._answered.append(unit)

    def _hand_on(self, chosen: Chosen, changed: Message | None) -> None:
        unit, message = self._last, chosen.message
        assert unit is not None  # noqa: S101
        topic, queue_id, flag = chosen.topic, chosen.queue_id, message.flag
        properties = message.raw_properties
        if changed is None:
            try:
                body = message.body
            except StoreError:
                body = message.raw_body
        else:
            if changed.topic != message.topic:
                topic = changed.topic
            if changed.queue_id != message.queue_id:
                queue_id = changed.queue_id or 0
            flag, body = changed.flag, changed.body
            properties = _property_block(changed)
        size = len(body) + len(properties)
        self._wait(0 if unit.messages else size + 1)
        if self.stopped is not None or self.interrupted:
            return
        added = property_block({**chosen.added, **self._ways.properties})
        origin = property_block({"MQSTORE_ORIGIN": f"{self._ways.broker}/{chosen.place}"})
        if len(properties) + len(added) + len(origin) <= _MOST_PROPERTY_BYTES:
            added += origin
        lane = _lane(message.topic, message.queue_id)
        self._number += 1
        unit.parts += 1
        unit.messages += 1
        unit.size += size
        self._units[self._number] = unit, chosen, topic
        if unit.is_again:
            unit.tried.add(chosen.index)
        self._in_flight += 1
        self._bytes += size
        self._pace.take(size)
        if len(body) > MOST_BODY_BYTES:
            text = f"a body of {len(body)} bytes, at most {MOST_BODY_BYTES} are sent"
            self._take(Failed(self._number, "TooLarge", text, 13, 0))
            return
        queue = queue_id if self._ways.keep_queue and not topic.startswith("%RETRY%") else ANY_QUEUE
        self._sender.send(self._number, topic, queue, lane, flag, properties, added, body)

    def _wait(self, size: int) -> None:
        """Until there is room for a record in the window, if it is new, and the rate allows it."""
        most = WINDOW - 1
        while not self.interrupted and self.stopped is None:
            wait_s = self._pace.wait_s()
            is_full = size > 0 and (
                self._in_flight > most
                # One queue in its tries holds up what is counted.
                or len(self._order) > _MOST_UNCOUNTED
                or (self._in_flight > 0 and self._bytes + size > _WINDOW_BYTES)
            )
            if is_full:
                # Room for many at once, so that requests are full.
                most = WINDOW // 2
            if not is_full and wait_s <= 0:
                return
            self._sender.flush()
            if not self._in_flight:
                time.sleep(min(max(wait_s, 0.0), 0.1))
                continue
            for answer in self._sender.answers(0.1 if is_full else min(wait_s, 0.1)):
                self._take(answer)
            self._commit()

    def _take(self, answer: Sent | Failed) -> None:
        if isinstance(answer, Sent):
            self._in_a_row = 0
            if answer.status != "SEND_OK":
                self.unreplicated += len(answer.numbers)
            for number in answer.numbers:
                self._answer(number)
            return
        kind = kind_of(answer)
        if self.stopped is not None and ACTIONS[kind] != "skip":
            # It follows from what stopped the run: the next run sends it.
            self._units.pop(answer.number)[0].whole = False
            return
        unit, chosen, topic = self._units[answer.number]
        # Each run tries these again, and they say nothing about the others.
        self._in_a_row += not (kind == "no-queue" and unit.is_again)
        if not unit.is_again and ACTIONS[kind] != "skip":
            self._failed += 1
        unit.failures.append(_failure(answer, kind, chosen, topic))
        self._answer(answer.number)
        if self.stopped is None and self._ways.ordered and kind not in _OF_ONE:
            self.stopped = f"{kind}, and others must not overtake it: {answer.text}"
        # The client ends by itself where its messages become dead letters.
        must = kind == "dead-letter" or self._ways.on_failure == "stop"
        if must and self.stopped is None:
            if ACTIONS[kind] == "stop":
                self.stopped = f"{kind}: {answer.text}"
            elif self._in_a_row >= _MOST_IN_A_ROW:
                self.stopped = (
                    f"{_MOST_IN_A_ROW} failures in a row, the last of {topic}: {answer.text}"
                )
        if self._failed >= _MOST_FAILURES and self.stopped is None:
            self.stopped = f"{_MOST_FAILURES} failures"

    def _answer(self, number: int) -> None:
        unit = self._units.pop(number)[0]
        unit.parts -= 1
        if unit.is_done:
            self._answered.append(unit)

    def _commit(self) -> None:
        """Notes the answered records, and then counts them."""
        if not self._answered:
            return
        answered, self._answered = self._answered, []
        done = anchor = None
        while self._order and self._order[0].is_done:
            last = self._order.popleft()
            done, anchor = last.place, (last.place, last.time_ms)
        if self._journal.anchor is None and anchor is None:
            anchor = answered[0].place, answered[0].time_ms
        sent = sum(unit.messages - len(unit.failures) for unit in answered)
        tried = [(unit.place, index) for unit in answered for index in unit.tried]
        known = self._journal.failures
        self._journal.note(
            Line(
                done=done,
                beyond=[
                    unit.place
                    for unit in answered
                    if not self._journal.is_handled(unit.place)
                    and (done is None or unit.place > done)
                ],
                late=[
                    unit.place
                    for unit in answered
                    if unit.is_again
                    and unit.place <= self._journal.done
                    and not any((unit.place, index) in known for index in unit.tried)
                ],
                anchor=anchor,
                sent=sent,
                resolved=[key for key in tried if key in known],
                failures=[failure for unit in answered for failure in unit.failures],
            )
        )
        self.sent += sent
        for unit in answered:
            self._in_flight -= unit.messages
            self._bytes -= unit.size


@functools.lru_cache(maxsize=4096)
def _lane(topic: str, queue_id: int) -> int:
    return zlib.crc32(f"{topic}/{queue_id}".encode()) & 0x7FFFFFFF


def _failure(found: Failed, kind: FailureKind, chosen: Chosen, topic: str) -> ReplayFailure:
    message = chosen.message
    return ReplayFailure(
        physical_offset=chosen.place,
        topic=topic,
        kind=kind,
        # The client adds a line with an address for readers.
        answer=found.text.partition("\nFor more information")[0],
        code=found.code,
        tries=found.tries,
        message_id=message.message_id,
        unique_key=message.unique_key,
        keys=tuple(message.keys),
        batch_index=chosen.index,
    )


def _property_block(message: Message) -> bytes:
    """The properties of a message that a transform made, as they are stored."""
    given = message.properties
    if isinstance(given, bytes):
        return given
    named = {"TAGS": message.tags, "KEYS": " ".join(message.keys), "UNIQ_KEY": message.unique_key}
    pairs = {**{name: value for name, value in named.items() if value}, **given}
    return property_block(pairs)


def property_block(pairs: Mapping[str, str]) -> bytes:
    """Properties as they are stored."""
    return "".join(f"{name}\1{value}\2" for name, value in pairs.items()).encode()
