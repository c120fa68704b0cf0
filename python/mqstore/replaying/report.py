"""Reports of a replay, and files of its failures."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from mqstore.errors import wrong_setting
from mqstore.files.durable import new_file
from mqstore.results import _Report as Report

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

# A kind of failure ends the run, is tried again later, or passes to the next message.
_Stop = Literal["no-topic", "no-group", "no-permission", "dead-letter", "disk-full", "not-writable"]
_Later = Literal["no-queue", "flow-control", "unreachable", "broker-error"]
_Skip = Literal["empty-body", "refused"]
FailureKind = Literal[_Stop, _Later, _Skip]
_Action = Literal["stop", "later", "skip"]
_KINDS: dict[_Action, Any] = {"stop": _Stop, "later": _Later, "skip": _Skip}
ACTIONS: dict[FailureKind, _Action] = {
    kind: action for action, kinds in _KINDS.items() for kind in get_args(kinds)
}


@dataclass(frozen=True, slots=True)
class ReplayFailure(Report):
    """A message that the cluster did not take.

    Attributes:
        physical_offset: Where it lies in the store.
        topic: Topic that it was sent to.
        kind: ``"no-topic"``, ``"no-queue"``, ``"no-group"``, ``"no-permission"``,
            ``"dead-letter"`` (the broker made it one: its group consumes in order),
            ``"flow-control"``, ``"disk-full"``, ``"not-writable"`` (a slave, or a broker that
            closes), ``"unreachable"``, ``"empty-body"``, ``"refused"`` or ``"broker-error"``.
        answer: What the broker or the client said.
        code: RocketMQ's code of it; -1 where there is none.
        tries: How often it was tried.
        message_id: Its id in the store.
        unique_key: Its unique key.
        keys: Its keys.
        batch_index: Its place in its batch, from 0; ``None`` outside of one.
    """

    physical_offset: int
    topic: str
    kind: FailureKind
    answer: str
    code: int
    tries: int
    message_id: str
    unique_key: str | None = None
    keys: tuple[str, ...] = ()
    batch_index: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayTopic(Report):
    """Messages for one topic of the target.

    Attributes:
        topic: Topic that they are sent to.
        messages: How many there are.
        bytes: Their bodies and properties, as stored.
        queues: How many numbers the queues have that can be written to; 0 without the topic,
            ``None`` if the target was not asked.
        groups: Consumer groups that receive them.
        highest_queue_id: The highest queue that one of them comes from.
    """

    topic: str
    messages: int
    bytes: int
    queues: int | None
    groups: tuple[str, ...]
    highest_queue_id: int


@dataclass(frozen=True, slots=True)
class ReplayRefusal(Report):
    """Messages that are not sent.

    Attributes:
        reason: ``"half"``, ``"rolled-back"``, ``"system"``, ``"damaged"``, ``"copy"`` (sent by a
            replay of this very broker), ``"not-utf8"`` (properties that the client would change),
            ``"stand-in"`` (of a message that ``mqstore.copy`` left out), ``"no-origin"`` (a dead
            letter that does not say where it comes from), ``"ended"`` (a half, delayed or timer
            message that a broker has ended or delivered), ``"not-selected"`` (of a report or id,
            and outside of the selection), ``"another-message"`` than that of a report, or
            ``"dropped"`` by the transform.
        messages: How many there are; of damage, how many ranges.
        topic: Topic of the first of them; empty for damage.
        physical_offset: Where the first of them lies.
        detail: More about the first of them.
    """

    reason: str
    messages: int
    topic: str
    physical_offset: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FirstMessage(Report):
    """One of the first messages of a dry run.

    Attributes:
        topic: Topic that it is sent to.
        physical_offset: Where it lies in the store.
        store_timestamp_ms: When it was stored.
        keys: Its keys.
        tags: Its tags.
        unique_key: Its unique key.
    """

    topic: str
    physical_offset: int
    store_timestamp_ms: int
    keys: tuple[str, ...]
    tags: str | None
    unique_key: str | None


@dataclass(frozen=True, slots=True)
class ReplayReport(Report):
    """Result of ``mqstore.replay`` and ``mqstore.resend``, or their plan.

    Attributes:
        path: The store.
        to: Name servers of the target.
        applied: Whether messages were sent; ``False`` for a dry run.
        sent: Messages sent by this run.
        sent_before: Messages that earlier runs with this journal sent.
        failed: Messages that the cluster did not take, those of earlier runs too.
        skipped: Messages that are not sent, by ``refusals``.
        failures: The messages that the cluster did not take.
        refusals: The messages that are not sent, by reason.
        stopped: Why the run ended before its last message; ``None`` if it did not.
        journal: The journal, which a next run goes on from.
        messages: Dry run: messages that would be sent.
        topics: Dry run: these by topic of the target.
        first: Dry run: the first of them.
        seconds: Time that sending took; of a dry run the time it will take at the rate, ``None``
            without one.
        differences: How the sent messages differ from the stored ones.
        warnings: Further remarks.
    """

    path: str
    to: str
    applied: bool
    sent: int = 0
    sent_before: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple[ReplayFailure, ...] = ()
    refusals: tuple[ReplayRefusal, ...] = ()
    stopped: str | None = None
    journal: str = ""
    messages: int = 0
    topics: tuple[ReplayTopic, ...] = ()
    first: tuple[FirstMessage, ...] = ()
    seconds: float | None = None
    differences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def write_failures(path: str | os.PathLike[str], failures: Iterable[ReplayFailure]) -> None:
    """Writes failures as CSV, by the name ``.csv``, or as JSON lines; the file appears whole."""
    with (
        new_file(Path(path), overwrite=True) as part,
        part.open("w", encoding="utf-8", newline="") as file,
    ):
        if not _is_csv(path):
            file.writelines(failure.to_json() + "\n" for failure in failures)
            return
        writer = csv.DictWriter(file, [field.name for field in fields(ReplayFailure)])
        writer.writeheader()
        for failure in failures:
            writer.writerow(asdict(failure) | {"keys": " ".join(failure.keys)})


def read_failures(path: str | os.PathLike[str]) -> dict[tuple[int, int | None], str]:
    """Message ids in a file of ``write_failures``, by physical offset and place in the batch.

    Raises:
        ConfigError: It is no such file.
        OSError: It cannot be read.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file) if _is_csv(path) else map(msgspec.json.decode, file)
            found = {}
            for row in rows:
                index = row.get("batch_index")
                place = int(row["physical_offset"]), None if index in (None, "") else int(index)
                found[place] = str(row["message_id"])
            return found
    except (ValueError, LookupError, TypeError, csv.Error) as error:
        raise wrong_setting("retry_failed", "a report of failures", f"{path}: {error}") from None


def _is_csv(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() == ".csv"
