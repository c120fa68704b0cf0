"""Broken states, cured by the commands that `doctor` prints, are whole to RocketMQ."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.broken_states import CONF, ORDERS, SETTINGS, STATES, State, make_healthy
from helpers.curing import run
from helpers.java import RocketMQError

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

PARAMS = {"storeConfig": SETTINGS, "batchTopics": []}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states")
    make_healthy(folder / "healthy")
    (folder / "broker.conf").write_text(CONF)
    return folder


def opened(rocketmq: RocketMQ, root: Path) -> list[Row]:
    """RocketMQ's reading of a store: its messages, queues and their entries."""
    rocketmq.hold(root, PARAMS)
    rows = rocketmq.dump(root, PARAMS)
    rocketmq.release(root)
    return rows


def places(rows: list[Row], kind: str) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["queueId"], row["phyOffset"]) for row in rows if row["type"] == kind]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.id)
def test_rocketmq_opens_what_was_cured(rocketmq: RocketMQ, folder: Path, state: State) -> None:
    root = shutil.copytree(folder / "healthy", folder / state.id)
    whole = places(opened(rocketmq, root), "message")
    state.damage(root)
    for diagnosis in mqstore.doctor(root, config=folder / "broker.conf"):
        assert diagnosis.cure is not None
        run(diagnosis.cure)
    rows = opened(rocketmq, root)
    messages, entries = places(rows, "message"), places(rows, "cq")
    assert set(whole) <= set(messages)
    if state.code == "MQ-DOC-11":
        # RocketMQ's own start brings back what lies behind the ends of all other queues.
        assert {place[0] for place in entries} == {"orders", "stock"}
        entries = [place for place in entries if place[0] != "stock"]
        messages = [place for place in messages if place[0] != "stock"]
    assert sorted(entries) == sorted(messages)


def damaged(folder: Path, name: str) -> Path:
    """A store in a state by the name of its function, not cured."""
    [state] = [state for state in STATES if state.damage.__name__ == name]
    root = shutil.copytree(folder / "healthy", folder / f"{name} not cured")
    state.damage(root)
    return root


def test_rocketmq_does_not_start_with_an_empty_last_file(rocketmq: RocketMQ, folder: Path) -> None:
    """The state is the one that was reported, and not one that looks like it."""
    with pytest.raises(RocketMQError):
        rocketmq.hold(damaged(folder, "empty_last_file_and_lost_entry"), PARAMS)


def test_rocketmq_counts_an_entry_that_is_none(rocketmq: RocketMQ, folder: Path) -> None:
    """The same where no message waits to be dispatched."""
    rows = opened(rocketmq, damaged(folder, "empty_last_file"))
    [queue] = [
        row
        for row in rows
        if row["type"] == "queue" and (row["topic"], row["queueId"]) == ("orders", 0)
    ]
    assert queue["maxOffset"] == ORDERS // 2 + 1


def test_rocketmq_loses_what_was_not_cured(rocketmq: RocketMQ, folder: Path) -> None:
    """Without the cure the messages behind the short queue's end stay out of it."""
    rows = opened(rocketmq, damaged(folder, "lose_queue_end"))
    entries = places(rows, "cq")
    assert set(entries) < set(places(rows, "message"))
