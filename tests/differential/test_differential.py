"""Generated scripts, written by us and read by RocketMQ, and the other way round."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers import environment
from helpers.comparing import (
    assert_same_answers,
    assert_same_bytes,
    assert_same_dump,
    dump_as_ours,
    dump_ours,
    messages_ours,
    write_ours,
)
from helpers.files import copy_store, index_files, stamps
from helpers.golden import (
    Case,
    expected_message_row,
    manifest,
    message_row,
    messages_of,
)
from helpers.java import RELEASE, RocketMQError
from helpers.scripts import FLAVOURS, PARAMS, PLAIN, Flavour, Script, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from helpers.java import RocketMQ

Row = dict[str, Any]
SETTINGS = PARAMS["storeConfig"]
SEEDS = (1, 20231001, 777_777, 2**31 - 1)

each_flavour = pytest.mark.parametrize(
    ("flavour", "seed"),
    [(PLAIN, seed) for seed in SEEDS] + [(flavour, 5) for flavour in FLAVOURS[1:]],
    ids=lambda value: getattr(value, "name", None),
)


@each_flavour
def test_rocketmq_reads_what_we_wrote(
    rocketmq: RocketMQ, seed: int, flavour: Flavour, tmp_path: Path
) -> None:
    """Every message, queue and entry, and an answer to every kind of query."""
    root, params = tmp_path / "ours", flavour.params
    write_ours(root, Script(seed, flavour).add(120), flavour=flavour)
    theirs = copy_store(root, tmp_path / "theirs")
    rocketmq.hold(theirs, params)
    dump = rocketmq.dump(theirs, params)
    asked = queries(dump, seed)
    answers = rocketmq.query(theirs, params, asked)
    rocketmq.release(theirs)
    assert_same_dump(dump_ours(root), dump_as_ours(dump))
    assert_same_answers(root, flavour, asked, answers)
    # It took the store for whole: nothing had to be repaired.
    assert_same_bytes(theirs, root)


@each_flavour
def test_we_read_what_rocketmq_wrote(
    rocketmq: RocketMQ, seed: int, flavour: Flavour, tmp_path: Path
) -> None:
    root, params = tmp_path / "theirs", flavour.params
    script = Script(seed, flavour).add(120)
    rocketmq.hold(root, params)
    results = rocketmq.write(root, params, script)
    dump = rocketmq.dump(root, params)
    asked = queries(dump, seed)
    answers = rocketmq.query(root, params, asked)
    rocketmq.release(root)
    assert {row["status"] for row in results} == {"PUT_OK"}
    before = stamps(root)
    assert_same_dump(dump_ours(root), dump_as_ours(dump))
    assert_same_answers(root, flavour, asked, answers)
    assert mqstore.verify(root, config=params["storeConfig"]).ok
    assert stamps(root) == before


@each_flavour
def test_same_script_same_bytes(
    rocketmq: RocketMQ, seed: int, flavour: Flavour, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    script = Script(seed, flavour).add(150)
    results = write_ours(ours, script, flavour=flavour)
    rows = rocketmq.write(theirs, flavour.params, script)
    assert [
        (r.physical_offset, r.store_size, r.queue_offset, r.message_id, r.store_timestamp_ms)
        for r in results
    ] == [
        (
            row["wroteOffset"],
            row["wroteBytes"],
            row["logicsOffset"],
            row["msgId"],
            row["storeTimestamp"],
        )
        for row in rows
    ]
    assert_same_bytes(ours, theirs)


def test_taking_turns_on_one_store(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """Each goes on where the other stopped; in the end the bytes are those of one writer."""
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    script = Script(4711)

    def turn() -> list[Row]:
        lines = script.add(40)
        while lines[-1].get("transaction") == "prepared":
            # No queue has it, so RocketMQ's next start would enter its keys a second time.
            lines += script.add(1)
        return lines

    write_ours(shared, turn())
    rocketmq.write(shared, PARAMS, turn())
    write_ours(shared, turn(), "r+")
    rocketmq.write(shared, PARAMS, turn())
    write_ours(alone, script.lines)
    assert_same_bytes(shared, alone)
    assert dump_as_ours(rocketmq.dump(shared, PARAMS)) == dump_ours(alone)


def test_rocketmq_reads_all_of_many_properties_and_so_do_we(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    names = [f"{number:x}" for number in range(1_200)]
    block = b"".join(f"{name}\x01v\x02".encode() for name in [*names, "0"])
    with mqstore.open(tmp_path, "a", config=SETTINGS) as store:
        store.append("Many", b"", properties=block)
        [message] = store.scan()
    [row] = [row for row in rocketmq.dump(tmp_path, PARAMS) if row["type"] == "message"]
    assert message.properties == row["properties"] == dict.fromkeys(names, "v")


def test_default_sizes(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """Files of 1 GiB, 6,000,000 and 420,000,040 bytes, most of them holes."""
    root = tmp_path / "ours"
    script = Script(99).add(50)
    with mqstore.open(root, "a") as store:
        store.append_many([message for line in script for message in messages_of(line)])
    theirs = copy_store(root, tmp_path / "theirs")
    dump = rocketmq.dump(theirs, {"storeConfig": {}})
    messages = [expected_message_row(row) for row in dump if row["type"] == "message"]
    for row in messages:
        row.pop("type")
    with mqstore.open(root) as store:
        assert [message_row(message) for message in store.scan()] == messages
    (index,) = index_files(root)
    assert index.stat().st_size == 420_000_040


def test_rocketmq_opens_our_crashed_store(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """A process of ours is killed; RocketMQ's own recovery finds every message."""
    root = tmp_path / "store"
    script = Script(31).add(100)
    lines = tmp_path / "script.jsonl"
    lines.write_text("".join(json.dumps(line) + "\n" for line in script), encoding="utf-8")
    killed = subprocess.run(
        [sys.executable, "-c", _WRITE_AND_DIE, str(root), str(lines), json.dumps(SETTINGS)],
        env=environment(),
        check=False,
    )
    assert killed.returncode == -9
    assert (root / "abort").exists()
    ours = copy_store(root, tmp_path / "ours")
    dump = dump_as_ours(rocketmq.dump(root, PARAMS))
    assert dump["messages"] == messages_ours(ours)
    assert len(dump["messages"]) == len(script)
    with mqstore.open(ours, "r+", config=SETTINGS) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
    assert dump_ours(ours) == dump


_WRITE_AND_DIE = """
import json, os, signal, sys
import mqstore
from helpers.golden import messages_of, read_rows
from pathlib import Path
store = mqstore.open(sys.argv[1], "a", config=json.loads(sys.argv[3]))
for line in read_rows(Path(sys.argv[2])):
    store.append_many(messages_of(line))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_we_open_rocketmqs_crashed_store(
    start_rocketmq: Callable[[], RocketMQ], rocketmq: RocketMQ, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    script = Script(32).add(100)
    victim = start_rocketmq()
    victim.hold(root, PARAMS)
    victim.write(root, PARAMS, script)
    victim.crash()
    assert (root / "abort").exists()
    with mqstore.open(root, config=SETTINGS) as store:
        before = [message_row(message) for message in store.scan()]
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
        assert store.recovery.cut == 0
        assert [message_row(message) for message in store.scan()] == before
    assert len(before) == len(script)
    alone = tmp_path / "alone"
    write_ours(alone, script)
    assert_same_bytes(root, alone)
    assert dump_as_ours(rocketmq.dump(root, PARAMS)) == dump_ours(alone)


RECOVERED = [
    name
    for name, entry in manifest()["cases"].items()
    if entry["state"] not in ("clean", "damaged")
    and Case(name).release == RELEASE
    and "storeType" not in entry["settings"]
]


@pytest.mark.parametrize("case", [Case(name) for name in RECOVERED], ids=RECOVERED)
def test_rc17_rocketmq_reads_what_we_recovered(
    rocketmq: RocketMQ, case: Case, tmp_path: Path
) -> None:
    """Our recovery leaves nothing that RocketMQ would mend, or see otherwise."""
    root = case.unpack(tmp_path)
    case.bring_to_order(root)
    case.open(root, "r+").close()
    theirs = copy_store(root, tmp_path / "theirs")
    dump = rocketmq.dump(theirs, case.params)
    with case.open(root) as store:
        queues = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.queues()}
        messages = [message_row(message) for message in store.scan()]
    assert dump_as_ours(dump)["messages"] == messages
    assert {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in dump
        if row["type"] == "queue"
    } == queues
    assert_same_bytes(theirs, root)


@each_flavour
def test_rebuilt_as_rocketmq_dispatches(
    rocketmq: RocketMQ, seed: int, flavour: Flavour, tmp_path: Path
) -> None:
    """Both make queues and index again from the log alone, and make the same bytes."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_ours(ours, Script(seed, flavour).add(150), flavour=flavour)
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
        shutil.rmtree(ours / folder, ignore_errors=True)
    copy_store(ours, theirs)
    report = mqstore.rebuild(ours, config=flavour.params["storeConfig"])
    assert (report.messages, report.damaged, report.refused) == (150, (), 0)
    rocketmq.recover(theirs, flavour.params)
    assert_same_bytes(ours, theirs)


# --- one writer -------------------------------------------------------------------------------


def test_ck06_we_are_refused_while_rocketmq_holds_the_store(
    start_rocketmq: Callable[[], RocketMQ], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    holder = start_rocketmq()
    holder.hold(root, PARAMS)
    holder.write(root, PARAMS, Script(5).add(20))
    with frozen(holder):
        before = stamps(root)
        for mode in ("r+", "a"):
            with pytest.raises(mqstore.StoreLockedError) as refused:
                mqstore.open(root, mode, config=SETTINGS)
            assert refused.value.pid == holder.pid
        assert stamps(root) == before
    holder.close()
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        assert len(list(store.scan())) == 20


def test_ck07_we_read_beside_a_running_rocketmq(
    start_rocketmq: Callable[[], RocketMQ], tmp_path: Path
) -> None:
    """And change no byte and no time of any file, and make none."""
    root = tmp_path / "store"
    script = Script(7)
    holder = start_rocketmq()
    holder.hold(root, PARAMS)
    holder.write(root, PARAMS, script.add(20))
    with frozen(holder):
        before = stamps(root)
        store = mqstore.open(root, config=SETTINGS)
        seen = [message_row(message) for message in store.scan()]
        assert len(seen) == 20
        assert mqstore.lock_state(root) == (True, holder.pid)
        assert stamps(root) == before
    holder.write(root, PARAMS, script.add(60))
    dump = dump_as_ours(holder.dump(root, PARAMS))
    with frozen(holder):
        before = stamps(root)
        assert len(list(store.scan())) == 20
        store.refresh()
        assert [message_row(message) for message in store.scan()] == dump["messages"]
        for queue in dump["queues"]:
            found = store.read(queue["topic"], queue["queueId"], 0, max_messages=100)
            assert len(found.messages) == queue["maxOffset"]
        store.close()
        assert stamps(root) == before


@contextlib.contextmanager
def frozen(process: RocketMQ) -> Iterator[None]:
    """While it is stopped, what changes was changed by us."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_ck06_rocketmq_is_refused_while_we_hold_the_store(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    """It stops at the lock, but only after its load; what we acknowledged is there all the same."""
    root = tmp_path / "store"
    script = Script(6)
    acknowledged: list[mqstore.AppendResult] = []
    store = mqstore.open(root, "a", config={**SETTINGS, "flush_disk_type": "SYNC_FLUSH"})
    try:
        acknowledged += store.append_many([m for line in script.add(60) for m in messages_of(line)])
        with pytest.raises(RocketMQError, match="Lock failed"):
            rocketmq.hold(root, PARAMS)
        try:
            for line in script.add(60):
                acknowledged += store.append_many(messages_of(line))
        except mqstore.StorePoisonedError as poisoned:
            # Its load may delete or replace files; we notice, and take no more.
            acknowledged += poisoned.results[: poisoned.index or 0]
    finally:
        try:
            store.close()
        except mqstore.StorePoisonedError:
            assert (root / "abort").exists()
    with mqstore.open(root, "r+", config=SETTINGS) as again:
        found = {message.message_id for message in again.scan()}
    assert {result.message_id for result in acknowledged} <= found
    rows = rocketmq.dump(root, PARAMS)
    read = {row["msgId"] for row in rows if row["type"] == "message"}
    assert {result.message_id for result in acknowledged} <= read
