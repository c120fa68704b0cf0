"""Stray files in a store, and settings with odd values: what a start of RocketMQ makes of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from mqstore._native import _read_broker_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
PARAMS: dict[str, Any] = {"storeConfig": SETTINGS}
NEXT = {"commitlog": f"{3 * 8192:020}", "consumequeue/T/0": f"{2000:020}"}
# A name, "next" for that of the next file, and its bytes; `None` for a folder, a text for what a
# link leads to, `...` for a pipe.
STRAY: list[tuple[str, Any]] = [
    ("zzz", 0),
    ("!notes", 0),
    ("zzz", 100),
    ("!notes", 100),
    (".nfs0001", 8192),
    (".nfs0001", 2000),
    ("zzz", 8192),
    ("zzz", 2000),
    (".DS_Store", 6148),
    (",", None),
    ("zzz", None),
    ("next", 0),
    ("next", "nowhere"),
    ("zzz", "checkpoint"),
    ("!z", "checkpoint"),
    ("zzz", "config"),
    ("zzz", "nowhere"),
    ("!z", "nowhere"),
    ("zzz", ...),
    ("!z", ...),
]
BEHIND: list[tuple[str, Any]] = [("lost+found", None), ("zzz", 0), ("zzz", "nowhere")]
"""Names behind an empty next file, which is then not the last by name."""


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p2_a_start_on_stray_files_is_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, folder: str
) -> None:
    rocketmq = running(version)
    healthy = tmp_path / "healthy"
    with mqstore.open(healthy, "a", config=SETTINGS) as store:
        for number in range(60):
            store.append("T", b"x" * 300, queue_id=0, keys=f"k{number}")
    (healthy / "config").mkdir(exist_ok=True)
    cases = [*([one] for one in STRAY), *([one, ("next", 0)] for one in BEHIND)]
    for number, strays in enumerate(cases):
        root = shutil.copytree(healthy, tmp_path / f"{number}")
        for name, size in strays:
            make(root / folder / (NEXT[folder] if name == "next" else name), root, size)
        name, size = strays[0]
        is_next = name == "next"
        name = NEXT[folder] if is_next else name
        stray = root / folder / name
        report = mqstore.preflight(root, to=(version or "5.3")[:3], config=SETTINGS)
        assert mqstore.doctor(root, config=SETTINGS).will_start == report.starts
        starts = rocketmq.starts(root, PARAMS)
        place = f"{folder}/{name} of {size} bytes with {version or '5.3'}"
        assert report.starts == starts, f"{place}: {report.notes}"
        gone = not os.path.lexists(stray)
        told = [note for note in report.notes if "deletes" in note.what and name in note.what]
        assert bool(told) == gone, place
        # The files of a queue are read as they are now.
        is_odd = folder != "commitlog" and (is_next or not isinstance(size, int))
        assert report.ok or not gone or is_odd, f"{place}: {report.notes}"


def make(path: Path, root: Path, size: Any) -> None:
    if size is None:
        path.mkdir()
    elif size is ...:
        os.mkfifo(path)
    elif isinstance(size, str):
        path.symlink_to(root / size)
    else:
        path.write_bytes(b"\0" * size)


@pytest.mark.parametrize(
    "value", ["8192", "8192 ", " 8192", "8192\t", "+8192", "8_192", "8192.0", "0x2000", "08192"]
)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p16_rocketmq_reads_sizes_as_we_say(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, value: str
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        store.append("T", b"x")
    rocketmq = running(version)
    # A log of other files than it expects keeps RocketMQ from starting.
    params = {"storeConfig": SETTINGS | {"mappedFileSizeCommitLog": value}}
    reads = rocketmq.starts(root, params)
    *_, taken = _read_broker_line("mappedFileSizeCommitLog", value)
    assert reads == (taken == "8192"), taken


# Settings of a broker.conf for log files of 8192 bytes and queue files of 2000.
SIZES: dict[str, dict[str, int]] = {
    "right": SETTINGS,
    "none": {},
    "of 4.x": {"mapedFileSizeCommitLog": 8192, "mapedFileSizeConsumeQueue": 2000},
    "log": SETTINGS | {"mappedFileSizeCommitLog": 16384},
    "queues": SETTINGS | {"mappedFileSizeConsumeQueue": 4000},
    "queues alone": {"mappedFileSizeCommitLog": 8192},
    "rounded up": SETTINGS | {"mappedFileSizeConsumeQueue": 1990},
}


@pytest.mark.filterwarnings("ignore:.*is a name of 4.x:mqstore.ConfigWarning")
@pytest.mark.parametrize("settings", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p15_file_sizes_of_a_broker_conf_are_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, settings: dict[str, int]
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        for number in range(150):
            store.append("T", b"x" * 300, queue_id=0, keys=f"k{number}")
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    to = (version or "5.3")[:3]
    starts = mqstore.preflight(root, to=to, config=conf).starts
    doctor = mqstore.doctor(root, config=conf)
    verified = mqstore.verify(root, config=conf)
    assert doctor.will_start == starts
    assert ("MQ-CFG-08" in {one.code for one in verified.findings}) == (not starts)
    errors = [one.code for one in doctor if one.severity == "error"]
    assert errors == ([] if starts else ["MQ-CFG-08"])
    # Names that it does not know, RocketMQ passes over.
    known = {name: value for name, value in settings.items() if name in SETTINGS}
    assert running(version).starts(root, {"storeConfig": known}) == starts
    if not starts:
        missing = [one.split("its broker.conf needs ")[1].split(",")[0] for one in doctor.obstacles]
        lines = "".join(f"{line}\n" for line in missing)
        conf.write_text(conf.read_text() + lines)
        assert mqstore.doctor(root, config=conf).will_start
        given = known | {name: int(size) for name, _, size in map(_parted, missing)}
        assert running(version).starts(root, {"storeConfig": given})


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition("=")


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("version", ["", "5.4.0", "5.5.0"])
@pytest.mark.parametrize("harm", ["checksums", "body", "frame", "zeros", "nothing"])
def test_p4_end_of_the_log_after_a_start_is_foreseen(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, harm: str, crashed: bool
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        places = [store.append("T", b"x" * 300, queue_id=0).physical_offset for _ in range(120)]
    if crashed:
        (root / "abort").touch()
    settings: dict[str, Any] = dict(SETTINGS)
    if harm == "checksums":
        settings |= {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}
    elif harm != "nothing":
        at = places[-5]
        with (root / f"commitlog/{at // 8192 * 8192:020}").open("r+b") as file:
            file.seek(at % 8192 + (200 if harm == "body" else 0))
            file.write(b"\0" * 300 if harm == "zeros" else b"yyyy")
    to = (version or "5.3")[:3]
    report = mqstore.preflight(root, to=to, config=settings)
    cut = [note for note in report.notes if "it ends the log at" in note.what]
    dumped = running(version).dump(root, {"storeConfig": settings})
    end = next(row["maxPhyOffset"] for row in dumped if row["type"] == "store")
    if harm == "nothing":
        assert not cut
        assert end > places[-1]
    else:
        (note,) = cut
        assert f"physical offset {end} " in note.what
        # A damaged frame is no message any more.
        dropped = sum(at >= end for at in places) - (harm in ("frame", "zeros"))
        assert f"drops {dropped} messages" in note.what
