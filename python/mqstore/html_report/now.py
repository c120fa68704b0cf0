"""How a store fares now: verdict and cures of ``doctor``, lag in time, waiting messages, disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import mqstore
from mqstore.care.pending import resend_command
from mqstore.care.unread import GroupReader
from mqstore.store import is_remote
from mqstore.text import count_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from mqstore import PendingReport, Store
    from mqstore.config import ConfigLike
    from mqstore.files.layout import FileGroup


@dataclass(slots=True)
class LagRow:
    """A group's lag in a topic, as ``mqstore groups`` has it.

    Attributes:
        group: The group.
        topic: The topic.
        queues: How many queues it has a place in.
        lag: Messages that it has not taken.
        deleted: Messages that were deleted before it took them.
        oldest_ms: When the first of those that are still there was stored.
    """

    group: str
    topic: str
    queues: int
    lag: int
    deleted: int
    oldest_ms: int | None


def verdict(mood: str, count: int, one: str, several: str) -> str:
    """A mood in a few words, with how many it is about."""
    counted = f"{count_text(count)} {one if count == 1 else several}"
    return {"bad": f"Damaged: {counted}", "warn": f"{counted} to look at"}.get(mood, "Healthy")


def present_state(
    path: str | os.PathLike[str],
    config: ConfigLike,
    groups: Sequence[LagRow],
    pending: PendingReport,
    files: Iterable[FileGroup],
) -> SimpleNamespace:
    """Asks ``doctor``, and sums up what the page shows first: an operator's first questions."""
    found = mqstore.doctor(path, config=config)
    diagnoses = list(found)
    wrong = [one for one in diagnoses if one.severity != "info"]
    errors = [one for one in wrong if one.severity == "error"]
    mood = "bad" if errors else "warn" if wrong else "good"
    late = [row for row in groups if row.oldest_ms is not None]
    disk = (0, 0, 0) if is_remote(path) else shutil.disk_usage(path)
    return SimpleNamespace(
        mood=mood,
        verdict=verdict(mood, len(wrong), "diagnosis", "diagnoses"),
        diagnoses=diagnoses,
        commands=list(dict.fromkeys(found.commands)),
        oldest=min(late, key=lambda row: row.oldest_ms or 0, default=None),
        deleted=sum(row.deleted for row in groups),
        dead=sum(row.messages for row in pending.dead_letters),
        pending=pending,
        resends=[
            resend_command(pending.path, group)
            for group in dict.fromkeys(row.group for row in pending.dead_letters[:60])
        ],
        disk_total=disk[0],
        disk_used=disk[1],
        store_bytes=sum(file.allocated_bytes for file in files),
    )


def lags(store: Store) -> list[LagRow]:
    """The lag of each group in each topic, the largest first."""
    names = ("group", "topic", "queues", "lag", "deleted_unread", "oldest_unread_timestamp_ms")
    # Unreadable offsets are among the findings.
    found = GroupReader(store, (mqstore.StoreError,)).topics(None)
    rows = (LagRow(*(row[name] for name in names)) for row in found)
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))
