"""Stores with files of the timer, and harm to these files."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import mqstore
from helpers.shifted import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMER = "rmq_sys_wheel_timer"
WHEEL = 32 * 2 * 7 * 86_400


def timer_store(root: Path) -> None:
    with mqstore.open(root, "a", config=CONFIG) as store:
        store.append_many([mqstore.Message(TIMER, b"%d" % n) for n in range(400)])
    (root / "config").mkdir(exist_ok=True)
    (root / "timerlog").mkdir()
    timer_log(root, 10)
    wheel(root, 52 * 9)
    check(root, 1_600_000_000_000, 520, 400)


def timer_log(root: Path, units: int, physical_offset: int = 0) -> None:
    unit = struct.pack(">iqiqiqiiq", 52, -1, 1, 1_700_000_000_000, 1, physical_offset, 100, 7, 0)
    (root / "timerlog" / f"{0:020}").write_bytes((unit * units).ljust(10_240, b"\0"))


def wheel(root: Path, first: int, due: int = 10**10) -> None:
    slots = bytearray(32 * 100)
    slots[320:352] = struct.pack(">qqqii", 1_700_000_000, 0, 52 * 3, 4, 0)
    slots[640:672] = struct.pack(">qqqii", due, first, 52 * 12, 3, 0)
    # Delivered long ago.
    slots[960:992] = struct.pack(">qqqii", 1_500_000_000, 10**6, 10**6, 5, 0)
    with (root / "timerwheel").open("wb") as file:
        file.write(slots)
        file.truncate(WHEEL)


def check(root: Path, *fields: int) -> None:
    data = struct.pack(f">{len(fields)}q", *fields)
    (root / "config" / "timercheck").write_bytes(data.ljust(4096, b"\0"))


def short_wheel(root: Path) -> None:
    os.truncate(root / "timerwheel", WHEEL // 2)


def wheel_folder(root: Path) -> None:
    (root / "timerwheel").unlink()
    (root / "timerwheel").mkdir()


HARMS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "stray": (lambda root: (root / "timerlog/.DS_Store").write_bytes(bytes(6148)), False),
    "wheel cut short": (short_wheel, False),
    "wheel is a folder": (wheel_folder, False),
    "two lengths": (lambda root: (root / f"timerlog/{10_240:020}").write_bytes(bytes(5000)), False),
    "empty, the last": (lambda root: (root / "timerlog/zzz").touch(), True),
    "folder": (lambda root: (root / "timerlog/sub").mkdir(), True),
    "empty wheel": (lambda root: os.truncate(root / "timerwheel", 0), True),
    "next file empty": (lambda root: (root / f"timerlog/{10_240:020}").touch(), True),
}
"""Harm, and whether a broker starts on it."""
