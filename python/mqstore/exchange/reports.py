"""Results of export, import, copy and diff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from mqstore.results import _Report as Report


@dataclass(frozen=True, slots=True)
class ExportReport(Report):
    """Result of ``mqstore.export_store``.

    Attributes:
        path: The store.
        target: The folder that was written.
        format: ``"jsonl"``, ``"parquet"`` or ``"arrow"``.
        messages: How many messages are in it.
        bytes: How many bytes their records have in the store.
        complete: Whether it holds every message of the store, so that an import gives each its
            place again.
        skipped_ranges: Damaged ranges of the log that were skipped or reported.
        skipped_bytes: Their bytes.
        config_files: The files of the store's ``config`` folder that came along.
    """

    path: str
    target: str
    format: str
    messages: int
    bytes: int
    complete: bool
    skipped_ranges: int = 0
    skipped_bytes: int = 0
    config_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportReport(Report):
    """Result of ``mqstore.import_store``.

    Attributes:
        source: What was read.
        path: The new store.
        messages: How many messages it has of the source.
        bytes: How many bytes their records have.
        stand_ins: Messages without a body and with the property ``MQSTORE_LEFT_OUT``, which stand
            in for queue offsets that the source leaves out.
        renumbered: Whether queue offsets were given anew; the consumer offsets went along.
        in_place: Whether every record lies at the physical offset that the source names.
        config_files: The files that came along into ``config``.
    """

    source: str
    path: str
    messages: int
    bytes: int
    stand_ins: int = 0
    renumbered: bool = False
    in_place: bool = False
    config_files: tuple[str, ...] = ()


class LeftAsIs(NamedTuple):
    """Content of a topic that no rule of redaction replaced."""

    topic: str
    """The topic."""
    messages: int
    """How many of its messages were copied."""
    bodies: int
    """How many bodies were left as they are."""
    properties: tuple[str, ...]
    """Names of the properties that were left as they are."""


@dataclass(frozen=True, slots=True)
class CopyReport(Report):
    """Result of ``mqstore.copy``.

    Attributes:
        path: The store.
        out: The new one.
        messages: Messages copied.
        bytes: Bytes of their records in the copy.
        left_out: Messages that were not asked for.
        stand_ins: Messages without a body and with the property ``MQSTORE_LEFT_OUT``, in the place
            of those that others would have lost their queue offsets without.
        redacted: Messages whose content a rule changed.
        renumbered: Whether queue offsets were given anew; the consumer offsets went along.
        in_place: Whether every record lies at the physical offset that it has in the source.
        config_files: The files that came along into ``config``.
        deleted_topics: Topics that are deleted in the source, and therefore in the copy: their
            messages are in its log, and in no queue.
        left_as_is: With rules of redaction: the bodies and properties that none of them replaced.
    """

    path: str
    out: str
    messages: int
    bytes: int
    left_out: int = 0
    stand_ins: int = 0
    redacted: int = 0
    renumbered: bool = False
    in_place: bool = False
    config_files: tuple[str, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    left_as_is: tuple[LeftAsIs, ...] = ()


class QueueDiff(NamedTuple):
    """A queue in which two stores differ."""

    topic: str
    """Its topic."""
    queue_id: int
    """Its number."""
    same: int
    """Messages that are the same."""
    missing: int
    """Messages that the second store lacks."""
    extra: int
    """Messages that only the second store has."""
    different: int
    """Messages that have other content in the second."""


class Difference(NamedTuple):
    """One message in which two stores differ."""

    kind: Literal["missing", "extra", "different"]
    """Whether the second store lacks it, has it alone, or has it with other content."""
    topic: str
    """Its topic."""
    queue_id: int
    """Its queue."""
    queue_offset: int
    """Its number there."""
    fields: tuple[str, ...]
    """Differing fields, by the names of ``StoredMessage``; ``body`` is as stored."""


@dataclass(frozen=True, slots=True)
class DiffReport(Report):
    """Result of ``mqstore.diff``.

    Attributes:
        a: The first store.
        b: The second.
        ok: Whether they have the same messages.
        queues: How many queues there are in either.
        messages: Messages that are the same.
        differing: The queues that differ, with counts.
        differences: The messages that differ, the first 10,000.
    """

    a: str
    b: str
    ok: bool
    queues: int
    messages: int
    differing: tuple[QueueDiff, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def missing(self) -> int:
        """Messages that the second store lacks."""
        return sum(queue.missing for queue in self.differing)

    @property
    def extra(self) -> int:
        """Messages that only the second store has."""
        return sum(queue.extra for queue in self.differing)

    @property
    def different(self) -> int:
        """Messages that have other content in the second store."""
        return sum(queue.different for queue in self.differing)
