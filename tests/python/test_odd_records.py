"""Whole records that RocketMQ or consumers cannot use, and files of the timer that lead too far."""

from __future__ import annotations

import gzip
import shutil
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.damaged_stores import log_files, patch, records
from helpers.shifted import CONFIG, LIGHT

if TYPE_CHECKING:
    from pathlib import Path

TIMER = "rmq_sys_wheel_timer"


def found(root: Path, **config: object) -> list[tuple[str, str, str]]:
    report = mqstore.verify(root, config=config or CONFIG)
    return [(one.code, one.severity, one.found) for one in report.findings]


STALE = {
    "zeros": bytes(20),
    "key": b"UNIQ_KEY\x01AC1100017F000",
    "more": b"x\x02TAGS\x01other\x02KEYS",
    "no-text": b"\xff\xfe" * 10,
}


@pytest.mark.parametrize("stale", STALE)
def test_p9_stale_bytes_behind_a_queue_offset_end_dispatch(tmp_path: Path, stale: str) -> None:
    lists = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010" + STALE[stale]
    with mqstore.open(tmp_path, "a", config=CONFIG) as store:
        for n in range(5):
            store.append("T", b"%d" % n, properties=lists if n == 1 else b"")
    assert found(tmp_path) == []
    ((code, severity, text),) = found(tmp_path, **LIGHT)
    assert (code, severity) == ("MQ-LOG-18", "error")
    assert text.startswith('"0')
    assert text.endswith("; 3 messages behind it")
    with mqstore.open(tmp_path, "r+", config=LIGHT) as store:
        assert [message.body for message in store.read("T", 0, 0).messages] == [
            b"%d" % n for n in range(5)
        ]


def test_p10_bodies_that_cannot_be_decompressed_are_counted(tmp_path: Path) -> None:
    text = b'{"order": 1, "state": "paid"}' * 4
    compressor = zlib.compressobj(wbits=-15)
    raw_deflate = compressor.compress(text) + compressor.flush()
    bodies = [text, raw_deflate, gzip.compress(text), b"", zlib.compress(text) + b"behind"]
    with mqstore.open(tmp_path, "a", config=CONFIG) as store:
        for body in [zlib.compress(text), *bodies, zlib.compress(text)]:
            store.append("T", body)
    for at, _ in records(log_files(tmp_path)[0]):
        patch(log_files(tmp_path)[0], at + 36, struct.pack(">i", 1))
    ((code, severity, said),) = found(tmp_path)
    assert (code, severity) == ("MQ-LOG-19", "info")
    assert said.startswith("5 that cannot, the first here: ")


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
    (root / "timerwheel").write_bytes(slots)


def check(root: Path, *fields: int) -> None:
    data = struct.pack(f">{len(fields)}q", *fields)
    (root / "config" / "timercheck").write_bytes(data.ljust(4096, b"\0"))


def test_p14_files_of_the_timer_that_agree_are_no_finding(tmp_path: Path) -> None:
    timer_store(tmp_path)
    assert found(tmp_path) == []
    # A start goes on behind the message of the last unit, and repairs slots that have a unit.
    check(tmp_path, 1_600_000_000_000, 520, 1000)
    assert found(tmp_path) == []


def test_p14_timers_whose_units_are_gone_are_read_again(tmp_path: Path) -> None:
    timer_store(tmp_path)
    check(tmp_path, 1_600_000_000_000, 520 + 52 * 7, 400)
    said = "884; up to 7 timer messages are read again, and come once more if they were delivered"
    assert found(tmp_path) == [("MQ-TM-01", "warning", said)]
    check(tmp_path, 1_600_000_000_000, 520, 400)
    wheel(tmp_path, 52 * 10)
    said = "1 slots beyond; a broker that starts before their 3 timer messages are due may run out"
    assert found(tmp_path) == [("MQ-TM-01", "error", f"{said} of memory")]
    # The time of all others has passed: such a message goes into no slot when it is read again.
    wheel(tmp_path, 52 * 10, 1_700_000_010)
    assert found(tmp_path) == []
    said = "0; 400 timer messages from 0 on are read again"
    for harm in (lambda path: path.write_bytes(b""), lambda path: path.unlink()):
        harm(tmp_path / "config" / "timercheck")
        assert found(tmp_path) == [("MQ-TM-01", "warning", said)]
    shutil.rmtree(tmp_path / "timerlog")
    assert found(tmp_path) == []


def test_p14_timers_are_never_delivered_if_no_unit_leads_to_a_message(tmp_path: Path) -> None:
    timer_store(tmp_path)
    with mqstore.open(tmp_path, config=CONFIG) as store:
        end = store.max_physical_offset
    timer_log(tmp_path, 10, end)
    assert found(tmp_path) == []
    check(tmp_path, 1_600_000_000_000, 520, 1000)
    said = "1000; a broker before 5.3.2 never delivers the next 600 timer messages"
    assert found(tmp_path) == [("MQ-TM-01", "warning", said)]
    check(tmp_path, 1_600_000_000_000, 520, 400)
    timer_log(tmp_path, 0)
    said = "2 slots beyond; their 7 timer messages are never delivered"
    assert found(tmp_path) == [("MQ-TM-01", "error", said)]
    (tmp_path / "timerwheel").unlink()
    said = "520; up to 10 timer messages that waited are never delivered"
    assert found(tmp_path) == [("MQ-TM-01", "error", said)]
