"""A writer killed at a random moment: what was acknowledged is there when the store opens again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("MQSTORE_KILLS", "10"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261121"))

SETTINGS = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 50,
    "max_index_num": 400,
}

WRITER = """
import sys
import mqstore

settings = {name: int(value) for name, value in (pair.split("=") for pair in sys.argv[3:])}
store = mqstore.open(sys.argv[1], "a", config={**settings, "flush_disk_type": sys.argv[2]})
number = store.max_physical_offset and sum(queue.max_offset for queue in store.queues())
out = sys.stdout.buffer
while True:
    result = store.append(
        f"topic{number % 3}", b"%d:" % number + b"x" * (number % 700), queue_id=number % 2,
        tags=f"tag{number % 5}", keys=f"k{number}",
    )
    out.write(b"%d %d\\n" % (number, result.physical_offset))
    out.flush()
    number += 1
"""


def acknowledged(lines: list[bytes]) -> list[tuple[int, int]]:
    """Number and physical offset of each message whose append returned; a cut last line is none."""
    whole = [line for line in lines if line.endswith(b"\n")]
    return [(int(number), int(offset)) for number, offset in (line.split() for line in whole)]


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(
    tmp_path: Path, flush: str, seed: int
) -> None:
    rng = random.Random(f"{seed}/{flush}")
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    told: list[tuple[int, int]] = []
    for _ in range(KILLS):
        wanted = rng.randrange(1, 400)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), flush, *settings],
            stdout=subprocess.PIPE,
        ) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(wanted)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        told += acknowledged(lines)
        assert (tmp_path / "abort").exists()

        # A reader sees everything before anybody has recovered the store ...
        with mqstore.open(tmp_path, config=SETTINGS) as store:
            check(store, told, rng)
        # ... and so does the next writer.
        with mqstore.open(tmp_path, "r+", config=SETTINGS) as store:
            assert store.recovery is not None
            assert store.recovery.mode == "crash"
            check(store, told, rng)
    report = mqstore.verify(tmp_path, config=SETTINGS)
    assert report.ok, report.findings


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.parametrize("ahead", [False, True], ids=["clock", "clock-ahead-once"])
def test_damage_in_an_acknowledged_message_is_refused_after_a_kill(
    tmp_path: Path, ahead: bool, seed: int
) -> None:
    rng = random.Random(f"{seed}/damage/{ahead}")
    settings = {**SETTINGS, "flush_disk_type": "SYNC_FLUSH"}
    for number in range(max(2, KILLS // 8)):
        root = tmp_path / str(number)
        if ahead:
            with mqstore.open(root, "a", config=settings) as store:
                store.append_many([mqstore.Message("topic0", b"0:", store_timestamp_ms=2**63 - 1)])
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), "SYNC_FLUSH"]
            + [f"{name}={value}" for name, value in SETTINGS.items()],
            stdout=subprocess.PIPE,
        ) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(rng.randrange(2, 60))]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        told = acknowledged(lines)
        position = rng.randrange(len(told))
        size = SETTINGS["mapped_file_size_commit_log"]
        at = told[position][1]
        path = root / "commitlog" / f"{at // size * size:020}"
        with path.open("r+b") as file:
            # The last byte of the physical offset: the record is none any more.
            file.seek(at % size + 35)
            (byte,) = file.read(1)
            file.seek(at % size + 35)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
        before = {path: path.read_bytes() for path in (root / "commitlog").iterdir()}
        with pytest.raises(mqstore.CorruptionError, match=f"physical offset {at}; "):
            mqstore.open(root, "r+", config=settings)
        assert {path: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
        assert not mqstore.verify(root, config=settings).ok
        mqstore.recover(root, config=settings, dry_run=False, drop_beyond=True)
        with mqstore.open(root, "r+", config=settings) as store:
            assert store.max_physical_offset == at


def check(store: mqstore.Store, told: list[tuple[int, int]], rng: random.Random) -> None:
    stored = {int(m.body.split(b":")[0]): m for m in store.scan()}
    for number, physical_offset in told:
        assert stored[number].physical_offset == physical_offset
    assert sum(queue.max_offset for queue in store.queues()) == len(stored)
    for number, _ in rng.sample(told, min(len(told), 20)):
        found = store.query(f"topic{number % 3}", f"k{number}")
        assert [m.physical_offset for m in found] == [stored[number].physical_offset]
        message = stored[number]
        read = store.read(message.topic, message.queue_id, message.queue_offset, max_messages=1)
        assert [m.message_id for m in read.messages] == [message.message_id]
