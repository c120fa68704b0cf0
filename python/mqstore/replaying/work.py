"""The messages of one run: new ones, those of mended ranges, and those that failed before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import mqstore
from mqstore.errors import ConfigError, expected, wrong_setting
from mqstore.replaying.journal import Line
from mqstore.replaying.report import ACTIONS, ReplayRefusal
from mqstore.replaying.selection import Chosen, NotSent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mqstore import Message, StoredMessage
    from mqstore.replaying.journal import Journal
    from mqstore.replaying.selection import Selector

    Transform = Callable[[StoredMessage], Message | StoredMessage | None]


@dataclass(kw_only=True)
class Work:
    """The records that a run sends.

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
