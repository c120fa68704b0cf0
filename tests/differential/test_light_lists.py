"""Lists of further queues in a record's properties, and numbers left out: RocketMQ is the judge."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.java import RocketMQ, RocketMQError
from helpers.shifted import CONFIG, LIGHT, light, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PARAMS: dict[str, Any] = {
    "storeConfig": {
        "mappedFileSizeCommitLog": 65536,
        "mappedFileSizeConsumeQueue": 2000,
        "enableLmq": True,
        "enableMultiDispatch": True,
    }
}
A_B = "%LMQ%a,%LMQ%b"
LISTS = [
    (A_B, "0,0"),
    (A_B, "0"),
    (A_B, "0,"),
    (A_B, "0,0,,"),
    (A_B, " "),
    ("%LMQ%a,other", "0,0"),
    ("%LMQ%a,", "0"),
    ("%LMQ%a,%LMQ%a", "0,1"),
    ("%LMQ%a,%LMQ%x/y,%LMQ%b", "0,z,0"),
    (A_B, ",0"),
    (A_B, "0,z"),
    ("%LMQ%a", " 0"),
]


def forget(root: Path) -> None:
    """Takes away what is derived from the log, as after a crash."""
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    (root / "checkpoint").unlink()
    (root / "abort").touch()


def dispatched(rocketmq: RocketMQ, root: Path) -> set[tuple[Any, ...]]:
    rows = rocketmq.dump(root, PARAMS)
    return {
        (row["topic"], row["queueId"], row["offset"], row["phyOffset"])
        for row in rows
        if row["type"] == "cq"
    }


def rebuilt(root: Path) -> set[tuple[Any, ...]]:
    mqstore.rebuild(root, config=LIGHT)
    found = set()
    with mqstore.open(root, "r", config=LIGHT) as store:
        for queue in store.queues():
            read = store.read(queue.topic, queue.queue_id, queue.min_offset, max_messages=100)
            places = enumerate(read.messages, queue.min_offset)
            found |= {(queue.topic, queue.queue_id, n, m.physical_offset) for n, m in places}
    return found


@pytest.mark.parametrize(("names", "numbers"), LISTS)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p13_lists_give_the_queues_that_rocketmq_fills(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, names: str, numbers: str
) -> None:
    root = tmp_path / "store"
    lists = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": numbers}
    with mqstore.open(root, "a", config=CONFIG) as store:
        for n in range(3):
            store.append("T", b"%d" % n, queue_id=1, properties=lists if n == 1 else {})
    forget(root)
    theirs = shutil.copytree(root, tmp_path / "theirs")
    to = (version or "5.3")[:3]
    starts = mqstore.preflight(root, to=to, config=LIGHT).starts
    assert mqstore.doctor(root, config=LIGHT).will_start == starts
    ours = rebuilt(root)
    report = mqstore.verify(root, config=LIGHT)
    codes = [finding.code for finding in report.findings if finding.severity == "error"]
    try:
        assert dispatched(running(version), theirs) == ours
        assert codes == []
        assert starts
    except RocketMQError:
        assert not starts
        # It cannot load the log; the messages behind are in our queues all the same.
        assert codes == ["MQ-LOG-18"]
        assert ("T", 1, 2) in {entry[:3] for entry in ours}
        (end,) = (finding for finding in report.findings if finding.code == "MQ-LOG-18")
        assert end.found.endswith("; 1 messages behind it")


@pytest.mark.parametrize("numbers", [[0, 1, 2, 4, 5, 6], [0, 2, 5, 6, 9], [3, 4, 6, 7]], ids=str)
@pytest.mark.parametrize("version", ["", "5.5.0"])
def test_p11_a_rebuild_gives_what_rocketmq_dispatches(
    running: Callable[[str], RocketMQ], tmp_path: Path, version: str, numbers: Sequence[int]
) -> None:
    root = tmp_path / "store"
    plain(root, numbers)
    forget(root)
    theirs = shutil.copytree(root, tmp_path / "theirs")
    assert rebuilt(root) == dispatched(running(version), theirs)


def test_p12_a_rebuild_gives_a_light_queue_as_rocketmq_dispatches_it(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    light(root, [0, 1, 3, 4])
    forget(root)
    theirs = shutil.copytree(root, tmp_path / "theirs")
    assert rebuilt(root) == dispatched(rocketmq, theirs)
