"""Reports of rebuilding and cleaning a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mqstore.results import _Report


@dataclass(frozen=True, slots=True)
class RebuiltQueue(_Report):
    """A queue that the log has messages of.

    Attributes:
        topic: Its topic.
        queue_id: Its number.
        kind: ``"SimpleCQ"`` has an entry for each message, ``"BatchCQ"`` one for each batch.
        entries: How many entries it gets.
        min_offset: The first queue offset.
        max_offset: One past the last.
        was: ``(min_offset, max_offset)`` of the replaced queue; ``None`` if there was none.
    """

    topic: str
    queue_id: int
    kind: Literal["SimpleCQ", "BatchCQ"]
    entries: int
    min_offset: int
    max_offset: int
    was: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RebuiltTopic(_Report):
    """A topic of a table that was made again.

    Attributes:
        name: Its name.
        queues: Queues to read and write.
        kind: ``"SimpleCQ"`` or ``"BatchCQ"``.
        was: Queues in the table before; ``None`` without an entry.
    """

    name: str
    queues: int
    kind: Literal["SimpleCQ", "BatchCQ"]
    was: int | None = None


@dataclass(frozen=True, slots=True)
class RebuildReport(_Report):
    """Result or plan of ``mqstore.rebuild``.

    Attributes:
        path: The store.
        what: What was to be made: ``"consumequeue"``, ``"index"`` or both, or ``"topics"``.
        applied: Whether it was made; ``False`` for a dry run.
        out: The folder it was made in; ``None`` for the store itself.
        messages: How many messages the log has.
        log_start: Physical offset of the log's first byte.
        log_end: Where its last message ends.
        damaged: Ranges of physical offsets that hold no message although the log goes on behind
            them, the first 10,000. What lay there has no entry anywhere.
        queues: The queues, by topic and number.
        kept: Queues, as ``(topic, queue_id)``, of whose messages the log holds none any more; they
            keep their last file, so that their next message gets the right number.
        index_files: How many index files were made.
        index_keys: How many keys the index has.
        refused: Entries that no queue takes: of a topic that cannot name a folder, of a queue
            number that a broker does not take, or too far behind the one before.
        left_out: Entries of light queues (``%LMQ%``) that were not made, because neither
            ``enable_lmq`` with ``enable_multi_dispatch`` was given nor the queue there.
        quarantine: The folder in which the old queues and index are kept; ``None`` where there were
            none or nothing was replaced. Of ``"topics"``: where a table that could not be read is.
        topics: The topics that queues and log name, with ``what=("topics",)``.
        skipped_ranges: Damaged ranges of the log that were skipped for them.
    """

    path: str
    what: tuple[str, ...]
    applied: bool
    out: str | None = None
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    queues: tuple[RebuiltQueue, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    index_files: int = 0
    index_keys: int = 0
    refused: int = 0
    left_out: int = 0
    quarantine: str | None = None
    topics: tuple[RebuiltTopic, ...] = ()
    skipped_ranges: int = 0


@dataclass(frozen=True, slots=True)
class CleanedFile(_Report):
    """A file of a store and the decision of retention.

    Attributes:
        path: The file, relative to the store where it lies below it.
        bytes: Its length.
        delete: Whether it is (or would be) deleted.
        reason: Reason for the decision.
    """

    path: str
    bytes: int
    delete: bool
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadMessages(_Report):
    """Messages of a queue that are deleted before a consumer group has read them.

    Attributes:
        group: The group. It counts in all queues of a topic once it has committed an offset in one.
        topic: The topic.
        queue_id: The queue.
        messages: How many messages.
    """

    group: str
    topic: str
    queue_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class CleanReport(_Report):
    """Result or plan of ``mqstore.clean``.

    Attributes:
        path: The store.
        applied: Whether the files were deleted; ``False`` for a dry run.
        files: The log's files, then those of queues, then the index's, each oldest first.
        log_start: First physical offset of the log before.
        new_log_start: First physical offset of the log afterwards.
        freed_bytes: Bytes of the deleted files.
        log_disk_percent: How full the emptiest disk with files of the log was, in per cent.
        queue_disk_percent: The same of the disk with the queues.
        disk_full: Whether that is past ``disk_space_warning_level_ratio``, where a store takes no
            messages under ``retention="rocketmq"``.
        unread: Deleted messages that consumer groups have not read.
    """

    path: str
    applied: bool
    files: tuple[CleanedFile, ...] = ()
    log_start: int = 0
    new_log_start: int = 0
    freed_bytes: int = 0
    log_disk_percent: int = 0
    queue_disk_percent: int = 0
    disk_full: bool = False
    unread: tuple[UnreadMessages, ...] = ()
