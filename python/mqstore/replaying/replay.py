"""``mqstore.replay`` and ``mqstore.resend``: from their arguments to the report."""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
import signal
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, fields, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import mqstore
from mqstore._names import broker_of
from mqstore._native import _Pattern
from mqstore.errors import StoreError, wrong_setting
from mqstore.exchange.matching import DROPPED, OF_DEAD_LETTERS
from mqstore.files.pace import Pace
from mqstore.replaying.journal import Journal, Line
from mqstore.replaying.report import FirstMessage, ReplayReport, ReplayTopic, read_failures
from mqstore.replaying.run import Run, Work
from mqstore.replaying.selection import REFUSED, Selection, Selector
from mqstore.replaying.sender import Sender, Target
from mqstore.store import connect, is_remote
from mqstore.text import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from _typeshed import DataclassInstance

    from mqstore import Store
    from mqstore.config import ConfigLike
    from mqstore.replaying.run import Transform
    from mqstore.replaying.selection import Refused

INTERRUPTED = "interrupted"
# Messages that a dry run shows.
_FIRST = 5


def _is_text(given: Iterable[str] | None) -> bool:
    """Whether UTF-8 can hold a text or all of several; ``None`` is as good."""
    return not re.search("[\ud800-\udfff]", "".join(given or ()))


# The values that an argument may have, by its name.
_WANTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "include": (" or ".join(REFUSED), lambda names: {*names} <= {*REFUSED}),
    "queue": ("keep or any", lambda name: name in ("keep", "any")),
    "on_failure": ("stop or skip", lambda name: name in ("stop", "skip")),
    "properties": (
        "UTF-8 text without the bytes 1 and 2",
        lambda given: (
            not re.search("[\1\2\ud800-\udfff]", "".join(map("".join, (given or {}).items())))
        ),
    ),
    **dict.fromkeys(("to", "to_topic", "topics", "tags", "keys"), ("UTF-8 text", _is_text)),
    "ids": ("UTF-8 text and numbers", lambda ids: _is_text(map(str, ids))),
    "limit": ("a count", lambda count: count is None or count >= 0),
    "rate": ("more than 0", lambda rate: rate is None or rate > 0),
    "bytes_rate": ("more than 0", lambda rate: rate is None or rate > 0),
    "batch": ("1 to 1024", lambda count: 1 <= count <= 1024),
    "tries": ("1 to 1000", lambda count: 1 <= count <= 1000),
    "timeout_s": ("more than 0", lambda seconds: 0 < seconds < math.inf),
}


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
    sends at most the 4,096 messages again that were in flight. Unique keys stay, and the property
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
        grep: Regular expression that is found in the body, in the syntax of Rust's crate ``regex``:
            of bytes, without lookaround and backreferences.
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
    given = {name: value for name, value in dict(locals()).items() if name not in ("path", "to")}
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
        _check(given, group, to_origin=to_origin)
        if (grep := given["grep"]) is not None:
            try:
                given["grep"] = _Pattern(grep)
            except (TypeError, ValueError) as error:
                wanted, advice = "a regular expression in UTF-8", str(error)
                raise wrong_setting("grep", wanted, repr(grep), advice) from None
        self._path = connect(path, given["storage_options"])
        failed = given["retry_failed"]
        self._failed = None if failed is None else read_failures(failed)
        given |= {"dead_letters": group, "to_origin": to_origin}
        self._given = SimpleNamespace(**given)
        self._selection = Selection(**self._arguments_of(Selection))
        self._target = Target(**self._arguments_of(Target))
        self._keeps_queue = given["queue"] == "keep"

    def _arguments_of(self, kind: type[DataclassInstance]) -> dict[str, Any]:
        """The arguments that are fields of a class."""
        given = vars(self._given)
        return {one.name: given[one.name] for one in fields(kind) if one.name in given}

    def run(self) -> ReplayReport:
        """Sends, or plans."""
        given = self._given
        with mqstore.open(self._path, "r", config=given.config) as store:
            selector = Selector(store, self._selection, allow_empty=given.allow_empty)
            with closing(self._journal_of(store)) as journal:
                if given.apply:
                    journal.open()
                else:
                    journal.read()
                journal.resume(store, selector.offsets)
                before = journal.sent
                # The argument `journal` is the path of its file.
                made = {"selector": selector, "journal": journal, "failed": self._failed}
                work = Work(**self._arguments_of(Work) | made)
                found = self._send(work, journal) if given.apply else self._plan(work, journal)
            failures, rows = journal.failures.values(), work.refusals.values()
            return ReplayReport(
                path=store.path,
                to=given.to,
                applied=given.apply,
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
        given, grep = self._given, self._selection.grep
        selection = asdict(replace(self._selection, grep=None))
        selection["grep"] = grep and grep.pattern
        path = store.path if is_remote(self._path) else os.path.realpath(store.path)
        binding = {"store": path.rstrip("/"), "to": given.to, "to_topic": given.to_topic}
        binding = {
            name: value
            for name, value in (binding | selection).items()
            if value not in (None, (), False)
        }
        if given.journal is not None:
            return Journal(given.journal, binding)
        # Times may be relative to now: a run with others finds the journal, and is refused.
        named = {key: value for key, value in binding.items() if key not in ("begin_ms", "end_ms")}
        digest = hashlib.sha256(msgspec.json.encode(named, order="deterministic")).hexdigest()
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        return Journal(Path(home, "mqstore/replay", f"{digest[:24]}.jsonl"), binding)

    def _sender(self) -> Sender:
        dropped = [*DROPPED]
        if self._given.new_id:
            dropped.append("UNIQ_KEY")
        if self._given.to_origin:
            dropped.extend(OF_DEAD_LETTERS)
        broker = broker_of(str(self._path))
        return Sender(self._target, dropped=dropped, broker=broker, keeps_queue=self._keeps_queue)

    def _differences(self) -> tuple[str, ...]:
        """How the sent messages differ from the stored ones."""
        others = "hosts, ids and queue offsets are the target's"
        found = [
            f"store and born times are those of this run; {others}",
            "delays, transactions and counts of redelivery are not carried: messages come at once",
        ]
        if self._given.new_id:
            found.append("each message gets a new unique key")
        if not self._keeps_queue:
            found.append("messages go to all queues in turn")
        return tuple(found)

    def _plan(self, work: Work, journal: Journal) -> dict[str, Any]:
        """The dry run: what would be sent, to which topics, and who would receive it."""
        given, counts = self._given, dict[str, list[int]]()
        first: list[FirstMessage] = []
        for one in chain.from_iterable(found for found, _ in work.streams()):
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
        times = [
            count / rate for count, rate in ((total, given.rate), (size, given.bytes_rate)) if rate
        ]
        warnings += work.lost()
        if not given.new_id:
            warnings.append(
                "unique keys are kept: a consumer that drops keys it knows drops these messages, "
                "unless each gets a new id"
            )
        if self._selection.group is not None:
            warnings.append(
                "a group that consumes in order takes no retries: the run stops after the first; "
                "send to the topic then"
            )
        if journal.sent:
            sent = count_text(journal.sent)
            text = f"{sent} messages were sent by earlier runs and are not sent again"
            warnings.append(f"{text}; another journal begins anew")
        return {
            "messages": total,
            "topics": tuple(topics),
            "first": tuple(first),
            "seconds": max(times, default=None),
            "warnings": tuple(warnings),
        }

    def _topics(self, counts: Mapping[str, list[int]]) -> tuple[list[ReplayTopic], list[str]]:
        """The topics of the target, as far as it can be asked, and warnings."""
        rows, warnings, known, group = [], [], {}, self._selection.group
        try:
            with closing(self._sender()) as sender:
                known = {topic: sender.topic(topic) for topic in counts}
        except StoreError as error:
            warnings.append(f"the target was not asked: {error}")
        for topic, (messages, size, highest) in sorted(counts.items()):
            queues: int | None
            queues, groups, trouble = known.get(topic, (None, (), ""))
            is_retry = topic.startswith("%RETRY%")
            if trouble:
                queues = None
                warnings.append(f"{topic}: the target was not asked: {trouble}")
            elif queues == 0:
                warnings.append(f"{topic}: the target has no such topic; make it first")
            elif queues is not None and queues <= highest and self._keeps_queue and not is_retry:
                warnings.append(
                    f"{topic}: the target has {queues} queues, and messages are of queue "
                    f"{highest}; spread them over any queue"
                )
            if group is not None and is_retry:
                groups = (group,)
            rows.append(ReplayTopic(topic, messages, size, queues, groups, highest))
        return rows, warnings

    def _send(self, work: Work, journal: Journal) -> dict[str, Any]:
        given = self._given
        with ExitStack() as stack:
            sender = stack.enter_context(closing(self._sender()))
            run = Run(sender, Pace(given.rate, given.bytes_rate), work)
            stack.enter_context(_interrupts(run))
            began = time.monotonic()
            try:
                for found, again in work.streams():
                    if not run.is_ended:
                        run.send(found, again=again)
            finally:
                # Nothing is sent that cannot be noted.
                if journal.is_open:
                    run.finish()
            if work.mended and not run.is_ended:
                journal.note(Line(mended=work.mended))
        warnings = work.lost()
        if run.unreplicated:
            count = count_text(run.unreplicated)
            warnings.append(f"{count} messages are stored, but not flushed or on no slave yet")
        return {
            "sent": run.sent,
            "stopped": INTERRUPTED if run.interrupted else run.stopped,
            "seconds": time.monotonic() - began,
            "warnings": tuple(warnings),
        }


def _check(given: Mapping[str, Any], group: str | None, *, to_origin: bool) -> None:
    """Refuses arguments that are wrong by themselves or together."""
    for name, (wanted, is_right) in _WANTED.items():
        try:
            if is_right(given[name]):
                continue
        except (AttributeError, OverflowError, TypeError, ValueError):
            pass
        raise wrong_setting(name, wanted, repr(given[name]))
    others = {
        "missed_by": (group is not None, "dead letters are of one group alone"),
        "to_topic": (
            given["missed_by"] is not None or (group is not None and not to_origin),
            "these messages go into the group's retry topic",
        ),
        **dict.fromkeys(
            (
                *("topics", "queue_ids", "first_queue_offset", "last_queue_offset"),
                *("begin_ms", "end_ms", "tags", "keys", "grep"),
            ),
            (bool(given["ids"]), "ids go alone"),
        ),
    }
    for name, (is_refused, advice) in others.items():
        if is_refused and given[name] not in (None, ()):
            raise wrong_setting(name, "none", repr(given[name]), advice)


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
