"""Foresees how a release of RocketMQ would start on a store.

``doctor`` goes by the same rules: where a start begins to read, and what it puts into queues and
index from there on.
"""

from __future__ import annotations

import os
import shlex
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mqstore
from mqstore import _native
from mqstore.errors import (
    CorruptionError,
    NotAStoreError,
    StoreError,
    StoreIOError,
    checked,
    wrong_setting,
)
from mqstore.files.layout import open_queue
from mqstore.results import _Report
from mqstore.store import _broker_conf, _judged_settings, below, connect, is_remote, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mqstore import Diagnosis, DoctorReport
    from mqstore._native import QueueInfo
    from mqstore.config import ConfigLike
    from mqstore.store import Store

_RELEASES = ("5.3", "5.4", "5.5")
# A start takes records of another place or log for its own.
_UNFORESEEN = frozenset({"MQ-DL-01", "MQ-DOC-14", "MQ-DOC-18", "MQ-DOC-19", "MQ-FS-10"})
# The end of the log is missing, and perhaps nothing counts what was in it.
_GONE = frozenset({"MQ-DOC-13", "MQ-DOC-17", "MQ-LOG-15"})
# Messages that are in no queue: a start enters those from where it begins on.
_UNDISPATCHED = "MQ-DOC-01"
_ENDS_DISPATCH = "MQ-LOG-18"
# Entries that lead to no message or another one: a start puts none in their place.
_WRONG_PLACES = frozenset({"MQ-DOC-04", "MQ-DOC-05"} | {f"MQ-CQ-{n:02}" for n in (2, 3, 4, 6, 7)})


@dataclass(frozen=True, slots=True)
class PreflightNote(_Report):
    """One thing that a start of RocketMQ would do to a store.

    Attributes:
        severity: ``"error"``: it does not start, messages come out of reach, or the effect is not
            foreseen; ``"warning"``: something is dropped or built anew in part; ``"info"``: worth
            knowing.
        what: The effect.
        before: The command that prevents it, to be run before the broker is started; ``None``
            where no command does.
    """

    severity: Literal["error", "warning", "info"]
    what: str
    before: str | None = None


@dataclass(frozen=True, slots=True)
class PreflightReport(_Report):
    """Predicted start of a RocketMQ release on a store.

    Attributes:
        path: The store.
        to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
        ok: Whether it starts and nothing is lost, as far as all is foreseen: no note is an error.
        starts: Whether it starts.
        begin_physical_offset: Physical offset from which it dispatches messages.
        lost: Messages that no queue would contain any more.
        notes: Effects, the worst first.
        in_use: Whether a process writes to the store. Then ``ok`` is false, no note has a command,
            and the rest is what a start would do if the process were killed now.
    """

    path: str
    to: str
    ok: bool
    starts: bool
    begin_physical_offset: int
    lost: int
    notes: tuple[PreflightNote, ...] = ()
    in_use: bool = False


@checked
def preflight(
    path: str | os.PathLike[str],
    *,
    to: str,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PreflightReport:
    """Predicts the next start of a RocketMQ release on a store.

    That is whether it opens the store, which messages it would not put into their queues, which
    index files it would drop, and what its queries would not find; each with the command to run
    before the broker is started. It never writes and takes no lock. The store is taken as it is
    now, with queues in files; what ``config`` leaves out has RocketMQ's default. Beside a process
    that writes ``ok`` is false: ask again once it has stopped.

    Args:
        path: The store's root folder.
        to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
        config: As for ``open``. The commands name the path of a ``broker.conf``, or ``FILE`` for
            one that is to be made of a mapping.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: No such release, or a setting that cannot be.
        StoreIOError: The operating system refused something.
    """
    path = connect(path, storage_options)
    if to not in _RELEASES:
        raise wrong_setting("to", "5.3, 5.4 or 5.5", repr(to))
    root = os.fspath(path)  # of a URL with its objects
    given = _broker_conf(config)
    absolute = root if is_remote(root) else os.path.abspath(root)  # noqa: PTH100
    advice = f"mqstore doctor {shlex.quote(absolute)}{given}"

    def unknown(what: str, error: StoreError) -> PreflightReport:
        note = PreflightNote("error", f"what it makes of {what} is not foreseen: {error}", advice)
        return PreflightReport(str(root), to, False, True, 0, 0, (note,))  # noqa: FBT003

    try:
        start = _Start(*_native.next_start(root, to=to, settings=_judged_settings(config)))
    except CorruptionError as error:  # two files claim one part of the log
        return unknown("the log", error)
    except NotAStoreError as error:  # or a folder of it cannot be reached
        mqstore.doctor(root, config=config)
        return unknown("the store", error)
    found = mqstore.doctor(root, config=config)
    obstacles = list(dict.fromkeys([*start.obstacles, *found.obstacles]))
    if obstacles:
        none = [PreflightNote("error", f"it does not start: {why}", advice) for why in obstacles]
        refused = PreflightReport(str(root), to, False, False, start.begin, 0, tuple(none))  # noqa: FBT003
        return _beside_a_writer(refused, found) if found.in_use else refused
    try:
        opened = mqstore.open(root, config=config)
    except NotAStoreError as error:
        return unknown("the store", error)
    with opened as store:
        flight = _Flight(store, root, to, given, start)
        notes = [
            *flight.unforeseen,
            *flight.lost(),
            *flight.cut(advice),
            *flight.unreadable(found, advice),
            *flight.wrong_entries(found, advice),
            *flight.others(),
        ]
        begin = flight.begin
        missing = flight.missing
    order = {"error": 0, "warning": 1, "info": 2}
    notes.sort(key=lambda note: order[note.severity])
    ok = not any(note.severity == "error" for note in notes)
    report = PreflightReport(str(root), to, ok, True, begin, missing, tuple(notes))  # noqa: FBT003
    return _beside_a_writer(report, found) if found.in_use else report


def _beside_a_writer(report: PreflightReport, found: DoctorReport) -> PreflightReport:
    """The report without its commands, which a repair refuses beside a writer, and with damage.

    ``doctor`` counts no lost messages then: what is missing may be on its way.
    """
    damage = [f"the store is damaged: {one.title}" for one in found if one.severity == "error"]
    texts = ["a process writes to the store; stop it, and check again", *damage]
    notes = [PreflightNote("error", text) for text in texts]
    notes += [replace(note, before=None) for note in report.notes]
    return replace(report, ok=False, notes=tuple(notes), in_use=True)


class _Start(NamedTuple):
    crashed: bool
    obstacles: list[str]
    begin: int
    doomed: list[str]
    strays: list[str]
    cut: tuple[int, int, str] | None
    delivered_again: int


class _Flight:
    """A store, and the release that is to open it."""

    def __init__(self, store: Store, root: str, to: str, given: str, start: _Start) -> None:
        self.store = store
        self.to = to
        self.missing = 0
        self.unforeseen: list[PreflightNote] = []
        self._unjudged: set[tuple[str, int]] = set()
        self.start = start
        self._recover = f"mqstore recover {shlex.quote(root)}{given} --apply"
        self._rebuild = f"mqstore rebuild {shlex.quote(root)}{given} --what"
        self._queues = [(queue, self._in_files(queue)) for queue in store.queues()]
        reach = [files.max_physical_offset for _, files in self._queues if files is not None]
        # After a clean stop only what lies behind all queues is put into them, without a message
        # that begins where they end (`CommitLog#recoverNormally`).
        behind = [end + 1 for end in reach if end > 0]
        self.begin = start.begin if start.crashed else max([start.begin, *behind])

    def _in_files(self, queue: QueueInfo) -> mqstore.ConsumeQueue | None:
        try:
            return open_queue(self.store, queue)
        except StoreIOError:
            raise
        except StoreError as error:
            name = f"queue {queue.queue_id} of {queue.topic}"
            what = f"what it makes of {name} is not foreseen: {error}"
            cure = f"{self._rebuild} consumequeue -t {shlex.quote(queue.topic)} --apply"
            self.unforeseen.append(PreflightNote("error", what, cure))
            self._unjudged.add((queue.topic, queue.queue_id))
            return None

    # --- what comes of it ---

    def lost(self) -> Iterator[PreflightNote]:
        """Messages that no queue would lead to."""
        for queue, files in self._queues:
            if (queue.topic, queue.queue_id) in self._unjudged:
                continue  # nobody knows what its files hold
            first = queue.min_offset if files is None else max(files.max_offset, queue.min_offset)
            behind = (
                f"a start of {self.to} enters only what lies from offset {self.begin} on",
                self._recover,
            )
            ranges = [(first, self._first_from(queue, first), *behind)]
            if files is not None:
                before = f"a start of {self.to} enters none before those that are there"
                rebuild = f"{self._rebuild} consumequeue -t {shlex.quote(queue.topic)} --apply"
                ranges.append((queue.min_offset, files.min_offset, before, rebuild))
                if queue.kind == "BatchCQ" and files.max_physical_offset < 0:
                    what = (
                        f"queue {queue.queue_id} of {queue.topic} has no entry, and its messages"
                        f" before offset {self.begin} are not entered"
                    )
                    yield PreflightNote("error", what, rebuild)
            for low, high, why, cure in ranges:
                if high > low:
                    self.missing += high - low
                    what = (
                        f"{high - low} messages of queue {queue.queue_id} of {queue.topic}, at"
                        f" {low} to {high - 1}, come out of reach: they are in no queue file, and"
                        f" {why}"
                    )
                    yield PreflightNote("error", what, cure)

    def unreadable(self, found: DoctorReport, advice: str) -> Iterator[PreflightNote]:
        """Messages that queues and index know, and that the log does not hold any more."""
        unnamed = found.lost - sum(queue.messages for queue in found.lost_queues)
        places = [
            (one.messages, f"of {one.topic}/{one.queue_id}, at {one.first} to {one.last},")
            for one in found.lost_queues
        ]
        for one in found:
            if one.code == _ENDS_DISPATCH:
                what = f"it starts on the store as it is, and may not after a crash: {one.title}"
                yield PreflightNote("warning", what, advice)
            if one.code in _UNFORESEEN and one.severity == "error":
                what = f"what it makes of the log is not foreseen: {one.title}"
                yield PreflightNote("error", what, advice)
            elif one.code in _GONE and one.severity == "error" and not found.lost:
                what = f"it goes on where the log ends now: {one.title}"
                yield PreflightNote("error", what, advice)
        self.missing += found.lost
        for count, where in [*places, (unnamed, "that queues or index know")]:
            if count:
                what = f"{count} messages {where} cannot be read from the log"
                yield PreflightNote("error", what, advice)

    def wrong_entries(self, found: DoctorReport, advice: str) -> Iterator[PreflightNote]:
        """Entries in the files that a start leaves as they are, and those of lost files."""
        for one in found:
            is_misplaced = one.code in _WRONG_PLACES or self._has_lost_files(one)
            if one.severity == "error" and (is_misplaced or one.code.startswith("MQ-CQ-")):
                what = f"it leaves the queues as they are: {one.title}"
                # Otherwise each message is in its place, and only filters by tag or time go wrong.
                yield PreflightNote(
                    "error" if is_misplaced else "warning", what, one.cure or advice
                )

    def _has_lost_files(self, found: Diagnosis) -> bool:
        """Whether it names messages before the start's begin that the store's reader does not see.

        Nothing counted them: their queues have lost files.
        """
        if found.code != _UNDISPATCHED or self.missing:
            return False
        is_before = found.first_missing is None or found.first_missing < self.begin
        return is_before and self.begin > self.store.min_physical_offset

    def cut(self, advice: str) -> Iterator[PreflightNote]:
        """Whole messages behind the place where a start would end the log."""
        if self.start.cut is not None:
            at, messages, reason = self.start.cut
            self.missing += messages
            what = (
                f"it ends the log at physical offset {at} and drops {messages} messages from there"
                f" on: at the first, {reason}"
            )
            yield PreflightNote("error", what, advice)

    def _first_from(self, queue: QueueInfo, low: int) -> int:
        """The first queue offset from `low` on whose message a start would enter."""

        def is_entered(at: int) -> bool:
            try:
                found = self.store.read(queue.topic, queue.queue_id, at, max_messages=1).messages
            except CorruptionError:
                return False  # what the log lacks, no start enters
            return not found or found[0].physical_offset >= self.begin

        end = queue.max_offset
        return bisect_left(range(end), x=True, lo=low, hi=end, key=is_entered) if low < end else low

    def others(self) -> Iterator[PreflightNote]:
        """Notes on parts that the release would drop, rebuild in part or not find."""
        if self.start.crashed and self.start.doomed:
            what = (
                f"{len(self.start.doomed)} index files are newer than the checkpoint and are"
                f" deleted; their keys come back from physical offset {self.start.begin} on"
            )
            yield PreflightNote("warning", what, self._recover)
        for path in self.start.strays:
            yield PreflightNote("info", f"it deletes {path}: an empty file, the last by name")
        if self.start.delivered_again:
            what = (
                f"it delivers {self.start.delivered_again} delayed messages again: the offsets of"
                " their levels are gone from config/delayOffset.json"
            )
            yield PreflightNote("warning", what)
        versions = self.store.versions()
        marks = versions["marks"]
        later = max((mark["since"] for mark in marks), default="5.3")
        is_old = any(mark["until"] == "5.3" for mark in marks)
        if self.to != "5.3" and is_old:
            what = (
                "messages that were indexed by 5.3 are found by key and not by tag: 5.3 puts no"
                " index entries for tags, and no later release adds them"
            )
            before = f"{self._rebuild} index --apply"
            yield PreflightNote("info", what, before if later > "5.3" else None)
        if later > self.to:
            what = f"{later} or later wrote to the store; {self.to} opens it, "
            lacks = "and puts no index entries for tags" if self.to == "5.3" else ""
            lacks = lacks or "and leaves bytes 40 to 47 of the checkpoint as they are"
            yield PreflightNote("info", what + lacks)
        yield from self._databases()

    def _databases(self) -> Iterator[PreflightNote]:
        for found in mqstore.inventory(root_of(self.store)):
            path = str(found["path"])
            if found["structure"] != "rocksdb" or not path.startswith("consumequeue"):
                continue
            has_files = bool(self._unjudged) or any(files is not None for _, files in self._queues)
            what = (
                f"queues lie in the RocksDB database {path}, which a broker with storeType=default"
                " does not read"
            )
            if has_files:
                yield PreflightNote("info", what)
            else:
                yield PreflightNote("warning", what, f"{self._rebuild} consumequeue --apply")
        timer = below(root_of(self.store), "timerwheel")
        if self.start.crashed and timer.is_file():
            what = (
                "timed messages: where the log was cut, the timer log may lead behind its end"
                " (apache/rocketmq#10668)"
            )
            yield PreflightNote("info", what, self._recover)
