"""Clients and clusters of other releases: a replay sends with each client to each cluster.

``MQSTORE_ROCKETMQ_MATRIX`` takes all of them. Maven Central has clients of 4.9 up to 4.9.8, and
brokers up to 4.9.7.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.clusters import QUICK_JAVA, client_path, jars, running_cluster
from helpers.java import RocketMQ
from helpers.running import environment
from mqstore.replaying.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mqstore.replaying.sender import Failed, Sent

MATRIX = "MQSTORE_ROCKETMQ_MATRIX" in os.environ
CLIENTS = ("4.9.8", "5.3.3", "5.5.0") if MATRIX else ("5.5.0",)
CLUSTERS = ("4.9.7", "5.3.3", "5.5.0") if MATRIX else ("5.5.0",)
COUNT = 200
# A broker of 4.9 on a newer Java.
OPENED = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED")


@pytest.mark.usefixtures("_java")
@pytest.mark.parametrize("release", CLUSTERS)
def test_each_client_sends_to_each_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA["JAVA_TOOL_OPTIONS"])
    root, target = tmp_path / "broker-a/store", tmp_path / "target/store"
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        for number in range(COUNT):
            body, key = b"body %d" % number, f"{number:032X}"
            store.append("orders", body, queue_id=number % 4, tags="t", unique_key=key)
    names = {client: "of-" + client.replace(".", "-") for client in CLIENTS}
    table = {name: {"topicName": name, "perm": 6} for name in names.values()}
    for row in table.values():
        row |= {"readQueueNums": 4, "writeQueueNums": 4}
    (target / "config").mkdir(parents=True)
    (target / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    answers: list[Sent | Failed] = []
    take = Run._take
    monkeypatch.setattr(Run, "_take", lambda run, one: (answers.append(one), take(run, one)))
    start = old_cluster if release.startswith("4.") else new_cluster
    with start(tmp_path, target, release) as to:
        for client in CLIENTS:
            old = client.startswith("4.")
            path = jars(tmp_path / client, client, "client", "acl") if old else client_path(client)
            for batch in (1, 32):
                report = mqstore.replay(
                    root,
                    to,
                    to_topic=names[client],
                    classpath=path,
                    batch=batch,
                    journal=tmp_path / f"{client}-{batch}",
                    apply=True,
                )
                assert (report.sent, report.failed) == (COUNT, 0), report
                # 50 messages of each queue in two requests.
                assert len(answers) == (COUNT if batch == 1 else 8)
                answers.clear()
            plan = mqstore.replay(
                root,
                to,
                to_topic=names[client],
                classpath=path,
                journal=tmp_path / f"plan-{client}",
            )
            assert plan.topics[0].queues == 4, plan
    with mqstore.open(root) as store, mqstore.open(target) as there:
        for client in CLIENTS:
            # On a busy machine an answer may come too late, and the message twice.
            got = {
                (one.body, one.unique_key, one.queue_id)
                for one in there.scan(topics=[names[client]])
            }
            sent = {(one.body, one.unique_key, one.queue_id) for one in store.scan()}
            assert got == sent, client


@contextmanager
def new_cluster(folder: Path, target: Path, release: str) -> Iterator[str]:
    with (
        RocketMQ(folder / "process", version=release) as rocketmq,
        running_cluster(rocketmq, target) as cluster,
    ):
        yield cluster.to


@contextmanager
def old_cluster(folder: Path, target: Path, release: str) -> Iterator[str]:
    """Name server and broker as an installation starts them."""
    home, running = folder / "home", []
    (home / "conf").mkdir(parents=True)
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    to = f"127.0.0.1:{ports[0]}"
    broker = {"brokerIP1": "127.0.0.1", "namesrvAddr": to, "storePathRootDir": str(target)}
    broker |= {"storePathCommitLog": str(target / "commitlog"), "haListenPort": "0"}
    broker |= {"mappedFileSizeCommitLog": str(64 << 20)}
    path = jars(folder / "jars", release, "namesrv", "broker")
    options = [f"--add-opens={one}" for one in OPENED]
    variables = environment(**QUICK_JAVA, ROCKETMQ_HOME=str(home))
    try:
        for name, port, settings in (("namesrv", ports[0], {}), ("broker", ports[1], broker)):
            lines = {"listenPort": port, **settings}
            conf = folder / f"{name}.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            (home / f"conf/logback_{name}.xml").write_text("<configuration/>")
            main = f"org.apache.rocketmq.{name}.{name.title()}Startup"
            process = subprocess.Popen(
                ["java", *options, f"-Duser.home={folder}", "-cp", path, main, "-c", str(conf)],
                env=variables,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            assert process.stdout is not None
            assert any("boot success" in line for line in process.stdout), name
        yield to
    finally:
        for process in running:
            process.kill()
            process.communicate()
