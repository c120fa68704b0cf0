"""``mqstore.replay`` and ``mqstore.resend``."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import signal
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import mqstore
from mqstore._names import broker_of
from mqstore.errors import ConfigError, StoreError, expected
from mqstore.replaying.journal import Journal
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
    REFUSED,
    Chosen,
    NotSent,
    Refused,
    Selection,
    Selector,
)
from mqstore.replaying.sender import Sender, Target
from mqstore.store import connect
from mqstore.text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mqstore import Message, Store, StoredMessage
    from mqstore.config import ConfigLike

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
            ``"system"`` (a broker's own topics), ``"damaged"`` (bodies; needs pyarrow).
        apply: Send them.
        rate: Most messages a second.
        bytes_rate: Most bytes of bodies and properties a second.
        limit: Most messages of this run; a next one goes on behind them.
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
        tls: Encrypt the connections.
        tls_config: File of RocketMQ's TLS settings.
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


@dataclass(slots=True)
class _Refusals:
    """Messages that are not sent, by reason."""

    rows: dict[str, ReplayRefusal] = field(default_factory=dict)

    def add(self, one: NotSent) -> None:
        row = self.rows.get(one.reason)
        if row is None:
            row = ReplayRefusal(one.reason, 0, one.topic, one.place, one.detail)
        self.rows[one.reason] = replace(row, messages=row.messages + 1)


class Replay:
    """A replay with all its arguments checked; those of ``mqstore.replay`` and ``resend``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        to: str,
        *,
        group: str | None = None,
        to_origin: bool = False,
        **given: Any,  # noqa: ANN401 - named by the two functions
    ) -> None:
        self._path = connect(path, given.pop("storage_options", None))
        self._config = given.pop("config", None)
        self._apply = given.pop("apply", False)
        self._progress = given.pop("progress", None)
        self._transform: Transform | None = given.pop("transform", None)
        self._to_topic: str | None = given.pop("to_topic", None)
        self._journal = given.pop("journal", None)
        self._allow_empty = given.pop("allow_empty", False)
        self._rates = given.pop("rate", None), given.pop("bytes_rate", None)
        self._new_id = given.pop("new_id", False)
        failed = given.pop("retry_failed", None)
        self._failed = None if failed is None else read_failures(failed)
        grep = given.pop("grep", None)
        include = tuple(given.pop("include", ()))
        if unknown := [name for name in include if name not in REFUSED]:
            raise ConfigError(
                expected("include", " or ".join(REFUSED), repr(unknown[0])), "include"
            )
        ordered = given.pop("ordered", False)
        self._target = Target(
            to=to,
            ordered=ordered,
            **{
                name: given.pop(name)
                for name in (
                    *("rocketmq_home", "classpath", "credentials", "tls", "tls_config"),
                    *("batch", "tries", "timeout_s"),
                )
                if name in given
            },
        )
        queue = given.pop("queue", "keep")
        if queue not in ("keep", "any"):
            raise ConfigError(expected("queue", "keep or any", repr(queue)), "queue")
        self._ways = Ways(
            broker=broker_of(str(self._path)),
            keep_queue=queue == "keep",
            properties=dict(given.pop("properties", None) or {}),
            on_failure=given.pop("on_failure", "stop"),
            limit=given.pop("limit", None),
        )
        self._selection = Selection(
            dead_letters=group,
            to_origin=to_origin,
            include=include,
            grep=re.compile(grep.encode() if isinstance(grep, str) else grep) if grep else None,
            **{  # type: ignore[arg-type]
                name: tuple(given.pop(name) or ())
                for name in ("topics", "queue_ids", "keys", "ids")
                if name in given
            },
            **given,
        )
        if self._to_topic is not None and self._selection.group is not None:
            advice = "these messages go into the group's retry topic"
            raise ConfigError(
                expected("to_topic", "none", repr(self._to_topic), advice), "to_topic"
            )
        for name, value in zip(("rate", "bytes_rate"), self._rates, strict=True):
            if value is not None and value <= 0:
                raise ConfigError(expected(name, "more than 0", value), name)

    def run(self) -> ReplayReport:
        """Sends, or plans."""
        with mqstore.open(self._path, "r", config=self._config) as store:
            selector = Selector(store, self._selection, allow_empty=self._allow_empty)
            journal = self._open_journal(store)
            refusals = _Refusals()
            if self._apply:
                with closing(journal):
                    return self._send(store, selector, journal, refusals)
            journal.read()
            _check_anchor(store, journal)
            return self._plan(store, selector, journal, refusals)

    def _open_journal(self, store: Store) -> Journal:
        selection = asdict(replace(self._selection, grep=None))
        selection["grep"] = self._selection.grep and self._selection.grep.pattern.decode()
        given = {name: value for name, value in selection.items() if value not in (None, (), False)}
        binding = {"store": store.path, "to": self._target.to, **given}
        if self._to_topic is not None:
            binding["to_topic"] = self._to_topic
        path = self._journal
        if path is None:
            # Times may be relative to now: a run with others finds the journal, and is refused.
            named = {
                key: value for key, value in binding.items() if key not in ("begin_ms", "end_ms")
            }
            digest = hashlib.sha256(msgspec.json.encode(named, order="deterministic")).hexdigest()
            home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
            path = Path(home, "mqstore/replay", f"{digest[:24]}.jsonl")
        return Journal(path, binding)

    def _sender(self) -> Sender:
        dropped = [*DROPPED]
        if self._new_id:
            dropped.append("UNIQ_KEY")
        if self._selection.to_origin:
            dropped.extend(OF_DEAD_LETTERS)
        # Messages of a queue stay together, so that requests are full.
        own_lanes = self._target.ordered or (self._ways.keep_queue and self._target.batch > 1)
        return Sender(self._target, own_lanes=own_lanes, dropped=dropped)

    def _found(
        self, selector: Selector, journal: Journal, refusals: _Refusals
    ) -> Iterator[tuple[Chosen, Message | None]]:
        """The messages of the selection that no run has handled."""
        if self._failed is not None:
            return
        # Inner messages of a batch have one place.
        yield from self._changed(
            (one for one in selector.chosen(journal.done + 1) if not journal.is_handled(one.place)),
            refusals,
        )

    def _again(
        self, selector: Selector, journal: Journal, refusals: _Refusals
    ) -> Iterator[tuple[Chosen, Message | None]]:
        """The messages that failed before: those of the report, else those whose cause may pass."""
        if self._failed is None:
            failures = journal.failures.values()
            places = [one.physical_offset for one in failures if ACTIONS[one.kind] != "skip"]
        else:
            places = [
                place
                for place in self._failed
                if place in journal.failures or not journal.is_handled(place)
            ]
        yield from self._changed(selector.at(places), refusals)

    def _changed(
        self, found: Iterable[Chosen | NotSent], refusals: _Refusals
    ) -> Iterator[tuple[Chosen, Message | None]]:
        for one in found:
            if isinstance(one, NotSent):
                refusals.add(one)
                continue
            if self._to_topic is not None:
                one = replace(one, topic=self._to_topic)
            if self._transform is None:
                yield one, None
                continue
            changed = self._transform(one.message)
            if changed is None:
                refusals.add(NotSent(one.place, "dropped", one.message.topic))
            elif isinstance(changed, mqstore.StoredMessage):
                yield one, None if changed is one.message else changed.to_message()
            else:
                yield one, changed

    def _plan(
        self, store: Store, selector: Selector, journal: Journal, refusals: _Refusals
    ) -> ReplayReport:
        counts: dict[str, list[int]] = {}
        first: list[FirstMessage] = []
        again = self._again(selector, journal, refusals)
        found = self._found(selector, journal, refusals)
        records, last = 0, -1
        for one, changed in itertools.chain(again, found):
            if self._progress is not None:
                self._progress(one.place - selector.begin, selector.end - selector.begin)
            records, last = records + (one.place != last), one.place
            if self._ways.limit is not None and records > self._ways.limit:
                break
            message, topic = one.message, one.topic
            if changed is not None and changed.topic != message.topic:
                topic = changed.topic
            row = counts.setdefault(topic, [0, 0, 0])
            row[0] += 1
            row[1] += len(message.raw_body) + len(message.raw_properties)
            row[2] = max(row[2], message.queue_id)
            if len(first) < _FIRST:
                key, keys = message.unique_key, tuple(message.keys)
                time_ms = message.store_timestamp_ms
                first.append(FirstMessage(topic, one.place, time_ms, keys, message.tags, key))
        topics, warnings = self._topics(counts)
        rows = tuple(refusals.rows.values())
        total, size = sum(row.messages for row in topics), sum(row.bytes for row in topics)
        rate, bytes_rate = self._rates
        times = [total / rate if rate else None, size / bytes_rate if bytes_rate else None]
        return ReplayReport(
            path=store.path,
            to=self._target.to,
            applied=False,
            sent_before=journal.sent,
            failed=len(journal.failures),
            skipped=sum(row.messages for row in rows),
            failures=tuple(journal.failures.values()),
            refusals=rows,
            journal=journal.path,
            messages=total,
            topics=topics,
            first=tuple(first),
            seconds=max((time for time in times if time is not None), default=None),
            differences=self._differences(),
            warnings=(*warnings, *self._warnings(journal)),
        )

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
                warnings.append(f'{text}; queue "any" sends to those that are there')
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

    def _warnings(self, journal: Journal) -> list[str]:
        found = []
        if not self._new_id:
            found.append(
                "unique keys are kept: a consumer that drops keys it knows drops these messages, "
                "unless new_id gives them new ones"
            )
        if journal.sent:
            sent = count_text(journal.sent)
            text = f"{sent} messages were sent by earlier runs and are not sent again"
            found.append(f"{text}; another journal begins anew")
        return found

    def _send(
        self, store: Store, selector: Selector, journal: Journal, refusals: _Refusals
    ) -> ReplayReport:
        journal.open()
        _check_anchor(store, journal)
        before = journal.sent
        with ExitStack() as stack:
            sender = stack.enter_context(closing(self._sender()))
            run = Run(sender, journal, Pace(*self._rates), self._ways)
            stack.enter_context(_interrupts(run))
            began = time.monotonic()

            def advance(place: int) -> None:
                if self._progress is not None:
                    self._progress(place - selector.begin, selector.end - selector.begin)

            try:
                run.send(self._again(selector, journal, refusals), advance, again=True)
                if run.stopped is None and not run.interrupted:
                    run.send(self._found(selector, journal, refusals), advance)
            finally:
                run.finish()
        rows = tuple(refusals.rows.values())
        failures = tuple(journal.failures.values())
        warnings = []
        if run.unreplicated:
            count = count_text(run.unreplicated)
            warnings.append(f"{count} messages are stored, but not flushed or on no slave yet")
        return ReplayReport(
            path=store.path,
            to=self._target.to,
            applied=True,
            sent=run.sent,
            sent_before=before,
            failed=len(failures),
            skipped=sum(row.messages for row in rows),
            failures=failures,
            refusals=rows,
            stopped=INTERRUPTED if run.interrupted else run.stopped,
            journal=journal.path,
            seconds=time.monotonic() - began,
            differences=self._differences(),
            warnings=tuple(warnings),
        )


def _check_anchor(store: Store, journal: Journal) -> None:
    """Refuses a journal of another log at the same path."""
    if journal.anchor is None or journal.anchor[0] < store.min_physical_offset:
        return
    place, time_ms = journal.anchor
    try:
        found = store.get(place).store_timestamp_ms
    except StoreError:
        found = None
    if found != time_ms:
        wanted = f"the log that {journal.path} belongs to"
        there = f"another one at physical offset {place} of {store.path}"
        advice = "name another journal to begin anew"
        raise ConfigError(expected("journal", wanted, there, advice), "journal")


@contextmanager
def _interrupts(run: Run) -> Iterator[None]:
    """Lets Ctrl-C end the run between messages; the second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        run.interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
