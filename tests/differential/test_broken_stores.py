"""RocketMQ starts on a broken store where `doctor` says so, and reads what was cured.

By default a handful of the stores; ``MQSTORE_BROKEN_STORES=all`` takes all, in one process for each
release.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.damaged_stores import BASES, STATES, Damage, cure, make_base, readable, run
from helpers.golden import Case
from helpers.java import RocketMQ, RocketMQError
from helpers.mixed_damages import MORE_STATES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HANDFUL = {"last_file_gone", "magic_damaged_near_the_end", "two_files_swapped", "notes_in_the_log"}
HANDFUL |= {"rocksdb_table_gone"}
ALL = os.environ.get("MQSTORE_BROKEN_STORES") == "all"
WANTED = [
    (base, damage)
    for base, damage in [*STATES, *MORE_STATES]
    if ALL or (damage.do.__name__ in HANDFUL and base in {"crashed-53", "closed-55", "rocksdb-55"})
]
each_state = pytest.mark.parametrize(
    ("base", "damage"), WANTED, ids=[f"{damage.do.__name__}-{base}" for base, damage in WANTED]
)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {name: make_base(name, folder / name).parent for name in BASES}


def places(rows: list[dict[str, Any]]) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Messages and queue entries that RocketMQ reads: topic, queue, place."""
    found: dict[str, set[tuple[Any, ...]]] = {"message": set(), "cq": set()}
    for row in rows:
        if row["type"] in found:
            found[row["type"]].add((row["topic"], row["queueId"], row["phyOffset"]))
    return found["message"], found["cq"]


@each_state
def test_rocketmq_confirms_the_verdict_and_reads_what_was_cured(
    running: Callable[[str], RocketMQ],
    bases: dict[str, Path],
    base: str,
    damage: Damage,
    tmp_path: Path,
) -> None:
    rocketmq = running("5.5.0" if base.endswith("55") else "")
    folder = shutil.copytree(bases[base], tmp_path / "a")
    root, conf = folder / "store", folder / "broker.conf"
    damage.do(root)
    batches = root / "batchconsumequeue"
    has_table = any((root / "config").glob("topics.json*"))
    known = sorted(path.name for path in batches.iterdir()) if batches.is_dir() else []
    params = {**Case(BASES[base][0]).params, "batchTopics": known if has_table else []}
    before = readable(root)
    report = mqstore.doctor(root, config=conf)
    tried = shutil.copytree(root, tmp_path / "tried")
    assert rocketmq.starts(tried, params) == report.will_start, report.obstacles
    left = cure(root, conf)
    for command in left.last_resort:
        run(command, folder)
    if not left.ok and not (before and left.will_start):
        return
    with mqstore.open(root, config=conf) as store:
        ours = {(m.topic, m.queue_id, m.physical_offset) for m in store.scan()}
        queued = {
            (m.topic, m.queue_id, m.physical_offset)
            for q in store.queues()
            for m in store.read(
                q.topic, q.queue_id, q.min_offset, max_messages=max(q.max_offset - q.min_offset, 1)
            ).messages
        }
    after = readable(root)
    rocketmq.hold(root, params)
    messages, entries = places(rocketmq.dump(root, params))
    if "storeType" in params["storeConfig"]:
        # The dump has queues in files only; one here has fewer than 32 messages.
        names = sorted({place[:2] for place in queued})
        asked = [{"op": "cq", "topic": t, "queueId": q, "from": 0, "max": 32} for t, q in names]
        for name, answer in zip(names, rocketmq.query(root, params, asked), strict=True):
            entries |= {(*name, one["phyOffset"]) for one in answer["messages"]}
    rocketmq.release(root)
    assert ours <= messages, ours - messages
    assert queued <= entries | {place for place in queued if place[0].startswith("%")}
    assert not before - after


@pytest.mark.parametrize("base", ["broker-53", "broker-55"] if ALL else ["broker-55"])
def test_a_broker_starts_on_lost_offsets_where_the_verdict_says_so(
    running: Callable[[str], RocketMQ], bases: dict[str, Path], base: str, tmp_path: Path
) -> None:
    rocketmq = running("5.5.0" if base.endswith("55") else "")
    damaged, none = "{damaged", '{"offsetTable":{}}'
    states = [(damaged, damaged), (None, None)]
    if ALL:
        states += [(damaged, ""), (None, damaged), (none, damaged)]
    for number, texts in enumerate(states):
        root = shutil.copytree(bases[base], tmp_path / str(number)) / "store"
        for name, text in zip(
            ("consumerOffset.json", "consumerOffset.json.bak"), texts, strict=True
        ):
            (root / "config" / name).unlink(missing_ok=True)
            if text is not None:
                (root / "config" / name).write_text(text)
        report = mqstore.doctor(root, config=root.parent / "broker.conf")
        assert "MQ-OFF-05" in {diagnosis.code for diagnosis in report}
        try:
            rocketmq.start_broker(root, Case(BASES[base][0]).params)
            rocketmq.stop_broker()
            starts = True
        except RocketMQError:
            starts = False
        assert starts == report.will_start, (texts, report.obstacles)
