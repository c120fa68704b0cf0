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
from helpers.timers import HARMS, check, timer_log, timer_store, wheel

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize("crashed", [True, False])
def test_p9_a_recovery_that_comes_to_such_a_record_does_not_start(
    tmp_path: Path, crashed: bool
) -> None:
    lists = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": ",0"}
    with mqstore.open(tmp_path, "a", config=CONFIG) as store:
        for n in range(400):
            store.append("T", bytes(300), properties=lists if n == 1 else {})
        newest_ms = store.append("T", b"").store_timestamp_ms
    if crashed:
        (tmp_path / "abort").touch()
    for at_once in (True, False):
        # With times three seconds behind the newest, the recovery begins in the last file.
        times = struct.pack(">3q", *[0 if at_once else newest_ms + 3000] * 3)
        (tmp_path / "checkpoint").write_bytes(times.ljust(4096, b"\0"))
        starts = not (crashed and at_once)
        assert mqstore.doctor(tmp_path, config=LIGHT).will_start == starts
        for to in ("5.3", "5.5"):
            report = mqstore.preflight(tmp_path, to=to, config=LIGHT)
            assert report.starts == starts
            assert any("dispatch ends at a message" in note.what for note in report.notes)


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


@pytest.mark.parametrize("harm", HARMS)
def test_p14_files_with_which_no_broker_starts_are_told(tmp_path: Path, harm: str) -> None:
    root = tmp_path / "store"
    timer_store(root)
    make, starts = HARMS[harm]
    make(root)
    told = {"MQ-FS-03", "MQ-TM-01"} & {code for code, _, _ in found(root)}
    assert told or starts
    report = mqstore.doctor(root, config=CONFIG)
    assert report.will_start == starts
    assert mqstore.preflight(root, to="5.5", config=CONFIG).starts == starts
    # Only the timer reads them.
    off = CONFIG | {"timer_wheel_enable": False}
    assert mqstore.doctor(root, config=off).will_start
    if harm == "stray":
        assert report.commands == (f"mv -n -T {root}/timerlog/.DS_Store {root}/.DS_Store",)
