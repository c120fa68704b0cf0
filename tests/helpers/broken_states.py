"""The broken states that operators of RocketMQ report, made of a healthy store.

Each state is a function that breaks a store, the code that names it, and the rows of keys that a
test looks for once it is cured.
"""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 100,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
CONF = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
START_MS = 1_700_000_000_000
ORDERS = 50
STOCK = 10
QUEUE_FILE = SETTINGS["mappedFileSizeConsumeQueue"]


def message(topic: str, number: int, time_ms: int, key: str) -> mqstore.Message:
    return mqstore.Message(
        topic,
        f"{topic} {number}".encode() * 5,
        queue_id=number % 2 if topic == "orders" else 0,
        keys=key,
        tags="paid",
        born_timestamp_ms=time_ms,
        born_host="10.0.0.1:1",
        store_timestamp_ms=time_ms,
        store_host="10.0.0.2:2",
    )


def make_healthy(root: Path) -> None:
    """Two topics: `orders` with two queues of five full files, `stock` with one of two."""
    messages = [message("orders", n, START_MS + n * 1000, f"o-{n}") for n in range(ORDERS)]
    messages += [
        message("stock", n, START_MS + (ORDERS + n) * 1000, f"s-{n}") for n in range(STOCK)
    ]
    with mqstore.open(root, "a", config=SETTINGS) as store:
        store.append_many(messages)


def append(root: Path, *messages: mqstore.Message) -> None:
    with mqstore.open(root, "r+", config=SETTINGS) as store:
        store.append_many(messages)


def queue_file(root: Path, topic: str, queue_id: int, entry: int) -> tuple[Path, int]:
    """The file that has an entry, and the byte there."""
    position = entry * 20
    base = position - position % QUEUE_FILE
    return root / "consumequeue" / topic / str(queue_id) / f"{base:020}", position - base


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def crash(root: Path, *, checkpoint: bool = True) -> None:
    """Leaves `abort`; without a checkpoint that knows anything of the index."""
    (root / "abort").write_bytes(b"1")
    if not checkpoint:
        patch(root / "checkpoint", 16, struct.pack(">q", 0))


def lose_queue_end(root: Path) -> None:
    queue_file(root, "orders", 1, 20)[0].unlink()


def lose_queue_end_in_crash(root: Path) -> None:
    lose_queue_end(root)
    crash(root)
    # Nothing was flushed for long.
    patch(root / "checkpoint", 0, struct.pack(">qqq", START_MS, START_MS, 0))


def outrun_checkpoint(root: Path) -> None:
    crash(root, checkpoint=False)


def lose_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def never_flush_index(root: Path) -> None:
    (path,) = (root / "index").iterdir()
    patch(path, 0, bytes(40 + 4 * 20))


def lose_middle_of_queue(root: Path) -> None:
    queue_file(root, "orders", 0, 10)[0].unlink()


def swap_entries(root: Path) -> None:
    path, position = queue_file(root, "orders", 0, 6)
    with path.open("rb") as file:
        file.seek(position)
        first, second = file.read(20), file.read(20)
    patch(path, position, second + first)


def misdirect_entry(root: Path) -> None:
    path, position = queue_file(root, "orders", 1, 3)
    with path.open("rb") as file:
        file.seek(position)
        (offset,) = struct.unpack(">q", file.read(8))
    patch(path, position, struct.pack(">q", offset + 4))


def empty_last_file(root: Path) -> None:
    path, _ = queue_file(root, "orders", 0, ORDERS // 2)
    assert not path.exists()
    path.write_bytes(bytes(QUEUE_FILE))


def empty_last_file_and_lost_entry(root: Path) -> None:
    """The log reaches further than all queues, as after the crash that was reported."""
    empty_last_file(root)
    path, position = queue_file(root, "stock", 0, STOCK - 1)
    patch(path, position, bytes(20))


def begin_file_without_bytes(root: Path) -> None:
    queue_file(root, "orders", 0, ORDERS // 2)[0].touch()


def crash_long_ago(root: Path) -> None:
    crash(root)
    patch(root / "checkpoint", 0, bytes(24))


def collide(root: Path) -> None:
    time_ms = START_MS + 100_000
    append(root, message("stock", 0, time_ms, "Aa"), message("stock", 0, time_ms + 1000, "BB"))


def step_back(root: Path) -> None:
    append(root, message("stock", 0, START_MS - 3_600_000, "early"))


def tie(root: Path) -> None:
    append(root, message("stock", 0, START_MS + (ORDERS + STOCK - 1) * 1000, "tie"))


def delete_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "stock")
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["stock"]
    path.write_text(json.dumps(table))


def move_to_rocksdb(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    database = root / "consumequeue_r"
    database.mkdir()
    (database / "CURRENT").write_text("MANIFEST-000001\n")
    (database / "MANIFEST-000001").write_bytes(b"")


@dataclass(frozen=True)
class State:
    """A broken state, and what its cure answers where it repairs nothing: a part of the output."""

    code: str
    damage: Callable[[Path], None]
    answer: str | None = None

    @property
    def id(self) -> str:
        return f"{self.code}-{self.damage.__name__}"


STATES = [
    State("MQ-DOC-01", lose_queue_end),
    State("MQ-DOC-01", lose_queue_end_in_crash),
    State("MQ-DOC-02", outrun_checkpoint),
    State("MQ-DOC-03", lose_index),
    State("MQ-DOC-03", never_flush_index),
    State("MQ-DOC-04", lose_middle_of_queue),
    State("MQ-DOC-04", swap_entries),
    State("MQ-DOC-05", misdirect_entry),
    State("MQ-DOC-06", empty_last_file),
    State("MQ-DOC-06", empty_last_file_and_lost_entry),
    State("MQ-DOC-06", begin_file_without_bytes),
    State("MQ-DOC-07", crash_long_ago),
    State("MQ-DOC-08", collide, "keys=BB"),
    State("MQ-DOC-09", step_back, "keys=early"),
    State("MQ-DOC-10", tie, "stock"),
    State("MQ-DOC-11", delete_topic),
    State("MQ-DOC-12", move_to_rocksdb),
]
