"""The power goes while messages are written: on real disks, by the file system's shutdown call."""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.disks import disk, need_disk, need_strace
from helpers.writing import lost, number, writer

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.disks import Disk

SEED = number("MQSTORE_SEED", 20261121)
CUTS = {"ext4": number("MQSTORE_POWER_CUTS", 40), "xfs": number("MQSTORE_POWER_CUTS_XFS", 10)}
CUTS_BEHIND_FLUSH = number("MQSTORE_POWER_CUTS_FLUSH", 10)
# A flush that is left out: the call answers, and does nothing.
LYING = ("strace", "-D", "-f", "-o", "/dev/null", "-e", "inject=fdatasync,msync:retval=0")
LYING_OF_MAPS = (*LYING[:-1], "inject=msync:retval=0")


def cut(
    made: Disk, first: int, wanted: int, *, flush_every: int = 0, under: tuple[str, ...] = ()
) -> dict[int, int]:
    """Writes, cuts the power after so many messages, and mounts the disk again.

    Each message is flushed before it is told: by itself, or some at a time by ``flush()``.
    """
    flush = "ASYNC_FLUSH" if flush_every else "SYNC_FLUSH"
    root = made.folder / "store"
    with writer(root, flush, first=first, flush_every=flush_every, under=under) as at_work:
        assert at_work.listen(1 + wanted)
        made.cut_power()
        at_work.process.kill()
        at_work.end()
    made.unmount()
    made.mount()
    return at_work.told


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_fl07_nothing_acknowledged_is_lost_in_a_power_cut(kind: str) -> None:
    need_disk(kind)
    dice = random.Random(f"{SEED}/{kind}")
    with disk(kind) as made:
        store = made.folder / "store"
        told: dict[int, int] = {}
        for round_number in range(CUTS[kind]):
            # Every few rounds a new store: the first message of all is the hardest to keep.
            if round_number % 4 == 0:
                shutil.rmtree(store, ignore_errors=True)
                told = {}
            wanted = 1 if round_number % 4 == 0 else dice.randrange(1, 150)
            told |= cut(made, max(told, default=-1) + 1000, wanted)
            assert lost(store, told) == [], f"round {round_number}, MQSTORE_SEED={SEED}"


def test_fl07_what_flush_returned_for_outlives_a_power_cut() -> None:
    need_disk("ext4")
    dice = random.Random(f"{SEED}/flush")
    with disk("ext4") as made:
        told: dict[int, int] = {}
        for round_number in range(CUTS_BEHIND_FLUSH):
            # The disk is small.
            if round_number % 50 == 0:
                shutil.rmtree(made.folder / "store", ignore_errors=True)
                told = {}
            told |= cut(made, max(told, default=-1) + 1000, 90, flush_every=dice.randrange(1, 40))
            assert lost(made.folder / "store", told) == [], f"round {round_number}, {SEED=}"


def test_fl09_async_flush_keeps_what_is_older_than_its_intervals() -> None:
    need_disk("ext4")
    with disk("ext4") as made:
        root = made.folder / "store"
        told: dict[int, int] = {}
        # One message: ten seconds. Five pages: half of one, and then some for a slow machine.
        for first, count, length, seconds in ((0, 1, 500, 12), (1, 10, 500, 0), (11, 50, 500, 3)):
            with writer(root, "ASYNC_FLUSH", first=first, count=count, length=length) as at_work:
                assert at_work.listen(1 + count)
                time.sleep(seconds)
                made.cut_power()
                at_work.process.kill()
                at_work.end()
            made.unmount()
            made.mount()
            # Messages without time to be flushed may be lost.
            told |= at_work.told if seconds else {}
            assert lost(root, told, length) == []


@pytest.mark.parametrize(("flush_every", "lying"), [(0, LYING), (10, LYING_OF_MAPS)])
def test_control_without_flushes_a_power_cut_loses_messages(
    flush_every: int, lying: tuple[str, ...]
) -> None:
    need_disk("ext4")
    need_strace()
    with disk("ext4") as made:
        told = cut(made, 0, 100, flush_every=flush_every, under=lying)
        root = made.folder / "store"
        assert not root.exists() or not any(root.glob("commitlog/*")) or is_seen(root, told)


def is_seen(root: Path, told: dict[int, int]) -> bool:
    """Whether the loss is seen: messages are gone, or the durable mark tells of it."""
    try:
        return bool(lost(root, told))
    except mqstore.CorruptionError as error:
        return "was durable" in str(error)
