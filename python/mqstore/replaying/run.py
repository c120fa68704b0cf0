"""The run: its messages, handed on at a rate, answers noted in the journal, failures told apart."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import mqstore
from mqstore.errors import ConfigError, expected, wrong_setting
from mqstore.replaying.journal import Line
from mqstore.replaying.report import ACTIONS, FailureKind, ReplayFailure, ReplayRefusal
from mqstore.replaying.selection import NOTHING, Chosen, NotSent
from mqstore.replaying.sender import MOST_BODY_BYTES, Failed, Sender, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mqstore import Message, StoredMessage
    from mqstore.files.pace import Pace
    from mqstore.replaying.journal import Journal
    from mqstore.replaying.selection import Selector

    Transform = Callable[[StoredMessage], Message | StoredMessage | None]

_FEWEST_IN_FLIGHT, _MOST_IN_FLIGHT, _REQUESTS_IN_FLIGHT = 512, 4_096, 128
_WINDOW_BYTES = 32 << 20
# So many messages are handed on between two checks of the window.
_MOST_UNCHECKED = 64
_MOST_UNCOUNTED = 16 * _MOST_IN_FLIGHT
_SLOW_S = 0.1
_MOST_IN_A_ROW = 20
_MOST_FAILURES = 10_000
# RocketMQ's codes, and those of our client, by their meaning.
_MEANINGS: dict[FailureKind, tuple[int, ...]] = {
    "flow-control": (2, 215),
    "not-writable": (11,),
    "no-permission": (16,),
    "no-topic": (17, 10005),
    "no-queue": (-2,),
    "dead-letter": (-3,),
    "no-group": (26,),
    "refused": (13,),
    "unreachable": (10001, 10002, 10003, 10004),
}
_CODES = {code: kind for kind, codes in _MEANINGS.items() for code in codes}
_PERMISSION = re.compile("AclException|Authenticat|Authoriz|No accessKey|[Cc]heck signature")
_DISK = re.compile(r"[0-9]\.[0-9]+")
# A broker takes no messages from this use of its disk on (`diskSpaceWarningLevelRatio`).
_FULL = 0.89


def window_of(batch: int) -> int:
    """Most messages in flight, with requests of so many: those that a killed run may send twice."""
    return min(max(_REQUESTS_IN_FLIGHT * batch, _FEWEST_IN_FLIGHT), _MOST_IN_FLIGHT)


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


class Run:
    """Messages on their way to the cluster."""

    def __init__(self, sender: Sender, pace: Pace, work: Work) -> None:
        self._sender, self._journal, self._pace, self._work = sender, work.journal, pace, work
        self._added = property_block(work.properties or {})
        self._window = window_of(work.batch)
        self._waiting: dict[int, Chosen] = {}
        self._order: deque[Chosen] = deque()
        self._answered: list[Chosen] = []
        # Number of the last message that was handed on, and how many of them are noted.
        self._number = self._noted = self._bytes = self._in_a_row = self._failed = 0
        # How many may be handed on before the window is checked again.
        self._unchecked = 0
        # When answers were last taken.
        self._answered_s = time.monotonic()
        self.sent = self.unreplicated = 0
        self.stopped: str | None = None
        self.interrupted = False

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is sent."""
        return self.interrupted or self.stopped is not None

    def send(self, found: Iterable[Chosen], *, again: bool = False) -> None:
        """Sends records, ``again`` those before handled ones, until they end or the run stops."""
        for chosen in found:
            if again:
                chosen.is_again = True
            else:
                self._order.append(chosen)
            self._send(chosen)
            if self.is_ended:
                break

    def finish(self) -> None:
        """Waits for the answers that are due, and notes them."""
        try:
            while self._waiting and not self.is_ended:
                self._sender.flush()
                self._take_all(self._sender.answers(0.1))
            for answer in self._sender.end():
                self._take(answer)
        finally:
            if self._journal.is_open:
                self._commit()

    def _send(self, chosen: Chosen) -> None:
        chosen.first, chosen.waiting = self._number + 1, len(chosen.messages)
        added = property_block(chosen.added) + self._added if chosen.added else self._added
        topic, queue_id = chosen.topic, chosen.queue_id
        for index, message in chosen.messages.items():
            self._unchecked -= 1
            is_checked = self._unchecked >= 0 and self._bytes <= _WINDOW_BYTES
            # A record whose messages are not all handed on counts as not sent.
            if not is_checked and not self._has_room(is_new=not chosen.size):
                return
            sent: Message | StoredMessage = message
            if chosen.changed:
                topic, queue_id = chosen.goes_to(index)
                sent = chosen.changed.get(index, message)
            self._number = number = self._number + 1
            self._waiting[number] = chosen
            try:
                size = self._sender.send(
                    number, chosen.place, sent, topic, queue_id, chosen.lane, added
                )
            except Exception:
                # No answer comes, and the end of the run would wait for it.
                del self._waiting[number]
                raise
            if not size:
                size, text = 1, f"a body of more than {MOST_BODY_BYTES} bytes is not sent"
                self._take(Failed(number, "TooLarge", text, 13, 0))
            chosen.size += size
            self._bytes += size
            if not self._pace.is_free:
                self._pace.take(size)
            if time.monotonic() - self._answered_s > _SLOW_S:
                # They come slower than the window fills.
                self._sender.flush()
                self._take_all(self._sender.answers(0))

    def _has_room(self, *, is_new: bool) -> bool:
        """Waits for the rate and, with a new record, for room in the window; whether both came."""
        most = self._window - 1
        while not self.is_ended:
            wait_s = self._pace.wait_s()
            in_flight = self._number - self._noted
            is_full = is_new and (
                in_flight > most
                # One queue in its tries holds up what is counted.
                or len(self._order) > _MOST_UNCOUNTED
                or (in_flight > 0 and self._bytes > _WINDOW_BYTES)
            )
            if not is_full and wait_s <= 0:
                left = min(self._window - 1 - in_flight, _MOST_UNCOUNTED - len(self._order))
                self._unchecked = min(left, _MOST_UNCHECKED) if self._pace.is_free else 0
                return True
            if is_full:
                # Room for many at once, so that requests are full.
                most = self._window // 2
                # One of a queue with few messages must not wait until its request is full.
                if self._number - next(iter(self._waiting), self._number) > 2 * self._window:
                    self._sender.flush()
            else:
                self._sender.flush()
            if in_flight:
                self._take_all(self._sender.answers(0.1 if is_full else min(wait_s, 0.1)))
            else:
                time.sleep(min(max(wait_s, 0.0), 0.1))
        return False

    def _take_all(self, answers: Iterable[Sent | Failed]) -> None:
        for answer in answers:
            self._take(answer)
        self._commit()
        self._answered_s = time.monotonic()

    def _take(self, answer: Sent | Failed) -> None:
        if isinstance(answer, Sent):
            self._in_a_row = 0
            if answer.status != "SEND_OK":
                self.unreplicated += len(answer.numbers)
            self._answer(answer.numbers)
            return
        chosen, kind = self._waiting[answer.number], kind_of(answer)
        if self.stopped is not None and ACTIONS[kind] != "skip":
            # It follows from what stopped the run: the next run sends it.
            return
        # Each run tries these again, and they say nothing about the others.
        self._in_a_row += not (kind == "no-queue" and chosen.is_again)
        if not chosen.is_again and ACTIONS[kind] != "skip":
            self._failed += 1
        failure = _failure(answer, kind, chosen)
        chosen.failures += (failure,)
        self._answer((answer.number,))
        text = f"{failure.topic}: {answer.text}"
        self.stopped = self.stopped or self._reason_to_stop(kind, text)
        self._unchecked = 0

    def _answer(self, numbers: Iterable[int]) -> None:
        for chosen in map(self._waiting.pop, numbers):
            chosen.waiting -= 1
            if not chosen.waiting:
                self._answered.append(chosen)

    def _reason_to_stop(self, kind: FailureKind, answer: str) -> str | None:
        # Others do not wait for one that fails by itself; as in Java.
        if self._work.ordered and ACTIONS[kind] != "skip":
            return f"{kind}, and others must not overtake it: {answer}"
        # The client ends by itself where its messages become dead letters.
        if kind == "dead-letter" or self._work.on_failure == "stop":
            if ACTIONS[kind] == "stop":
                return f"{kind}: {answer}"
            if self._in_a_row >= _MOST_IN_A_ROW:
                return f"{_MOST_IN_A_ROW} failures in a row, the last of {answer}"
        return f"{_MOST_FAILURES} failures" if self._failed >= _MOST_FAILURES else None

    def _commit(self) -> None:
        """Notes the answered records, and then counts them."""
        if not self._answered:
            return
        answered, self._answered = self._answered, []
        journal, line, last = self._journal, Line(), None
        order = self._order
        while order and not order[0].waiting:
            last = order.popleft()
        if last is not None:
            line.done = last.place
        if journal.anchor is None and last is None:
            last = answered[0]
        if last is not None:
            line.anchor = last.place, last.time_ms
        done = journal.done if line.done is None else line.done
        messages = size = 0
        for chosen in answered:
            place = chosen.place
            if chosen.is_again:
                # A damaged batch is sent, and fails, as one message.
                keys = [(place, index) for index in dict.fromkeys((None, *chosen.messages))]
                known = [key for key in keys if key in journal.failures]
                line.resolved += known
                if place <= journal.done and not known:
                    line.late.append(place)
            if place > done and place not in journal.beyond:
                line.beyond.append(place)
            if chosen.failures:
                line.failures += chosen.failures
            messages += len(chosen.messages)
            size += chosen.size
            # Many may wait for one before them.
            chosen.messages = chosen.changed = NOTHING
        line.sent = messages - len(line.failures)
        journal.note(line)
        self.sent += line.sent
        self._noted += messages
        self._bytes -= size


def _failure(found: Failed, kind: FailureKind, chosen: Chosen) -> ReplayFailure:
    index, message = [*chosen.messages.items()][found.number - chosen.first]
    return ReplayFailure(
        physical_offset=chosen.place,
        topic=chosen.goes_to(index)[0],
        kind=kind,
        # The client adds a line with an address for readers.
        answer=found.text.partition("\nFor more information")[0],
        code=found.code,
        tries=found.tries,
        message_id=message.message_id,
        unique_key=message.unique_key,
        keys=tuple(message.keys),
        batch_index=index,
    )


def property_block(pairs: Mapping[str, str]) -> bytes:
    """Properties as they are stored."""
    return "".join(f"{name}\1{value}\2" for name, value in pairs.items()).encode()


@dataclass(kw_only=True)
class Work:
    """The records that a run sends, and how: most are arguments of ``mqstore.replay``.

    Attributes:
        failed: Message ids of a report of failures, by physical offset and place in the batch.
        refusals: The messages that it does not send, by reason.
        mended: Begins of the ranges that earlier runs could not read, and that this one has read.
    """

    selector: Selector
    journal: Journal
    failed: Mapping[tuple[int, int | None], str] | None
    ordered: bool
    limit: int | None
    to_topic: str | None
    transform: Transform | None
    progress: Callable[[int, int], object] | None
    properties: Mapping[str, str] | None
    on_failure: str
    batch: int
    refusals: dict[str, ReplayRefusal] = field(default_factory=dict)
    mended: list[int] = field(default_factory=list)

    def streams(self) -> list[tuple[Iterator[Chosen], bool]]:
        """The records to send in their order, and whether they lie before what was handled."""
        limit = [self.limit]
        passed = self._taken(self._passed(), limit), True
        new = self._taken(self._new(), limit), False
        # Earlier failures spend no limit, but those of a report.
        failed = self._taken(self._again(), [None] if self.failed is None else limit), True
        if self.failed is not None:
            return [failed]
        # They hold no new messages back, but where these must not overtake them.
        return [failed, passed, new] if self.ordered else [passed, new, failed]

    def _new(self) -> Iterator[Chosen | NotSent]:
        """Yields messages behind those that are handled."""
        journal, selector = self.journal, self.selector
        for one in selector.chosen([(journal.done + 1, None)]):
            if journal.is_handled(one.place):
                continue
            if self.progress is not None:
                self.progress(one.place - selector.begin, selector.end - selector.begin)
            if isinstance(one, NotSent):
                self._learn(one)
            yield one

    def _passed(self) -> Iterator[Chosen | NotSent]:
        """Yields messages of ranges that earlier runs could not read."""
        journal, spans, stop = self.journal, [], 0
        for place, length in sorted(journal.passed.items()):
            # One range may lie in another.
            spans.append((max(place, stop), place + length))
            stop = max(stop, place + length)
        if not spans:
            return
        begins, done, damaged = [*journal.passed], journal.done, set()
        for one in self.selector.chosen(spans):
            # Ids and keys give messages outside of these ranges, too.
            is_in = any(begin <= one.place < end for begin, end in spans)
            if is_in and one.place <= done and one.place not in journal.late:
                if self._learn(one):
                    damaged.add(one.place)
                yield one
        begin = self.selector.log_begin
        self.mended = [place for place in begins if place >= begin and place not in damaged]

    def _learn(self, one: Chosen | NotSent) -> bool:
        """Notes a damaged range, for the next run."""
        if not isinstance(one, NotSent) or one.reason != "damaged":
            return False
        if self.journal.passed.get(one.place) != one.length:
            self.journal.learn(Line(passed=[(one.place, one.length)]))
        return True

    def _again(self) -> Iterator[Chosen | NotSent]:
        """The messages that failed before: those of the report, else those whose cause may pass."""
        journal, failures = self.journal, self.journal.failures
        if self.failed is None:
            wanted = {
                key: one.message_id for key, one in failures.items() if ACTIONS[one.kind] != "skip"
            }
        else:
            wanted = {
                key: message_id
                for key, message_id in self.failed.items()
                if key in failures or not journal.is_handled(key[0])
            }
            # It would count the whole batch as sent.
            if any(index is not None for _, index in wanted.keys() - failures.keys()):
                there = "messages of a batch that this journal has not tried"
                advice = "name the journal of their run"
                raise wrong_setting("retry_failed", "others", there, advice)
        for one in self.selector.at({place: name for (place, _), name in wanted.items()}):
            if isinstance(one, Chosen) and (one.place, None) not in wanted:
                one.messages = {
                    index: message
                    for index, message in one.messages.items()
                    if (one.place, index) in wanted
                }
            yield one

    def _taken(
        self, found: Iterable[Chosen | NotSent], limit: list[int | None]
    ) -> Iterator[Chosen]:
        """The records to send, at most so many messages; the others are counted."""
        for one in found:
            if isinstance(one, NotSent):
                self._refuse(one)
                continue
            if self.to_topic is not None:
                one.topic = self.to_topic
            if self.transform is not None:
                self._change(one, self.transform)
            if not one.messages:
                continue
            if limit[0] is not None:
                # The messages of a batch go together.
                if limit[0] <= 0:
                    return
                limit[0] -= len(one.messages)
            yield one

    def _change(self, one: Chosen, transform: Transform) -> None:
        where = f"transform, at physical offset {one.place}"
        kept, changed = {}, {}
        for index, message in one.messages.items():
            try:
                new = transform(message)
            except Exception as error:
                got = f"{type(error).__name__}: {error}"
                raise ConfigError(expected(where, "no error", got), "transform") from error
            if new is None:
                self._refuse(NotSent(one.place, "dropped", message.topic))
                continue
            kept[index] = message
            if isinstance(new, mqstore.StoredMessage) and new is not message:
                new = new.to_message()
            if isinstance(new, mqstore.Message):
                changed[index] = new
            elif new is not message:
                got = type(new).__name__
                raise ConfigError(expected(where, "a message or None", got), "transform")
        one.messages, one.changed = kept, changed

    def _refuse(self, one: NotSent) -> None:
        row = self.refusals.get(one.reason)
        row = row or ReplayRefusal(one.reason, 0, one.topic, one.place, one.detail)
        self.refusals[one.reason] = replace(row, messages=row.messages + 1)

    def lost(self) -> list[str]:
        """Warnings of ranges that were deleted before a run had read them."""
        return [
            f"physical offsets {place} to {place + length} are gone from the log; messages that no "
            "run had read there are not sent"
            for place, length in self.journal.passed.items()
            if place + length <= self.selector.log_begin
        ]
