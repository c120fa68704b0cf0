"""A disk that claims more room than it has, under this store and under RocketMQ, side by side.

Run by hand, as root, where loop devices can be made::

    export PYTHONPATH=tests
    .venv/bin/python tests/differential/lying_disk.py --runs 5
    MQSTORE_ROCKETMQ_VERSION=5.4.0 .venv/bin/python tests/differential/lying_disk.py --runs 5

Each run writes messages of 100,000 bytes under ``SYNC_FLUSH`` to an ext4 disk of 64 MiB that lies
in 12 MiB of memory, 140 of them or until the store takes no more, mounts the disk again with the
room that was promised, and counts the acknowledged messages that are not in the log any more.
RocketMQ does so with the same small files, and with the file of 1 GiB that is its default.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import mqstore
from helpers.disks import MIB, Disk, disk, memory_disk, run
from helpers.java import RocketMQ, RocketMQError
from helpers.writer import SETTINGS, body
from helpers.writing import writer

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = 100_000
MOST = 140

Written = tuple[dict[int, int], str]


def ours(root: Path) -> Written:
    """Number and offset of what was acknowledged, and how it ended."""
    with writer(root, "SYNC_FLUSH", count=MOST, length=LENGTH) as at_work:
        assert at_work.listen(1)
        while len(at_work.told) < MOST and at_work.listen(1):
            pass
        return at_work.told, at_work.refused or "never refused"


def rocketmq(root: Path, *, whole: bool = False) -> Written:
    """The same from RocketMQ; ``whole`` takes its own size of log files."""
    names = {
        "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
        "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
        "max_hash_slot_num": "maxHashSlotNum",
        "max_index_num": "maxIndexNum",
    }
    settings = {java: SETTINGS[name] for name, java in names.items()}
    if whole:
        del settings["mappedFileSizeCommitLog"]
    params = {"storeConfig": {**settings, "flushDiskType": "SYNC_FLUSH"}}
    told: dict[int, int] = {}
    refused, end = 0, "never refused"
    with tempfile.TemporaryDirectory(prefix="mqstore-java-") as home:
        java = RocketMQ(Path(home))
        try:
            java.hold(root, params)
            for number in range(MOST):
                line = {
                    "topic": f"topic{number % 3}",
                    "queueId": number % 2,
                    "body": base64.b64encode(body(number, LENGTH)).decode(),
                    "bornTimestamp": 1_696_161_296_000,
                    "bornHost": "127.0.0.1:1",
                    "storeHost": "127.0.0.1:10911",
                }
                (row,), _ = java.call("write", store=str(root), params=params, script=[line])
                if row["status"] == "PUT_OK":
                    told[number] = row["wroteOffset"]
                else:
                    refused += 1
                    end = f"{refused} refused, the last with {row['status']}"
        except RocketMQError as error:
            end = f"the process died: {str(error).splitlines()[0]}"
        finally:
            if java.is_alive:
                java.kill()
    return told, end


def there(root: Path) -> set[int]:
    """The offsets of whole messages in the log, read without changing anything."""
    with mqstore.open(root) as store:
        return {message.physical_offset for message in store.scan(on_error="skip")}


def one_run(write: Callable[[Path], Written]) -> tuple[int, int, str]:
    """How many were acknowledged, how many of them are lost, and how it ended."""
    with memory_disk(12 * MIB) as memory, disk("ext4", size=64 * MIB, backing=memory) as made:
        told, end = write(made.folder / "store")
        mount_again(made, memory)
        found = there(made.folder / "store")
        return len(told), sum(offset not in found for offset in told.values()), end


def mount_again(made: Disk, memory: Path) -> None:
    made.unmount()
    run("mount", "-o", f"remount,size={128 * MIB}", memory)
    made.mount()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    writers: dict[str, Callable[[Path], Written]] = {
        "mqstore": ours,
        "RocketMQ": rocketmq,
        "RocketMQ with 1 GiB files": partial(rocketmq, whole=True),
    }
    for name, write in writers.items():
        for number in range(runs):
            told, gone, end = one_run(write)
            sys.stdout.write(f"{name} run {number}: {told} acknowledged, {gone} lost, {end}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
