"""Row P14: files of the timer that contradict each other, and a real broker's start on them."""

from __future__ import annotations

import shutil
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.files import copy_store
from helpers.java import SMALL, RocketMQ, RocketMQError
from helpers.timers import HARMS, timer_store
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORE: dict[str, Any] = SMALL | {"timerWheelEnable": "true", "mappedFileSizeTimerLog": 10240}
# A flush compares all bytes of the wheel.
NO_FLUSH = STORE | {"timerFlushIntervalMs": 10**8}
UNIT = 52
SOON = ["soon 0", "soon 1", "soon 2"]
FAR = ["far 0", "far 1"]


def bodies(root: Path) -> list[str]:
    with mqstore.open(root, config=SMALL) as store:
        return sorted(message.body.decode() for message in store.scan(topics=["T"]))


def units(root: Path) -> list[tuple[int, ...]]:
    """Units of ``timerlog``: size, position of the one before in its slot, ..."""
    data = next((root / "timerlog").iterdir()).read_bytes()
    found = struct.iter_unpack(">iqiqiqiiq", data[: len(data) // UNIT * UNIT])
    return [unit for unit in found if unit[0] == UNIT]


def found(root: Path) -> list[tuple[str, str]]:
    report = mqstore.verify(root, config=SMALL)
    return [(one.severity, one.found) for one in report.findings if one.code == "MQ-TM-01"]


def overdue(root: Path, now_ms: int) -> list[str]:
    report = mqstore.pending(root, now_ms=now_ms, config=SMALL)
    return sorted(f"soon {key}" for row in report.overdue for key in row.keys)


class Timers:
    """A broker's store whose timers are not due, and starts on copies of it."""

    def __init__(self, rocketmq: RocketMQ, folder: Path) -> None:
        self._rocketmq, self._starts = rocketmq, 0
        self.root = folder / "store"
        rocketmq.start_broker(self.root, {"storeConfig": STORE})
        try:
            rocketmq.produce([{"topic": "T", "op": "create-topic", "queues": 1}])
            # A slot is a second: all of one list are in one.
            self.due_ms = (time.time_ns() // 10**9 + 17) * 1000
            for at_ms, texts in ((self.due_ms, SOON), (self.due_ms + 80_000_000, FAR)):
                rocketmq.produce(
                    [
                        {"topic": "T", "bodyText": text, "keys": [text[-1]], "deliverMs": at_ms}
                        for text in texts
                    ]
                )
            check = self.root / "config" / "timercheck"
            flushed = struct.pack(">q", 5 * UNIT)
            wait_until(lambda: check.exists() and check.read_bytes()[8:16] == flushed)
        finally:
            rocketmq.stop_broker()
        assert (bodies(self.root), found(self.root)) == ([], [])

    def delivered(self, root: Path) -> list[str]:
        """Messages that are delivered when a broker ran until all that are not far are due."""
        self._starts += 1
        last = f"the last of {self._starts}"
        self._rocketmq.start_broker(root, {"storeConfig": NO_FLUSH})
        try:
            delay_ms = max(self.due_ms - time.time_ns() // 1_000_000, 0) + 2500
            self._rocketmq.produce([{"topic": "T", "bodyText": last, "delayMs": delay_ms}])
            wait_until(lambda: last in bodies(root))
        finally:
            self._rocketmq.stop_broker()
        return [text for text in bodies(root) if text != last]


def test_p14_a_start_treats_timers_as_the_finding_says(rocketmq: RocketMQ, tmp_path: Path) -> None:
    timers = Timers(rocketmq, tmp_path)
    whole = units(timers.root)

    # The units of the far ones are gone, and the offset of `timercheck` is not that of the queue.
    ring = copy_store(timers.root, tmp_path / "ring")
    log = next((ring / "timerlog").iterdir())
    log.write_bytes(log.read_bytes()[: 3 * UNIT].ljust(10240, b"\0"))
    with (ring / "config" / "timercheck").open("r+b") as file:
        file.seek(16)
        file.write(struct.pack(">qq", 1000, 1000))
    again = "up to 2 timer messages are read again, and come once more if they were delivered"
    memory = "a broker that starts before their 2 timer messages are due may run out of memory"
    assert found(ring) == [
        ("warning", f"{5 * UNIT}; {again}"),
        ("error", f"1 slots beyond; {memory}"),
    ]
    assert overdue(ring, timers.due_ms) == SOON
    assert timers.delivered(ring) == SOON
    assert overdue(ring, timers.due_ms) == []
    # Each of the two leads to the other: a broker that follows them does not come to an end.
    assert [unit[1] for unit in whole[3:5]] == [-1, 3 * UNIT]
    assert [unit[1] for unit in units(ring)[3:5]] == [4 * UNIT, 3 * UNIT]

    twice = copy_store(timers.root, tmp_path / "twice")
    (twice / "config" / "timercheck").write_bytes(b"")
    assert found(twice) == [("warning", "0; 5 timer messages from 0 on are read again")]
    assert timers.delivered(twice) == sorted(SOON * 2)

    lost = copy_store(timers.root, tmp_path / "lost")
    shutil.rmtree(lost / "timerlog")
    said = "2 slots beyond; their 5 timer messages are never delivered"
    assert found(lost) == [("error", said)]
    assert timers.delivered(lost) == []
    # The cure of the finding's page.
    shutil.rmtree(lost / "timerlog")
    (lost / "timerwheel").unlink()
    (lost / "config" / "timercheck").unlink()
    assert found(lost) == []
    assert [text for text in timers.delivered(lost) if "last" not in text] == SOON


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p14_a_broker_starts_on_files_of_the_timer_as_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, harm: str
) -> None:
    root = tmp_path / "store"
    timer_store(root)
    make, starts = HARMS[harm]
    make(root)
    rocketmq = running(version)
    for config, does_start in ((SMALL, starts), (SMALL | {"timerWheelEnable": False}, True)):
        assert mqstore.doctor(root, config=config).will_start == does_start
        store_config = STORE | {"timerWheelEnable": str(config is SMALL).lower()}
        try:
            rocketmq.start_broker(root, {"storeConfig": store_config})
        except RocketMQError:
            assert not does_start
        else:
            rocketmq.stop_broker()
            assert does_start
