"""Query results and reports.

The extension makes ``QueryResult`` and ``RecoveryReport`` itself, by the argument names
given here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, final, overload

if TYPE_CHECKING:
    from mqstore._native import StoredMessage


@final
class QueryResult(Sequence["StoredMessage"]):
    """Messages found by key, and what was left out.

    A sequence of messages, compared with its equals by messages and counts.

    Args:
        messages: The messages, in the order of the answer.
        truncated: Whether more messages match than ``max_messages``.
        rejected_by_hash: Index entries with the key's hash, but another topic or key.
        rejected_by_time: Index entries of messages outside the time range.
        complete: Whether no damage was detected that could hide messages, and no index in RocksDB
            answered, which has no rows for messages without a unique key.
        unread: Parts of the log that may have more: where each begins, and where it ends.
    """

    # Not a frozen dataclass, which would take 0.6 µs more of a query's 6.5.
    __slots__ = ("_state",)

    def __init__(
        self,
        messages: Iterable[StoredMessage] = (),
        truncated: bool = False,  # noqa: FBT001, FBT002 - the extension passes them by position
        rejected_by_hash: int = 0,
        rejected_by_time: int = 0,
        complete: bool = True,  # noqa: FBT001, FBT002
        unread: Iterable[tuple[int, int]] = (),
    ) -> None:
        found, ranges = tuple(messages), tuple((begin, end) for begin, end in unread)
        self._state = found, truncated, rejected_by_hash, rejected_by_time, complete, ranges

    @property
    def truncated(self) -> bool:
        """Whether there are more than were asked for."""
        return self._state[1]

    @property
    def rejected_by_hash(self) -> int:
        """Candidates of the index whose topic or key is another one."""
        return self._state[2]

    @property
    def rejected_by_time(self) -> int:
        """Candidates whose store time lies outside of what was asked for."""
        return self._state[3]

    @property
    def complete(self) -> bool:
        """Whether no message is missing, for all that the handle knows of the log.

        If an index file is damaged or missing, the query reads its part of the log. ``False`` means
        that this part exceeds the limit of 1 GiB per query and the time asked for needs it, or that
        the handle found a part of the log missing or damaged since it was opened, in whatever
        method: ``unread`` names these parts, ``mqstore.verify`` reports the damage. Log that
        retention deleted in front is not missing. It also means that the index in RocksDB answered,
        which has no rows for messages without a unique key. With ``exact=False`` no message comes
        from the log, ``False`` also means that the index lacks keys, and damage may go undetected.
        """
        return self._state[4]

    @property
    def unread(self) -> tuple[tuple[int, int], ...]:
        """Parts of the log that may have more: physical offsets where each begins and ends."""
        return self._state[5]

    def __len__(self) -> int:
        return len(self._state[0])

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StoredMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | tuple[StoredMessage, ...]:
        return self._state[0][index]

    def __iter__(self) -> Iterator[StoredMessage]:
        return iter(self._state[0])

    def __eq__(self, other: object) -> bool:
        return self._state == other._state if isinstance(other, QueryResult) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._state)

    def __reduce__(self) -> tuple[type[QueryResult], tuple[object, ...]]:
        return QueryResult, self._state

    def __repr__(self) -> str:
        return (
            f"QueryResult({len(self)} messages, truncated={self.truncated}, "
            f"rejected_by_hash={self.rejected_by_hash}, "
            f"rejected_by_time={self.rejected_by_time}, complete={self.complete}"
            + (f", unread={self.unread})" if self.unread else ")")
        )


class _Report:
    """Methods of every report."""

    __slots__ = ()

    @classmethod
    def made_of(cls, fields: Mapping[str, object], **more: object) -> Self:
        """The report of what the extension gives: its lists and rows become the fields' tuples."""
        import msgspec

        return msgspec.convert({**fields, **more}, cls)

    def to_json(self) -> str:
        """The report as one JSON document, its fields by their names."""
        return json_bytes(as_document(self)).decode()


def as_document(value: object) -> Any:  # noqa: ANN401 - of any report
    """A report as JSON has it: its fields by their names, those of named tuples too."""
    if is_dataclass(value):
        return {one.name: as_document(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {as_document(name): as_document(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_document(value._asdict())
    if isinstance(value, list | tuple):
        return [as_document(item) for item in value]
    if isinstance(value, str) and not value.isascii():  # bytes of a name that are no UTF-8
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    return value


def json_bytes(value: object) -> bytes:
    """One JSON document."""
    import msgspec  # 20 ms that `import mqstore` need not spend

    try:
        return msgspec.json.encode(value, enc_hook=int)
    except UnicodeEncodeError:
        return msgspec.json.encode(as_document(value), enc_hook=int)


class QuarantinedMessage(NamedTuple):
    """A whole message among the bytes that a recovery cut off."""

    physical_offset: int
    """Where it lay in the commit log."""
    topic: str
    """Its topic."""
    queue_id: int
    """Its queue."""
    queue_offset: int
    """Its entry number there."""
    store_timestamp_ms: int
    """The store's time of it."""


@dataclass(frozen=True, slots=True)
class RecoveryReport(_Report):
    """Result or plan of opening a store for writing.

    The extension gives plain tuples for the messages.

    Attributes:
        mode: ``"new"`` for a created store, ``"clean"`` after a clean close, ``"crash"`` if the
            file ``abort`` existed.
        end_physical_offset: End of the log, where writing continues.
        cut: Bytes after that end that were quarantined and zeroed, without trailing zeros.
        cut_reason: Reason why the log ends there; ``None`` if nothing was cut.
        quarantine: Folder of the cut bytes; ``None`` if nothing was cut.
        quarantined_messages: The whole messages among them, the first 10,000.
        quarantined_count: Number of all whole messages among them.
        rebuilt: Paths rebuilt from the log, relative to the store.
        dispatched: Messages read again to add them to queues or index.
        applied: ``False`` for a dry run: the report is then a plan, ``quarantine`` is ``None`` and
            ``dispatched`` 0.
        damage: Why recovery refuses unless told to drop what lies beyond: damage with whole
            messages behind it, or files missing at the log's end; ``None`` where it does not. The
            above then says what cutting there does.
        messages_beyond: Whole messages after that damage.
        cure: Commands that repair it.
        warnings: Warnings of ``mqstore.recover`` beside that, such as an offset that is set back to
            its queue's end; those of an open store are in ``Store.warnings``.
    """

    mode: Literal["new", "clean", "crash"]
    end_physical_offset: int = 0
    cut: int = 0
    cut_reason: str | None = None
    quarantine: str | None = None
    quarantined_messages: tuple[QuarantinedMessage, ...] = ()
    quarantined_count: int = 0
    rebuilt: tuple[str, ...] = ()
    dispatched: int = 0
    applied: bool = True
    damage: str | None = None
    messages_beyond: int = 0
    cure: str | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        messages = tuple(QuarantinedMessage(*row) for row in self.quarantined_messages)
        object.__setattr__(self, "quarantined_messages", messages)
        object.__setattr__(self, "rebuilt", tuple(self.rebuilt))
        object.__setattr__(self, "warnings", tuple(self.warnings))


@dataclass(frozen=True, slots=True)
class Finding(_Report):
    """One fault or remark that ``verify`` found.

    Attributes:
        code: A stable name, ``"MQ-LOG-01"``; each has a page in the documentation.
        severity: ``"error"`` is damage, ``"warning"`` may lose something or mislead RocketMQ,
        ``"info"`` is no fault.
        path: The file or folder, relative to the store.
        offset: Byte in that file; ``None`` for the whole file.
        expected: Expected content.
        found: Content found.
        message: The finding in one line.
        fix: Recommended action.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    path: str
    offset: int | None
    expected: str
    found: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis(_Report):
    """A known broken state of a store, with its repair.

    Attributes:
        code: A stable name, ``"MQ-DOC-01"``, or that of a finding; each has a page in the
            documentation.
        severity: ``"error"`` is damage, ``"warning"`` may lose something or keep RocketMQ from
            starting well, ``"info"`` is no fault.
        title: Short description.
        evidence: Facts that show it, one per line.
        cure: Shell command that repairs it; ``None`` if there is none.
        fix: Effect of that command, or the action to take instead.
        follows: How many findings of other codes follow from it, by code.
        first_missing: Physical offset of the first of the messages that queues lack; ``None`` of
            any other state, or where it is not known.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    title: str
    evidence: tuple[str, ...]
    cure: str | None
    fix: str
    follows: tuple[tuple[str, int], ...] = ()
    first_missing: int | None = None


class LostInQueue(NamedTuple):
    """Lost messages of a queue."""

    topic: str
    """Its topic."""
    queue_id: int
    """Its number."""
    messages: int
    """How many are lost."""
    first: int
    """The first lost queue offset."""
    last: int
    """The last lost queue offset."""


class GroupFate(NamedTuple):
    """A consumer group that does not get each message of a topic once."""

    group: str
    """The group."""
    topic: str
    """The topic."""
    fate: Literal["skips", "misses", "deleted-unread", "begins-anew", "repeats", "may-repeat"]
    """``"skips"``: its offset lies behind the end, so new messages are skipped; ``"misses"``: lost
    messages that it had not taken; ``"deleted-unread"``: retention deleted what it had not taken;
    ``"begins-anew"``: a negative offset, which a broker takes for none; ``"repeats"``: the backup
    of its offset is ahead of it; ``"may-repeat"``: the store was not closed, or only the backup is
    left, so what it took last may not be known."""
    queues: int
    """In how many queues."""
    messages: int
    """How many messages."""


@dataclass(frozen=True, slots=True)
class DoctorReport(_Report):
    """Result of ``mqstore.doctor``, a sequence of its diagnoses.

    Attributes:
        path: The store.
        diagnoses: The broken states, sorted by code.
        release: The release of RocketMQ whose rules count: that of the store.
        in_use: Whether a process writes to the store; then there are no commands.
        will_start: Whether that release starts on the store as it is.
        obstacles: What keeps it from starting.
        lost: How many messages are lost, as far as queues and index know them.
        lost_queues: The same by queue, the first 1,000 queues.
        lost_from_ms: Store time of the last whole message before what is lost; ``None`` where
            nothing is, or none is known.
        lost_to_ms: Store time of the first whole message behind it; ``None`` at the log's end.
        groups: The consumer groups that skip, miss or repeat messages.
        commands: What to run, in order, as a shell takes it. Nothing that can be read is lost.
        last_resort: What to run only if missing files are gone for good, or messages unwanted.
    """

    path: str
    diagnoses: tuple[Diagnosis, ...]
    release: str
    in_use: bool
    will_start: bool
    obstacles: tuple[str, ...] = ()
    lost: int = 0
    lost_queues: tuple[LostInQueue, ...] = ()
    lost_from_ms: int | None = None
    lost_to_ms: int | None = None
    groups: tuple[GroupFate, ...] = ()
    commands: tuple[str, ...] = ()
    last_resort: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.diagnoses)

    def __iter__(self) -> Iterator[Diagnosis]:
        return iter(self.diagnoses)

    def __getitem__(self, index: int) -> Diagnosis:
        return self.diagnoses[index]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: no diagnosis, or only such as are worth knowing."""
        return all(diagnosis.severity == "info" for diagnosis in self.diagnoses)


@dataclass(frozen=True, slots=True)
class VerifyReport(_Report):
    """Result of ``mqstore.verify``.

    Attributes:
        path: The store.
        level: ``"full"`` or ``"quick"``.
        ok: Whether no finding is an error or a warning.
        findings: Findings sorted by path and offset. If there are more than 10,000, the first ones
            of each code.
        counts: Checked items, by name: ``messages``, ``log_bytes``, ``log_files``, ``queues``,
            ``queue_entries``, ``index_files``, ``index_entries``. Then the number of
            findings of each code, listed or not.
    """

    path: str
    level: str
    ok: bool
    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.path, self.level, self.ok, self.findings, tuple(self.counts.items())))
