"""A plain in-memory store of messages: what the right answers are, computed the slow way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.golden import keys_of, matches_tags

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class Queue:
    """One queue: its bounds, and the messages between them by offset."""

    min_offset: int
    max_offset: int
    messages: tuple[Row, ...]

    def read(self, start: int, count: int, tags: str | None) -> tuple[str, int, list[Row]]:
        """Status, next offset and messages of a read without any limit but ``count``."""
        if self.max_offset == 0:
            return "NO_MESSAGE_IN_QUEUE", 0, []
        if start < self.min_offset:
            return "OFFSET_TOO_SMALL", self.min_offset, []
        if start == self.max_offset:
            return "OFFSET_OVERFLOW_ONE", start, []
        if start > self.max_offset:
            return "OFFSET_OVERFLOW_BADLY", self.max_offset, []
        taken: list[Row] = []
        after = start
        for row in self.messages:
            if row["queueOffset"] < start:
                continue
            if len(taken) == count:
                break
            after = row["queueOffset"] + 1
            if matches_tags(row["tags"], tags):
                taken.append(row)
        else:
            after = self.max_offset
        return ("FOUND" if taken else "NO_MATCHED_MESSAGE"), after, taken

    def offset_at(self, timestamp_ms: int, boundary: str) -> int:
        """The first entry not before a time, or the last not after it."""
        if boundary == "lower":
            for row in self.messages:
                if row["storeTimestamp"] >= timestamp_ms:
                    return row["queueOffset"]
            return self.max_offset
        found = self.min_offset
        for row in self.messages:
            if row["storeTimestamp"] <= timestamp_ms:
                found = row["queueOffset"]
        return found

    def is_in_order(self) -> bool:
        """Whether store times never go back, as a search by time assumes."""
        times = [row["storeTimestamp"] for row in self.messages]
        return times == sorted(times)


class Reference:
    """Messages by the rows of ``expected.jsonl``, in the order of the log."""

    def __init__(self, messages: Iterable[Row], queues: Iterable[Row] = ()) -> None:
        self.messages = list(messages)
        self._bounds = {
            (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in queues
        }

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The queue as the log has it; prepared and rolled back messages are in none."""
        rows = [
            row
            for row in self.messages
            if (row["topic"], row["queueId"]) == (topic, queue_id)
            and row["sysFlag"] & 0xC not in (0x4, 0xC)
        ]
        rows.sort(key=lambda row: row["queueOffset"])
        if rows:
            return Queue(rows[0]["queueOffset"], rows[-1]["queueOffset"] + 1, tuple(rows))
        return Queue(*self._bounds.get((topic, queue_id), (0, 0)), ())

    def query(
        self, topic: str, key: str, count: int, begin_ms: int = 0, end_ms: int = _NEVER
    ) -> list[Row]:
        """Messages with a key, newest first; rolled back ones are in no index."""
        found = [
            row
            for row in reversed(self.messages)
            if row["topic"] == topic
            and key in keys_of(row)
            and begin_ms <= row["storeTimestamp"] <= end_ms
            and row["sysFlag"] & 0xC != 0xC
        ]
        return found[:count]
