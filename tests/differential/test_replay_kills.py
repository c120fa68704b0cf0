"""A replay whose command, client and broker are killed: nothing is missing, little comes twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.clusters import QUICK_JAVA, Cluster, running_cluster
from helpers.java import RocketMQ
from helpers.running import children, command_line, environment
from mqstore.replaying.run import window_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

KILLS = int(os.environ.get("MQSTORE_REPLAY_KILLS", "4"))
SEED = int(os.environ.get("MQSTORE_SEED", "1"))
SUPPLY = 1_000
WINDOW = window_of(32)
EACH = ("command", "client", "command", "client", "broker")


@pytest.mark.usefixtures("_java")
def test_killed_at_random_moments_nothing_is_missing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    root, messages = tmp_path / "broker-a/store", 0
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
    command += ["--tries", "30", "--json"]
    variables = environment(**QUICK_JAVA)
    kills = 0
    while kills < KILLS:
        # Each run has messages of its own: no earlier one can have sent them all.
        assert messages < 3 * KILLS * SUPPLY, f"seed {SEED}: {kills} runs were killed in time"
        with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
            store.append_many(
                {"topic": "orders", "body": b"%d" % n, "queue_id": n % 4, "unique_key": f"{n:032X}"}
                for n in range(messages, messages + SUPPLY)
            )
        messages += SUPPLY
        said = tmp_path / "said"
        with said.open("w") as output:
            process = subprocess.Popen(
                [*command, "--rate", "400/s"], stdout=output, stderr=output, env=variables
            )
        enough, deadline = cluster.stored("orders") + chance.randint(1, 200), time.monotonic() + 90
        while cluster.stored("orders") < enough and process.poll() is None:
            assert time.monotonic() < deadline, f"seed {SEED}, kill {kills}: {said.read_text()}"
        if process.poll() is not None:
            # It sent everything before a kill could hit it; on a slow machine that happens.
            assert process.returncode == 0, f"seed {SEED}, kill {kills}: {said.read_text()}"
            continue
        match EACH[kills % len(EACH)]:
            case "command":
                process.kill()
            case "client":
                for child in children(process.pid):
                    os.kill(child, 9)
            case "broker":
                running[-1][0].kill()
                cluster = start_broker()
                process.kill()
        kills += process.wait(timeout=90) != 0
    there = len({row["uniqKey"] for row in cluster.messages("orders")})
    done = subprocess.run(command, check=False, env=variables, stdout=subprocess.PIPE)
    assert done.returncode == 0, f"seed {SEED}"
    report = json.loads(done.stdout)
    assert 0 < report["sent"] <= messages - there + WINDOW, f"seed {SEED}"
    assert report["sent_before"] > 0, f"seed {SEED}"
    got = Counter(row["uniqKey"] for row in cluster.messages("orders", count=messages))
    assert set(got) == {f"{n:032X}" for n in range(messages)}, f"seed {SEED}"
    assert got.total() - messages <= KILLS * WINDOW, f"seed {SEED}"
    assert max(got.values()) <= KILLS + 1, f"seed {SEED}"
    running[-1][1].__exit__(None, None, None)
    running[-1][0].close()
