"""Stores whose records have other numbers than their queue entries, as RocketMQ may leave them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.damaged_stores import log_files, patch, records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 2000,
}
LIGHT: dict[str, Any] = {**CONFIG, "enable_lmq": True, "enable_multi_dispatch": True}
LMQ = "%LMQ%a"


def number(root: Path, numbers: Sequence[int]) -> None:
    """Gives the records of the log other numbers; entries and checksums stay right."""
    places = [(path, at) for path in log_files(root) for at, _ in records(path)]
    for (path, at), own in zip(places, numbers, strict=True):
        patch(path, at + 20, struct.pack(">q", own))


def plain(root: Path, numbers: Sequence[int], *, config: dict[str, Any] | None = None) -> list[int]:
    """One queue with these records and entries from 0 on; returns the records' places."""
    with mqstore.open(root, "a", config=config or CONFIG) as store:
        added = [store.append("T", b"%d" % n, keys=f"k{n}") for n in range(len(numbers))]
    number(root, numbers)
    return [result.physical_offset for result in added]


def light(root: Path, numbers: Sequence[int]) -> None:
    """A light queue with these numbers, of one digit each, and entries from 0 on."""
    with mqstore.open(root, "a", config=LIGHT) as store:
        for n in range(len(numbers)):
            store.append("T", b"%d" % n, properties={"INNER_MULTI_DISPATCH": LMQ})
    path = log_files(root)[0]
    data = path.read_bytes()
    name = b"INNER_MULTI_QUEUE_OFFSET\x01"
    for (at, size), own in zip(records(path), numbers, strict=True):
        patch(path, data.index(name, at, at + size) + len(name), b"%d" % own)
