"""A live cluster to send to: what it is asked, and what its consumers get."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.java import VERSION, RocketMQ, RocketMQError, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Short lives: the second compiler would cost more than it gives.
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"}


def client_path(version: str = VERSION) -> str:
    """The class path of RocketMQ's client."""
    return build(version).partition(os.pathsep)[2]


def jars(folder: Path, version: str, *names: str) -> str:
    """The class path of parts of a RocketMQ that the harness is not compiled for."""
    parts = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for name in names
    )
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>mqstore</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{parts}</dependencies></project>"
    )
    output = folder / "classpath.txt"
    maven = ["mvn", "--batch-mode", "--quiet", "--file", str(folder / "pom.xml")]
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    subprocess.run([*maven, goal, f"-Dmdep.outputFile={output}"], check=True)
    return output.read_text().strip()


@dataclass
class Cluster:
    """A name server and a broker in a process of their own."""

    rocketmq: RocketMQ
    store: Path
    to: str
    client: str
    port: int

    def topics(self, *names: str, queues: int = 4) -> None:
        """Makes topics."""
        self.rocketmq.produce(
            [{"op": "create-topic", "topic": name, "queues": queues} for name in names]
        )

    def configure(self, **config: str) -> None:
        """Changes the configuration of the running broker."""
        self.rocketmq.produce([{"op": "set-broker", "config": config}])

    def messages(self, *topics: str, count: int = 0) -> list[dict[str, Any]]:
        """All messages of topics, as a consumer sees them, once there are so many."""
        deadline = time.monotonic() + 30
        while True:
            try:
                found = self.rocketmq.consume(topics, "all-of-them")
            except RocketMQError:
                # The client cannot be given no queue at all, and a broker may have just begun.
                if time.monotonic() > deadline:
                    raise
                found = []
            # A broker adds a message to its queue a little later.
            if len(found) >= count or time.monotonic() > deadline:
                return found

    def stored(self, topic: str) -> int:
        """How many messages the broker's folder has of a topic."""
        with mqstore.open(self.store) as store:
            return sum(queue.max_offset for queue in store.queues(topic))


@contextmanager
def running_cluster(
    rocketmq: RocketMQ, store: Path, *, client: str = "", **params: Any
) -> Iterator[Cluster]:
    """Starts a broker on a store in a running process, and stops it."""
    settings = {"storeConfig": {"mappedFileSizeCommitLog": 64 << 20}, **params}
    _, done = rocketmq.call("start-broker", store=str(store), params=settings)
    port = int(done["broker"].rpartition(":")[2])
    yield Cluster(rocketmq, store, done["nameServer"], client or client_path(), port)
    if rocketmq.is_alive:
        rocketmq.stop_broker()
