"""A replay whose command, client and broker are killed: nothing is missing, little comes twice."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.clusters import QUICK_JAVA, Cluster, running_cluster
from helpers.java import RocketMQ
from helpers.running import command_line, environment
from mqstore.replaying.run import WINDOW

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

KILLS = int(os.environ.get("MQSTORE_REPLAY_KILLS", "10"))
SEED = int(os.environ.get("MQSTORE_SEED", "1"))
MESSAGES = 1_000 * KILLS
EACH = ("command", "client", "command", "client", "broker")


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.usefixtures("_java")
def test_killed_at_random_moments_nothing_is_missing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    root = tmp_path / "broker-a/store"
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        store.append_many(
            {"topic": "orders", "body": b"%d" % n, "queue_id": n % 4, "unique_key": f"{n:032X}"}
            for n in range(MESSAGES)
        )
    target, ports = tmp_path / "target/store", {}
    running: list[tuple[RocketMQ, AbstractContextManager[Cluster], Cluster]] = []

    def start_broker() -> Cluster:
        rocketmq = RocketMQ(tmp_path / f"process-{len(running)}")
        context = running_cluster(rocketmq, target, **ports)
        running.append((rocketmq, context, context.__enter__()))
        return running[-1][2]

    cluster = start_broker()
    cluster.topics("orders")
    ports["namePort"] = int(cluster.to.rpartition(":")[2])
    ports["brokerPort"] = cluster.port
    command = [*command_line(), "replay", str(root), "-t", "orders", "--to", cluster.to, "--apply"]
    command += ["--classpath", cluster.client, "--journal", str(tmp_path / "journal")]
    command += ["--tries", "30", "--rate", "400/s"]
    variables = environment(**QUICK_JAVA)
    for number in range(KILLS):
        said = tmp_path / "said"
        with said.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
        before, deadline = cluster.stored("orders"), time.monotonic() + 90
        while cluster.stored("orders") == before:
            text = f"seed {SEED}, kill {number}: {said.read_text()}"
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
        time.sleep(chance.random() * 0.4)
        match EACH[number % len(EACH)]:
            case "command":
                process.kill()
            case "client":
                for child in children(process.pid):
                    os.kill(child, 9)
            case "broker":
                running[-1][0].kill()
                cluster = start_broker()
                process.kill()
        process.wait(timeout=90)
    done = subprocess.run([*command, "--rate", "100000/s"], check=False, env=variables)
    assert done.returncode == 0, f"seed {SEED}"
    got = Counter(row["uniqKey"] for row in cluster.messages("orders", count=MESSAGES))
    assert set(got) == {f"{n:032X}" for n in range(MESSAGES)}, f"seed {SEED}"
    repeats = got.total() - MESSAGES
    assert repeats <= KILLS * WINDOW, f"seed {SEED}"
    assert max(got.values()) <= KILLS + 1, f"seed {SEED}"
    running[-1][1].__exit__(None, None, None)
    running[-1][0].close()
