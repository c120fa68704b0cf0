"""``mqstore tail -f`` beside a real broker that goes on writing, over many files of its log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

import mqstore
from helpers.java import SMALL as SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.java import RocketMQ


def shown(lines: IO[str], count: int) -> list[tuple[str, int, str]]:
    """Topic, queue and body of the next ``count`` messages."""
    rows = [json.loads(lines.readline()) for _ in range(count)]
    return [(row["topic"], row["queue_id"], row["body"]) for row in rows]


def test_a_live_broker_is_followed(rocketmq: RocketMQ, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as store:
        store.append_many([mqstore.Message("orders", b"ours %d" % n) for n in range(5)])
    rocketmq.start_broker(root, {"storeConfig": SETTINGS})
    command = [sys.executable, "-m", "mqstore", "tail", root, "-f", "-n", "2", "-t", "orders"]
    with subprocess.Popen([*command, "--jsonl"], stdout=subprocess.PIPE, text=True) as tail:
        # Ends the test where nothing comes.
        watch = threading.Timer(120, tail.kill)
        watch.start()
        try:
            assert tail.stdout is not None
            expected = [("orders", 0, "ours 3"), ("orders", 0, "ours 4")]
            assert shown(tail.stdout, 2) == expected
            for begin, count in ((0, 1), (1, 1), (2, 300), (302, 1)):
                bodies = [f"message {n} " + "x" * 500 for n in range(begin, begin + count)]
                rocketmq.produce(
                    [{"topic": "orders", "queueId": 2, "bodyText": body} for body in bodies]
                )
                assert shown(tail.stdout, count) == [("orders", 2, body) for body in bodies]
            assert len(list((root / "commitlog").iterdir())) > 3
            tail.send_signal(signal.SIGINT)
            assert tail.stdout.read() == ""
            assert tail.wait() == 130
        finally:
            watch.cancel()
            tail.kill()
            rocketmq.stop_broker()
