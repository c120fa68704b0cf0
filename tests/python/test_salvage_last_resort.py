"""A salvage names what it skips, and broken files beside the messages stop nothing."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TIME, TINY, message

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sixty messages in one queue, and a group that has read twenty of them."""
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many(
            [
                message(topic="T", body=b"body %d" % n, keys=f"k{n}", store_timestamp_ms=TIME + n)
                for n in range(COUNT)
            ]
        )
        group = store.group("g")
        assert len(group.poll("T", max_messages=20)) == 20
        group.commit()
        group.close()
    return tmp_path / "store"


def places(root: Path) -> list[mqstore.StoredMessage]:
    with mqstore.open(root) as store:
        return list(store.scan())


def put(root: Path, place: int, data: bytes) -> None:
    size = TINY["mapped_file_size_commit_log"]
    with (root / "commitlog" / f"{place - place % size:020}").open("r+b") as file:
        file.seek(place % size)
        file.write(data)


def field_at(found: mqstore.StoredMessage, name: str) -> int:
    """Where a field of a message lies in the log."""
    body = found.physical_offset + 88
    topic = body + len(found.raw_body) + 1
    return {
        "magic": found.physical_offset + 4,
        "queue_id": found.physical_offset + 12,
        "body": body,
        "topic": topic,
        "properties_end": found.physical_offset + found.store_size - 1,
    }[name]


@pytest.mark.parametrize(
    ("field", "data", "reason"),
    [
        ("topic", b"\0", "its topic has a zero byte: the page was never written"),
        (
            "properties_end",
            b"\0",
            "its properties have zeros, as where they did not come to the disk",
        ),
        ("body", b"?", "its body is not the one that was stored"),
        (
            "queue_id",
            struct.pack(">i", -1),
            "its queue, one of its offsets or its store time is negative",
        ),
    ],
)
def test_a_message_that_is_not_taken_is_named_with_its_reason(
    root: Path, tmp_path: Path, field: str, data: bytes, reason: str
) -> None:
    lost = places(root)[4]
    put(root, field_at(lost, field), data)
    report = mqstore.salvage(root, tmp_path / "out", config=TINY)
    assert report.messages == COUNT - 1
    assert report.passed_over_count == 1
    [passed] = report.passed_over
    assert passed.reason == reason
    assert passed.physical_offset == lost.physical_offset
    assert passed.bytes == lost.store_size
    assert passed.path.startswith(str(root / "commitlog"))
    assert [file.passed_over for file in report.files if file.path == passed.path] == [1]
    # A stand-in keeps its queue offset.
    assert report.stand_ins == 1
    assert len(places(tmp_path / "out")) == COUNT


def test_a_message_whose_lengths_do_not_add_up_is_none(root: Path) -> None:
    put(root, field_at(places(root)[4], "magic"), b"????")
    report = mqstore.salvage(root)
    assert (report.passed_over_count, report.messages) == (0, COUNT - 1)
    assert report.files[0].other_ranges == 1


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "delayOffset.json"])
@pytest.mark.parametrize("bad", [b"{garbage", b"\0\0\0\0", b"\xff\xfe"])
def test_a_damaged_table_is_named_and_left_out(
    root: Path, tmp_path: Path, name: str, bad: bytes
) -> None:
    (root / "config" / name).write_bytes(bad)
    (root / "config" / f"{name}.bak").unlink(missing_ok=True)
    looked = mqstore.salvage(root, config=TINY)
    report = mqstore.salvage(root, tmp_path / "out", config=TINY)
    assert report.problems == looked.problems
    [problem] = report.problems
    assert problem.path == str(root / "config" / name)
    assert problem.reason.endswith("left out")
    assert report.messages == COUNT
    assert name not in report.config_files
    assert mqstore.verify(tmp_path / "out", config=TINY).ok


def test_of_a_damaged_table_the_backup_is_taken(root: Path, tmp_path: Path) -> None:
    table = root / "config" / "consumerOffset.json"
    table.rename(table.with_name("consumerOffset.json.bak"))
    table.write_bytes(b"\0" * 100)
    report = mqstore.salvage(root, tmp_path / "out", config=TINY)
    [problem] = report.problems
    assert problem.reason.endswith("its backup is taken")
    with mqstore.open(tmp_path / "out") as store:
        assert [at.queue_offset for at in store.groups()["g"]] == [20]


def test_tables_that_are_none_stop_nothing(root: Path, tmp_path: Path) -> None:
    config = root / "config"
    (config / "consumerOffset.json.bak").unlink(missing_ok=True)
    (config / "topics.json").unlink()
    (config / "topics.json").symlink_to("/etc/passwd")
    (config / "delayOffset.json").mkdir()
    with (config / "consumerOffset.json").open("wb") as file:
        os.truncate(file.fileno(), 65 << 20)
    report = mqstore.salvage(root, tmp_path / "out", config=TINY)
    assert [problem.path.rpartition("/")[2] for problem in report.problems] == [
        "consumerOffset.json",
        "delayOffset.json",
        "topics.json",
    ]
    assert report.config_files == ()
    # Without a table every topic is entered.
    table = json.loads((tmp_path / "out" / "config" / "topics.json").read_text())
    assert "T" in table["topicConfigTable"]
    assert mqstore.verify(tmp_path / "out", config=TINY).ok


def test_a_folder_of_tables_that_is_none_stops_nothing(root: Path, tmp_path: Path) -> None:
    (root / "config").rename(tmp_path / "elsewhere")
    (root / "config").symlink_to(tmp_path / "nowhere")
    report = mqstore.salvage(root, tmp_path / "out", config=TINY)
    assert [problem.path for problem in report.problems] == [str(root / "config")]
    assert report.messages == COUNT


def test_a_file_that_is_not_opened_is_named(root: Path) -> None:
    log = root / "commitlog"
    first = min(log.iterdir())
    first.rename(log.parent / "moved")
    first.symlink_to(log.parent / "moved")
    (log / "lost").mkdir()
    os.mkfifo(log / "pipe")
    report = mqstore.salvage(root, config=TINY)
    assert {problem.path.rpartition("/")[2]: problem.reason for problem in report.problems} == {
        first.name: "a link, pipe or device, not opened",
        "lost": "a folder, not looked into",
        "pipe": "a link, pipe or device, not opened",
    }
    assert 0 < report.messages < COUNT
