"""Row P3: what RocketMQ makes of messages of an ended epoch (apache/rocketmq#10666)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mqstore
from helpers.damaged_stores import epoch_lines
from helpers.files import copy_store
from helpers.java import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ

PARAMS: dict[str, Any] = {"storeConfig": SMALL}
SLAVE: dict[str, Any] = {
    "storeConfig": SMALL | {"brokerRole": "SLAVE"},
    "brokerConfig": {"enableControllerMode": "true"},
}
TAIL = 20


def lines(what: str, count: int) -> list[dict[str, Any]]:
    """Messages of three topics in turn, each with its name as the key."""
    common = {"bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:2", "queueId": 0}
    return [
        common | {"topic": f"t{n % 3}", "bodyText": "x" * 50, "keys": f"{what}{n}"}
        for n in range(count)
    ]


def cut_by_rocketmq(rocketmq: RocketMQ, root: Path, kept: int) -> tuple[int, int]:
    """A slave's store that RocketMQ itself cut: where the new epoch begins, where the log ends."""
    rocketmq.hold(root, PARAMS)
    rocketmq.write(root, PARAMS, lines("kept", kept))
    tail = rocketmq.write(root, PARAMS, lines("old", TAIL))
    begin, end = tail[0]["wroteOffset"], tail[-1]["wroteOffset"] + tail[-1]["wroteBytes"]
    rocketmq.truncate(root, begin)
    rocketmq.release(root)
    (root / "epochFileCheckpoint").write_text(epoch_lines((1, 0), (2, begin)))
    return begin, end


def served(rows: list[dict[str, Any]]) -> set[str]:
    """Keys of the messages that queues lead to."""
    keys = {row["phyOffset"]: row["keys"] for row in rows if row["type"] == "message"}
    return {keys[row["phyOffset"]] for row in rows if row["type"] == "cq"}


def loaded(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Where the log ends after a load, and how far queues lead."""
    log = next(row["maxPhyOffset"] for row in rows if row["type"] == "recover")
    return log, max(row["maxPhysicOffset"] for row in rows if row["type"] == "queue")


def test_p3_a_start_takes_messages_of_an_ended_epoch_and_the_cure_ends_the_log(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "slave"
    # Queue files of 100 entries: RocketMQ deletes those that begin behind the cut.
    begin, end = cut_by_rocketmq(rocketmq, root, 300)
    (told,) = (one for one in mqstore.doctor(root, config=SMALL) if one.severity == "error")
    assert told.code == "MQ-DOC-19"
    assert f"{TAIL} whole messages" in told.evidence[0]

    # After a crash a slave has them in its log, after a clean stop in its queues too.
    for abort, reach in ((True, begin), (False, end)):
        copy = copy_store(root, tmp_path / f"abort-{abort}")
        if abort:
            (copy / "abort").touch()
        assert loaded(rocketmq.recover(copy, SLAVE)) == (end, reach)

    cured = copy_store(root, tmp_path / "cured")
    mqstore.recover(cured, dry_run=False, drop_beyond=True, config=SMALL)
    kept = {line["keys"] for line in lines("kept", 300)}
    for abort in (False, True):
        copy = copy_store(cured, tmp_path / f"cured-{abort}")
        if abort:
            (copy / "abort").touch()
        assert loaded(rocketmq.recover(copy, SLAVE)) == (begin, begin)
        assert served(rocketmq.dump(copy, PARAMS)) == kept
    # The new master's messages come where the epoch begins.
    assert rocketmq.write(cured, PARAMS, lines("new", 1))[0]["wroteOffset"] == begin
    assert served(rocketmq.dump(cured, PARAMS)) == kept | {"new0"}


def test_p3_entries_that_rocketmq_leaves_make_messages_those_of_the_new_epoch(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "slave"
    _, end = cut_by_rocketmq(rocketmq, root, 50)
    assert loaded(rocketmq.recover(copy_store(root, tmp_path / "copy"), SLAVE)) == (end, end)
    assert "MQ-DOC-19" not in {one.code for one in mqstore.doctor(root, config=SMALL)}
