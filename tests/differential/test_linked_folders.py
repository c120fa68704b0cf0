"""Folders of a store that are links, and sizes that contradict the files: RocketMQ's own answer."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

SETTINGS = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
PARAMS: dict[str, Any] = {"storeConfig": SETTINGS}
MESSAGES = 60


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as opened:
        for number in range(MESSAGES):
            opened.append("T", b"x" * 300, queue_id=0, keys=f"k{number}")
    return root


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_o2_rocketmq_reads_what_lies_behind_a_link_before_and_after_a_rebuild(
    rocketmq: RocketMQ, store: Path, tmp_path: Path, name: str
) -> None:
    shutil.move(store / name, target := tmp_path / "disk")
    (store / name).symlink_to(target)
    for _ in range(2):
        dump = rocketmq.dump(store, PARAMS)
        numbers = {row["queueOffset"] for row in dump if "queueOffset" in row}
        assert len(numbers) >= MESSAGES, dump[:3]
        with mqstore.open(store, config=SETTINGS) as opened:
            assert sum(1 for _ in opened.scan()) == MESSAGES
        mqstore.rebuild(store, config=SETTINGS)
        assert (store / name).readlink() == target


@pytest.mark.parametrize("name", ["mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"])
def test_o12_rocketmq_does_not_start_with_a_size_that_the_files_contradict(
    rocketmq: RocketMQ, store: Path, name: str
) -> None:
    settings = SETTINGS | {name: 2 * SETTINGS[name]}
    report = mqstore.doctor(store, config=settings)
    assert not report.will_start
    assert not rocketmq.starts(store, {"storeConfig": settings})
