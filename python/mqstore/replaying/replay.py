"""``mqstore.replay`` and ``mqstore.resend``."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import re
import signal
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import mqstore
from mqstore._names import broker_of
from mqstore.errors import ConfigError, StoreError, expected
from mqstore.replaying.arguments import check
from mqstore.replaying.journal import Journal, Line
from mqstore.replaying.report import (
    ACTIONS,
    FirstMessage,
    ReplayRefusal,
    ReplayReport,
    ReplayTopic,
    read_failures,
)
from mqstore.replaying.run import Pace, Run, Ways
from mqstore.replaying.selection import (
    DROPPED,
    OF_DEAD_LETTERS,
    Chosen,
    NotSent,
    Selection,
    Selector,
)
from mqstore.replaying.sender import Sender, Target
from mqstore.store import connect, is_remote
from mqstore.text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mqstore import Message, Store, StoredMessage
    from mqstore.config import ConfigLike
    from mqstore.replaying.selection import Refused

    Transform = Callable[[StoredMessage], Message | StoredMessage | None]

_FIRST = 5
_ALWAYS_DIFFERENT = (
    "store and born times are those of this run; hosts, ids and queue offsets are the target's",
    "delays, transactions and counts of redelivery are not carried: messages are given out at once",
)


def replay(
    path: str | os.PathLike[str],
    to: str,
    *,
    topics: Iterable[str] | None = None,
    queue_ids: Iterable[int] | None = None,
    first_queue_offset: int | None = None,
    last_queue_offset: int | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    tags: str | None = None,
    keys: Iterable[str] | None = None,
    ids: Iterable[str | int] | None = None,
    grep: str | None = None,
    missed_by: str | None = None,
    include: Iterable[Refused] = (),
    apply: bool = False,
    rate: float | None = None,
    bytes_rate: float | None = None,
    limit: int | None = None,
    to_topic: str | None = None,
    queue: Literal["keep", "any"] = "keep",
    ordered: bool = False,
    new_id: bool = False,
    properties: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    journal: str | os.PathLike[str] | None = None,
    retry_failed: str | os.PathLike[str] | None = None,
    on_failure: Literal["stop", "skip"] = "stop",
    allow_empty: bool = False,
    rocketmq_home: str | os.PathLike[str] | None = None,
    classpath: str | None = None,
    credentials: str | os.PathLike[str] | None = None,
    tls: bool = False,
    tls_config: str | os.PathLike[str] | None = None,
    batch: int = 32,
    tries: int = 8,
    timeout_s: float = 3.0,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ReplayReport:
    """Sends messages of a store into a live cluster; without `apply` it reports what it would send.

    RocketMQ's own client sends them, in a Java process. Each message is sent at least once: a run
    that was killed goes on from its journal when it is started again with the same arguments, and
    sends at most the 1,024 messages again that were in flight. Unique keys stay, and the property
    ``MQSTORE_ORIGIN`` names broker and physical offset, so that consumers recognize a repeat.

    Args:
        path: The store: a folder, a copy, a backup or a URL. It is only read.
        to: Name servers of the target, ``"host:port"``, several joined by ``;``.
        topics: Only these topics. With `missed_by`: topics in which the group got them first.
        queue_ids: Only queues of these numbers.
        first_queue_offset: First queue offset that counts.
        last_queue_offset: Last queue offset that counts.
        begin_ms: First store time that counts, Unix milliseconds.
        end_ms: Last store time that counts.
        tags: A tag expression, such as ``"paid || refunded"``.
        keys: Only messages with one of these keys, or unique keys.
        ids: Only these messages, by message id or physical offset; goes alone.
        grep: Regular expression that is found in the body.
        missed_by: A consumer group: messages behind its offsets, of its topics and its waiting
            retries, go into its retry topic, so that no other group gets them.
        include: What is sent although it is refused by default: ``"half"``, ``"rolled-back"``,
            ``"system"`` (a broker's own topics), ``"damaged"`` (bodies; needs pyarrow), ``"copy"``
            (sent by a replay of this broker), ``"not-utf8"`` (properties; some bytes change).
        apply: Send them.
        rate: Most messages a second.
        bytes_rate: Most bytes of bodies and properties a second.
        limit: Most messages of this run, earlier failures apart; a next one goes on behind them.
        to_topic: Topic of the target for all of them.
        queue: ``"keep"``: the queue of the same number; ``"any"``: all queues in turn.
        ordered: Keep the order of each queue: a message is sent when the one before it was.
        new_id: Give each a new unique key, for consumers that drop keys they know.
        properties: Properties that each message gets.
        transform: Called with each message; the message that it returns is sent, usually
            ``message.to_message(...)`` with changes; ``None`` drops it.
        journal: File of the journal; by default one below ``~/.local/state/mqstore/replay`` that
            belongs to store, target and selection.
        retry_failed: A report of failures: only these messages are sent.
        on_failure: ``"stop"`` ends at a failure that all messages would have (no topic, no
            permission, full disk), and after 20 in a row; ``"skip"`` goes on.
        allow_empty: Go on where a topic is not in the store.
        rocketmq_home: Folder of an installed RocketMQ; by default ``ROCKETMQ_HOME``.
        classpath: Class path that has RocketMQ's client, in place of `rocketmq_home`.
        credentials: File with ``accessKey`` and ``secretKey``; by default they are
            ``MQSTORE_ACCESS_KEY`` and ``MQSTORE_SECRET_KEY`` of the environment.
        tls: Encrypt the connections. RocketMQ's client checks no certificate by itself.
        tls_config: File of RocketMQ's TLS settings, such as ``tls.client.authServer=true``.
        batch: Most messages of one request; 1 sends each alone.
        tries: How often a message is tried while the cause may pass.
        timeout_s: Seconds that an attempt may take.
        progress: Called with ``(done_bytes, total_bytes)`` of the log.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        MessageNotFoundError: A topic, group or id that is not in the store; nothing was sent.
        ConfigError: No Java, no client, or a journal of another selection.
        StoreLockedError: Another run sends with this journal.
        StoreIOError: The client ended, or the operating system refused something.
    """
    given = {name: value for name, value in locals().items() if name not in ("path", "to")}
    return _ended(Replay(path, to, **given).run())


def resend(
    path: str | os.PathLike[str],
    group: str,
    to: str,
    *,
    to_origin: bool = False,
    **options: Any,  # noqa: ANN401 - those of `replay`
) -> ReplayReport:
    """Sends the dead letters of a consumer group back; without ``apply`` it reports what it would.

    They go into the group's retry topic, so that this group gets them and no other.

    Args:
        path: The store.
        group: The consumer group.
        to: Name servers of the target.
        to_origin: Send them to the topic that they come from, and so to all its groups.
        options: All other arguments of ``mqstore.replay`` but ``missed_by``; ``topics`` are those
            that the dead letters come from.

    Raises:
        StoreError: As ``mqstore.replay``.
    """
    return _ended(Replay(path, to, group=group, to_origin=to_origin, **options).run())


def _ended(report: ReplayReport) -> ReplayReport:
    if report.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return report


INTERRUPTED = "interrupted"


class Replay:
    """A replay with all its arguments checked; those of ``mqstore.replay`` and ``resend``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        to: str,
        *,
        group: str | None = None,
        to_origin: bool = False,
        **options: Any,  # noqa: ANN401 - named by the two functions
    ) -> None:
        bound = inspect.signature(replay).bind(path, to, **options)
        bound.apply_defaults()
        given = bound.arguments
        for name in ("topics", "queue_ids", "keys", "ids", "include"):
            value = given[name]
            values = (value,) if isinstance(value, str | int) else value or ()
            # Neither order nor repetition makes another selection, and so another journal.
            given[name] = tuple(sorted(set(values), key=str))
        check(given, group, to_origin=to_origin)
        grep, failed = given["grep"], given["retry_failed"]
        if grep:
            given["grep"] = re.compile(grep.encode() if isinstance(grep, str) else grep)
        self._path = connect(path, given["storage_options"])
        self._failed = None if failed is None else read_failures(failed)
        self._config, self._apply, self._journal = given["config"], given["apply"], given["journal"]
        self._progress, self._transform = given["progress"], given["transform"]
        self._to_topic, self._new_id = given["to_topic"], given["new_id"]
        self._allow_empty = given["allow_empty"]
        self._rates = given["rate"], given["bytes_rate"]
        self._refusals: dict[str, ReplayRefusal] = {}
        self._mended: list[int] = []
        self._log_begin = 0
        self._target = Target(**{one.name: given[one.name] for one in fields(Target)})
        self._ways = Ways(
            broker=broker_of(str(self._path)),
            keep_queue=given["queue"] == "keep",
            properties=dict(given["properties"] or {}),
            on_failure=given["on_failure"],
            ordered=given["ordered"],
        )
        self._limit = given["limit"]
        given = {**given, "dead_letters": group, "to_origin": to_origin}
        self._selection = Selection(**{one.name: given[one.name] for one in fields(Selection)})

    def run(self) -> ReplayReport:
        """Sends, or plans."""
        with mqstore.open(self._path, "r", config=self._config) as store:
            selector = Selector(store, self._selection, allow_empty=self._allow_empty)
            with closing(self._journal_of(store)) as journal:
                if self._apply:
                    journal.open()
                else:
                    journal.read()
                journal.resume(store, selector.offsets)
                self._log_begin = store.min_physical_offset
                before = journal.sent
                found = (self._send if self._apply else self._plan)(selector, journal)
            failures, rows = journal.failures.values(), self._refusals.values()
            return ReplayReport(
                path=store.path,
                to=self._target.to,
                applied=self._apply,
                sent_before=before,
                failed=len(failures),
                skipped=sum(row.messages for row in rows),
                failures=tuple(failures),
                refusals=tuple(rows),
                journal=journal.path,
                differences=self._differences(),
                **found,
            )

    def _journal_of(self, store: Store) -> Journal:
        grep = self._selection.grep
        selection = asdict(replace(self._selection, grep=None))
        selection["grep"] = grep and grep.pattern.decode(errors="backslashreplace")
        given = {name: value for name, value in selection.items() if value not in (None, (), False)}
        path = store.path if is_remote(self._path) else os.path.realpath(store.path)
        binding = {"store": path.rstrip("/"), "to": self._target.to, **given}
        if self._to_topic is not None:
            binding["to_topic"] = self._to_topic
        if self._journal is not None:
            return Journal(self._journal, binding)
        # Times may be relative to now: a run with others finds the journal, and is refused.
        named = {key: value for key, value in binding.items() if key not in ("begin_ms", "end_ms")}
        digest = hashlib.sha256(msgspec.json.encode(named, order="deterministic")).hexdigest()
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        return Journal(Path(home, "mqstore/replay", f"{digest[:24]}.jsonl"), binding)

    def _sender(self) -> Sender:
        dropped = [*DROPPED]
        if self._new_id:
            dropped.append("UNIQ_KEY")
        if self._selection.to_origin:
            dropped.extend(OF_DEAD_LETTERS)
        return Sender(self._target, dropped=dropped)

    def _found(
        self, selector: Selector, journal: Journal, *, passed: bool
    ) -> Iterator[Chosen | NotSent]:
        """The messages of the selection that no run has handled, or those of passed ranges."""
        if self._failed is not None:
            return
        done, ranges, stop = journal.done, sorted(journal.passed.items()), 0
        spans: list[tuple[int, int | None]] = [] if passed else [(done + 1, None)]
        for place, length in ranges if passed else ():
            # One range may lie in another.
            spans.append((max(place, stop), place + length))
            stop = max(stop, place + length)
        damaged, handled = set(), journal.late if passed else journal.beyond
        for one in selector.chosen(spans) if spans else ():
            if (one.place <= done) != passed or one.place in handled:
                continue
            if isinstance(one, NotSent) and one.reason == "damaged":
                damaged.add(one.place)
                if journal.passed.get(one.place) != one.length:
                    journal.learn(Line(passed=[(one.place, one.length)]))
            yield one
        if passed:
            here = [place for place, _ in ranges if place >= self._log_begin]
            self._mended = [place for place in here if place not in damaged]

    def _again(self, selector: Selector, journal: Journal) -> Iterator[Chosen | NotSent]:
        """The messages that failed before: those of the report, else those whose cause may pass."""
        failures = journal.failures
        if self._failed is None:
            wanted = {
                key: one.message_id for key, one in failures.items() if ACTIONS[one.kind] != "skip"
            }
        else:
            wanted = {
                key: message_id
                for key, message_id in self._failed.items()
                if key in failures or not journal.is_handled(key[0])
            }
            # It would count the whole batch as sent.
            if any(index is not None for _, index in wanted.keys() - failures.keys()):
                there = "messages of a batch that this journal has not tried"
                advice = "name the journal of their run"
                raise ConfigError(expected("retry_failed", "others", there, advice), "retry_failed")
        for one in selector.at({place: name for (place, _), name in wanted.items()}):
            if isinstance(one, Chosen) and (one.place, None) not in wanted:
                one.messages = {
                    index: message
                    for index, message in one.messages.items()
                    if (one.place, index) in wanted
                }
            yield one

    def _streams(self, selector: Selector, journal: Journal) -> list[tuple[Iterator[Chosen], bool]]:
        """The records to send in their order, and whether they lie before what was handled."""
        limit = [self._limit]
        passed, new = (
            self._taken(self._found(selector, journal, passed=passed), limit)
            for passed in (True, False)
        )
        # Earlier failures hold no new messages back, but where these must not overtake them.
        failed = self._again(selector, journal)
        again = self._taken(failed, [None] if self._failed is None else limit)
        streams = [(passed, True), (new, False)]
        streams.insert(0 if self._ways.ordered else 2, (again, True))
        return streams

    def _taken(
        self, found: Iterable[Chosen | NotSent], limit: list[int | None]
    ) -> Iterator[Chosen]:
        """The records to send, at most so many messages; the others are counted."""
        for one in found:
            if isinstance(one, NotSent):
                self._refuse(one)
                continue
            if self._to_topic is not None:
                one.topic = self._to_topic
            if self._transform is not None:
                self._change(one, self._transform)
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
        row = self._refusals.get(one.reason)
        row = row or ReplayRefusal(one.reason, 0, one.topic, one.place, one.detail)
        self._refusals[one.reason] = replace(row, messages=row.messages + 1)

    def _advance(self, selector: Selector, place: int) -> None:
        if self._progress is not None:
            self._progress(place - selector.begin, selector.end - selector.begin)

    def _plan(self, selector: Selector, journal: Journal) -> dict[str, Any]:
        counts: dict[str, list[int]] = {}
        first: list[FirstMessage] = []
        for one in itertools.chain.from_iterable(
            found for found, _ in self._streams(selector, journal)
        ):
            self._advance(selector, one.place)
            for index, message in one.messages.items():
                topic, queue_id = one.goes_to(index)
                row = counts.setdefault(topic, [0, 0, 0])
                row[0] += 1
                row[1] += len(message.raw_body) + len(message.raw_properties)
                row[2] = max(row[2], queue_id)
                if len(first) < _FIRST:
                    key, keys = message.unique_key, tuple(message.keys)
                    time_ms = message.store_timestamp_ms
                    first.append(FirstMessage(topic, one.place, time_ms, keys, message.tags, key))
        topics, warnings = self._topics(counts)
        total, size = sum(row.messages for row in topics), sum(row.bytes for row in topics)
        rate, bytes_rate = self._rates
        times = [total / rate if rate else None, size / bytes_rate if bytes_rate else None]
        return {
            "messages": total,
            "topics": topics,
            "first": tuple(first),
            "seconds": max((time for time in times if time is not None), default=None),
            "warnings": (*warnings, *self._warnings(journal)),
        }

    def _topics(self, counts: Mapping[str, list[int]]) -> tuple[tuple[ReplayTopic, ...], list[str]]:
        """The topics of the target, as far as it can be asked."""
        rows, warnings = [], []
        try:
            with closing(self._sender()) as sender:
                known = {topic: sender.topic(topic) for topic in counts}
        except StoreError as error:
            known = {}
            warnings.append(f"the target was not asked: {error}")
        group = self._selection.group
        for topic, (messages, size, highest) in sorted(counts.items()):
            queues: int | None
            queues, groups, trouble = known.get(topic, (None, (), ""))
            if trouble:
                queues = None
                warnings.append(f"{topic}: the target was not asked: {trouble}")
            elif queues == 0:
                warnings.append(f"{topic}: the target has no such topic; make it first")
            elif queues is not None and queues <= highest and self._keeps(topic):
                text = (
                    f"{topic}: the target has {queues} queues, and messages are of queue {highest}"
                )
                warnings.append(f"{text}; spread them over any queue")
            groups = (group,) if group is not None and topic.startswith("%RETRY%") else groups
            rows.append(ReplayTopic(topic, messages, size, queues, groups, highest))
        return tuple(rows), warnings

    def _keeps(self, topic: str) -> bool:
        return self._ways.keep_queue and not topic.startswith("%RETRY%")

    def _differences(self) -> tuple[str, ...]:
        found = [*_ALWAYS_DIFFERENT]
        if self._new_id:
            found.append("each message gets a new unique key")
        if not self._ways.keep_queue:
            found.append("messages go to all queues in turn")
        return tuple(found)

    def _lost(self, journal: Journal) -> list[str]:
        return [
            f"physical offsets {place} to {place + length} are gone from the log; messages that no "
            "run had read there are not sent"
            for place, length in journal.passed.items()
            if place + length <= self._log_begin
        ]

    def _warnings(self, journal: Journal) -> list[str]:
        found = self._lost(journal)
        if not self._new_id:
            found.append(
                "unique keys are kept: a consumer that drops keys it knows drops these messages, "
                "unless each gets a new id"
            )
        if self._selection.group is not None:
            found.append(
                "a group that consumes in order takes no retries: the run stops after the first; "
                "send to the topic then"
            )
        if journal.sent:
            sent = count_text(journal.sent)
            text = f"{sent} messages were sent by earlier runs and are not sent again"
            found.append(f"{text}; another journal begins anew")
        return found

    def _send(self, selector: Selector, journal: Journal) -> dict[str, Any]:
        with ExitStack() as stack:
            sender = stack.enter_context(closing(self._sender()))
            run = Run(sender, journal, Pace(*self._rates), self._ways)
            stack.enter_context(_interrupts(run))
            began, advance = time.monotonic(), partial(self._advance, selector)
            try:
                for found, again in self._streams(selector, journal):
                    if not run.is_ended:
                        run.send(found, advance, again=again)
            finally:
                # Nothing is sent that cannot be noted.
                if journal.is_open:
                    run.finish()
            if self._mended and not run.is_ended:
                journal.note(Line(mended=self._mended))
        warnings = self._lost(journal)
        if run.unreplicated:
            count = count_text(run.unreplicated)
            warnings.append(f"{count} messages are stored, but not flushed or on no slave yet")
        return {
            "sent": run.sent,
            "stopped": INTERRUPTED if run.interrupted else run.stopped,
            "seconds": time.monotonic() - began,
            "warnings": tuple(warnings),
        }


@contextmanager
def _interrupts(run: Run) -> Iterator[None]:
    """Lets Ctrl-C end the run between messages; the second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        run.interrupted = True
        signal.signal(signal.SIGINT, before)

    # None is a handler that Python did not set.
    before = signal.signal(signal.SIGINT, stop) or signal.SIG_DFL
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
