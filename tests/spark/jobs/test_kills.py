"""A pipeline beside a writer, killed at random moments; ``MQSTORE_SPARK_KILLS`` says how often.

Every second kill comes after a batch was planned. A store is changed then, before the next start:
closed, rolled, cleaned, moved, or replaced by an older copy, which has to be refused by name.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
from collections import Counter
from itertools import count, islice
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import mqstore
from helpers.pipelines import Driver
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("MQSTORE_SPARK_KILLS", "5"))
SEED = int(os.environ.get("MQSTORE_SEED", "20261125"))
COLUMNS = "broker,topic,physical_offset,store_size,store_timestamp,body,error"


def append(root: Path, numbers: Iterator[int], stop: threading.Event | None = None) -> None:
    """Appends 20 messages; with ``stop`` three more at a time until it is set."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 20)])
        while stop is not None and not stop.wait(0.1):
            store.append_many([message(f"T{n % 2}", body=b"%d" % n) for n in islice(numbers, 3)])


class Changes:
    """Changes of stores between two runs, one kind after the other.

    Args:
        folder: Has the stores, in ``here`` or ``there``.
        checkpoint: Of the pipeline.
        numbers: Those of the messages.
    """

    def __init__(self, folder: Path, checkpoint: Path, numbers: Iterator[int]) -> None:
        self.folder, self.checkpoint, self.numbers = folder, checkpoint, numbers
        self.made: Counter[str] = Counter()

    def root(self, number: int) -> Path:
        there = self.folder / "there" / f"store-{number}"
        return there if there.exists() else self.folder / "here" / f"store-{number}"

    def keep(self, number: int) -> None:
        """Keeps a copy of a store as it is first."""
        copy = self.folder / "copies" / f"store-{number}"
        if not copy.exists():
            shutil.copytree(self.root(number), copy)

    def change(self, kind: str, refuses: Callable[[], str]) -> None:
        """Makes a change to the store that was read furthest."""
        logs = {name: self.ends(name) for name in ("offsets", "commits")}
        ends = logs["offsets"]
        name = max(ends, key=lambda one: ends[one], default="store-0")
        root = self.root(int(name[-1]))
        match kind:
            case "closed":
                append(root, iter(()))
            case "rolled":
                files = len(list((root / "commitlog").iterdir()))
                while len(list((root / "commitlog").iterdir())) == files:
                    append(root, self.numbers)
            case "cleaned":
                for file in sorted((root / "commitlog").iterdir())[:-1]:
                    if int(file.name) + file.stat().st_size <= logs["commits"].get(name, 0):
                        file.unlink()
            case "moved":
                side = "here" if root.parent.name == "there" else "there"
                root.rename(self.folder / side / name)
            case "restored":
                copy = self.folder / "copies" / name
                if not copy.exists():
                    return
                with mqstore.open(copy) as store:
                    if ends.get(name, 0) <= store.max_physical_offset:
                        return
                kept = root.rename(self.folder / "kept")
                shutil.copytree(copy, root)
                append(root, iter(range(-40, 0)))
                told = refuses()
                # Spark waits ten seconds for a worker, however busy the machine is.
                while "Python worker failed to connect back" in told:
                    told = refuses()
                assert f"broker {name}: " in told, told
                assert "is another store than" in told or "and was read up to" in told, told
                shutil.rmtree(root)
                kept.rename(root)
        self.made[kind] += 1

    def ends(self, log: str) -> dict[str, int]:
        """Ends by broker of the newest batch that was planned, or is done."""
        numbers = [int(path.name) for path in (self.checkpoint / log).glob("[0-9]*")]
        if not numbers:
            return {}
        text = (self.checkpoint / "offsets" / str(max(numbers))).read_text()
        found = json.loads(text.splitlines()[-1])
        return {name: at for name, at in found.items() if name[0] != "/"}


KINDS = ("restored", "moved", "cleaned", "rolled", "closed")


class Killer(threading.Thread):
    """Kills a driver at a random moment after its start, or after it planned a batch.

    Spark writes the batch to ``offsets`` in the checkpoint before it runs.
    """

    def __init__(self, driver: Driver, offsets: Path, *, in_batch: bool, after_s: float) -> None:
        super().__init__()
        self.driver, self.offsets, self.after_s = driver, offsets, after_s
        self.batches = self.planned() if in_batch else None
        self.over = threading.Event()
        self.hit = False

    def planned(self) -> int:
        return sum(1 for _ in self.offsets.glob("[0-9]*"))

    def run(self) -> None:
        while self.batches is not None and self.planned() == self.batches:
            if self.over.wait(0.01):
                break
        self.hit = not self.over.wait(self.after_s) and self.batches is not None
        self.driver.kill()


@pytest.mark.usefixtures("spark")  # or its skip: no Java
def test_each_message_once_however_often_the_pipeline_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    numbers = count()
    config = {
        "source": {
            "paths": [f"{tmp_path}/*here/store-*"],
            "until": "end",
            "columns": COLUMNS.split(","),
        },
        "sink": {"path": f"{tmp_path}/lake/messages"},
        "trigger": {"available_now": True},
    }
    checkpoint = tmp_path / "lake" / "messages" / "_checkpoint"
    offsets = checkpoint / "offsets"
    changes = Changes(tmp_path, checkpoint, numbers)
    for side in ("here", "there"):
        (tmp_path / side).mkdir()
    in_batches = 0
    following = Driver(config)

    def refuses() -> str:
        nonlocal following
        refused, following = following, Driver(config)
        assert refused.wait("started")
        refused.go()
        assert not refused.wait("over"), f"MQSTORE_SEED={SEED}"
        refused.errors.seek(0)
        told = refused.errors.read()
        refused.close()
        return told

    for number in range(KILLS + 1):
        driver = following
        assert driver.wait("started")
        if number < KILLS:
            following = Driver(config)
        append(changes.root(number % 3), numbers)
        changes.keep(number % 3)
        if number == KILLS:
            driver.go()
            is_over = driver.wait("over")
            driver.errors.seek(0)
            assert is_over, f"MQSTORE_SEED={SEED}: {driver.errors.read()[-8000:]}"
        else:
            stop = threading.Event()
            beside = (changes.root((number + 1) % 3), numbers, stop)
            writer = threading.Thread(target=append, args=beside)
            writer.start()
            # A machine with other work takes long to plan: every second kill waits for it.
            in_batch = number % 2 == 1
            after_s = chance.uniform(0, 1 if in_batch else 4)
            killer = Killer(driver, offsets, in_batch=in_batch, after_s=after_s)
            killer.start()
            driver.go()
            driver.wait("over")
            killer.over.set()
            killer.join()
            in_batches += killer.hit
            stop.set()
            writer.join()
            if in_batch:
                changes.change(KINDS[number // 2 % len(KINDS)], refuses)
        driver.close()
    written = next(numbers)
    table = ds.dataset(tmp_path / "lake" / "messages", partitioning="hive").to_table()
    found = Counter(map(int, table["body"].to_pylist()))
    lost, twice = written - len(found), sum(found.values()) - len(found)
    told = f"{KILLS} kills, {in_batches} of them just after a batch was planned; "
    told += f"stores changed: {dict(changes.made)}; "
    told += f"{written} messages, {lost} lost, {twice} twice"
    sys.stdout.write(f"MQSTORE_SEED={SEED}: {told}\n")
    assert found == Counter(range(written)), f"MQSTORE_SEED={SEED}"
    assert in_batches > 0 or KILLS < 2, f"MQSTORE_SEED={SEED}"
    metrics = ds.dataset(tmp_path / "lake" / "messages_metrics", partitioning="hive").to_table()
    assert sum(metrics["messages"].to_pylist()) == written, f"MQSTORE_SEED={SEED}"
