"""The journal of a replay: which messages were sent, so that a killed run can go on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mqstore.errors import (
    CorruptionError,
    StoreError,
    StoreIOError,
    StoreLockedError,
    damaged,
    wrong_setting,
)
from mqstore.files.durable import sync
from mqstore.replaying.report import ReplayFailure  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqstore import Store

_FORM = 1
_LONGEST_LINE = 64 << 20
# Between two waits for the disk; a killed process loses nothing that was written.
_FLUSH_S = 0.2


class Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Outcomes of some messages.

    Attributes:
        done: New offset up to which all are handled.
        beyond: Handled messages behind it.
        sent: How many of them were sent.
        resolved: Failures that were tried again, by physical offset and place in the batch.
        failures: Messages that the cluster did not take.
        anchor: Physical offset and store time of a message, by which the store is known.
        begin: Where the log began for the first run.
        passed: New ranges that could not be read, as physical offset and length.
        mended: Physical offsets of those that are read now.
        late: Handled messages of such ranges.
        offsets: The group's offsets that are in use, by topic and queue.
    """

    done: int | None = None
    beyond: list[int] = []
    sent: int = 0
    resolved: list[tuple[int, int | None]] = []
    failures: list[ReplayFailure] = []
    anchor: tuple[int, int] | None = None
    begin: int | None = None
    passed: list[tuple[int, int]] = []
    mended: list[int] = []
    late: list[int] = []
    offsets: dict[str, dict[int, int]] | None = None


class Journal:
    """Handled messages of one selection for one target, by their physical offsets.

    Messages are handled in the order of the log, but for those in flight: so a journal is an offset
    up to which all are handled, and the few handled ones behind it. Each line has what changed.

    Attributes:
        path: The file.
        done: All messages of the selection up to this physical offset are handled, but for passed
            ranges.
        beyond: Handled messages behind it.
        passed: Lengths of ranges before it that could not be read, by physical offset.
        late: Handled messages of these ranges.
        sent: How many were sent.
        failures: Messages that the cluster did not take, by physical offset and place in the batch.
    """

    def __init__(self, path: str | os.PathLike[str], binding: Mapping[str, Any]) -> None:
        self.path = os.fspath(path)
        self.done = -1
        self.beyond: set[int] = set()
        self.sent = 0
        self.failures: dict[tuple[int, int | None], ReplayFailure] = {}
        self.anchor: tuple[int, int] | None = None
        self.passed: dict[int, int] = {}
        self.late: set[int] = set()
        self._begin: int | None = None
        self._offsets: dict[str, dict[int, int]] | None = None
        self._binding = dict(binding)
        self._file = -1
        self._flushed_s = 0.0

    def read(self) -> None:
        """Reads what earlier runs wrote; a file that is not there has nothing.

        Raises:
            ConfigError: It belongs to another selection or target.
            CorruptionError: A line that is none of a journal.
        """
        end = 0
        try:
            file = Path(self.path).open("rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            return
        with file:
            while (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):
                self._take(line, end)
                end += len(line)
            # A line that a kill cut off: its messages count as not sent.
            if self._file >= 0 and line:
                os.ftruncate(self._file, end)

    def open(self) -> None:
        """Takes the lock, reads, and writes the head of a new journal.

        Raises:
            StoreLockedError: Another run has it.
        """
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            text = f"{self.path}: another run sends with this journal; wait until it has ended"
            raise StoreLockedError(text, self.path) from None
        self.read()
        if os.fstat(self._file).st_size == 0:
            self._write({"journal": _FORM, **self._binding})
            os.fsync(self._file)
            sync(Path(self.path).parent)

    def close(self) -> None:
        """Makes what was written durable, and gives the lock back."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    @property
    def is_open(self) -> bool:
        """Whether it can be written to."""
        return self._file >= 0

    def is_handled(self, place: int) -> bool:
        """Whether a message was sent, or failed for a reason of its own."""
        return place <= self.done or place in self.beyond

    def resume(self, store: Store, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Compares the store with what earlier runs read; what was not there is passed.

        `offsets` are those of the group that missed messages, by topic and queue.

        Raises:
            ConfigError: It is another log, or messages count as missed now that they passed.
        """
        self._check_anchor(store)
        before, begin = self._offsets, store.min_physical_offset
        if before is not None and self.anchor is not None:
            new = [topic for topic in offsets if topic not in before]
            lower = [
                f"{offsets[topic].get(queue, 0)} (before {offset}) in queue {queue} of {topic}"
                for topic in offsets.keys() & before.keys()
                for queue, offset in before[topic].items()
                if offsets[topic].get(queue, 0) < offset
            ]
            if new or lower:
                advice = "name another journal and, to send no others again, these topics, offsets"
                wanted = f"no topic and no lower offset of the group that is new to {self.path}"
                raise wrong_setting("journal", wanted, ", ".join(new + lower), advice)
        # A range behind `done` is read again anyway.
        line = Line(mended=[place for place in self.passed if place > self.done])
        if offsets and offsets != before:
            line.offsets = {topic: dict(queues) for topic, queues in offsets.items()}
        next_place = max(self.done + 1, self._begin or 0)
        if self._begin is None or (self.done < 0 and begin < self._begin):
            line.begin = begin
        elif begin < self._begin:
            line.begin, line.passed = begin, [(begin, self._begin - begin)]
        elif next_place < begin:
            line.passed = [(next_place, begin - next_place)]
        if line != Line():
            self.learn(line)

    def _check_anchor(self, store: Store) -> None:
        """Refuses another log at the same path."""
        if self.anchor is None or self.anchor[0] < store.min_physical_offset:
            return
        place, time_ms = self.anchor
        try:
            found = store.get(place).store_timestamp_ms
        except CorruptionError:
            # Damage says nothing about which log it is.
            return
        except StoreError:
            found = None
        if found != time_ms:
            wanted = f"the log that {self.path} belongs to"
            there = f"another one at physical offset {place} of {store.path}"
            advice = "name another journal to begin anew"
            raise wrong_setting("journal", wanted, there, advice)

    def learn(self, line: Line) -> None:
        """As ``note``; a journal that was only read writes nothing."""
        (self.note if self.is_open else self._apply)(line)

    def note(self, line: Line) -> None:
        """Writes the outcomes of some messages, before they count."""
        self._write(line)
        self._apply(line)

    def _write(self, line: Line | Mapping[str, Any]) -> None:
        data, size = msgspec.json.encode(line) + b"\n", os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            now = time.monotonic()
            if now - self._flushed_s > _FLUSH_S:
                os.fsync(self._file)
                self._flushed_s = now
        except OSError as error:
            # A torn line must stay the last one: without this it would hide all that follow.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            os.close(self._file)
            self._file = -1
            text = f"{self.path}: {error.strerror}; sending has ended, start it again to go on"
            raise StoreIOError(text, error.errno, self.path, "write") from None

    def _take(self, line: bytes, offset: int) -> None:
        try:
            if offset == 0:
                self._check(msgspec.json.decode(line, type=dict[str, Any]))
            else:
                self._apply(msgspec.json.decode(line, type=Line))
        except msgspec.MsgspecError as error:
            advice = "keep it as evidence, and name another journal; messages may be sent again"
            raise damaged(
                self.path, "journal", "a line of a journal", error, advice, offset=offset
            ) from None

    def _check(self, head: Mapping[str, Any]) -> None:
        wanted = {"journal": _FORM, **self._binding}
        # As JSON has it: tuples are lists there.
        wanted = msgspec.json.decode(msgspec.json.encode(wanted))
        other = [name for name in {**wanted, **head} if wanted.get(name) != head.get(name)]
        if other:
            there = ", ".join(f"{name}={head.get(name)!r}" for name in sorted(other))
            here = ", ".join(f"{name}={wanted.get(name)!r}" for name in sorted(other))
            advice = "give the same arguments to go on, or name another journal to begin anew"
            raise wrong_setting("journal", f"one of {here}", f"{self.path} of {there}", advice)

    def _apply(self, line: Line) -> None:
        self.sent += line.sent
        self.anchor = line.anchor or self.anchor
        self.beyond.update(line.beyond)
        if line.done is not None:
            self.done = line.done
            self.beyond = {place for place in self.beyond if place > line.done}
        self._begin = self._begin if line.begin is None else line.begin
        for place in line.mended:
            self.passed.pop(place, None)
        self.passed.update(line.passed)
        self._offsets = self._offsets if line.offsets is None else line.offsets
        self.late.update(line.late)
        if not self.passed:
            self.late.clear()
        for key in line.resolved:
            self.failures.pop(key, None)
        for one in line.failures:
            self.failures[one.physical_offset, one.batch_index] = one
