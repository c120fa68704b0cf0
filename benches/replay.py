"""A replay and RocketMQ's client alone, in turns on one broker, singly and in batches.

Each of them is a new Java process of the same settings; its start is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from pathlib import Path

import mqstore
from helpers.clusters import client_path, running_cluster
from helpers.java import RocketMQ
from mqstore.replaying.sender import JAVA_OPTIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--threads", type=int, default=48, help="of the client alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="")
    asked = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    with tempfile.TemporaryDirectory() as name:
        folder, chance = Path(name), random.Random(1)
        with mqstore.open(folder / "broker-a/store", "a") as store:
            for number in range(asked.messages):
                store.append(
                    "orders",
                    chance.randbytes(asked.bytes),
                    queue_id=number % 8,
                    tags="paid",
                    keys=f"key-{number}",
                    unique_key=f"{number:032X}",
                )
        # On a machine under load a broker would refuse what waits for 200 ms.
        patient = {"waitTimeMillsInSendQueue": "10000"}
        broker = RocketMQ(folder / "broker", version=asked.version)
        with running_cluster(broker, folder / "target/store", brokerConfig=patient) as cluster:
            cluster.topics("alone", "replayed", queues=8)

            def alone(batch: int, number: int) -> float:
                options, client = JAVA_OPTIONS, folder / f"client-{batch}-{number}"
                given = {"topic": "alone", "count": asked.messages, "bytes": asked.bytes}
                with RocketMQ(client, version=asked.version, options=options) as process:
                    given |= {"to": cluster.to, "threads": asked.threads, "batch": batch}
                    return process.call("flood", **given)[1]["seconds"]

            def replayed(batch: int, number: int) -> float:
                report = mqstore.replay(
                    folder / "broker-a/store",
                    cluster.to,
                    to_topic="replayed",
                    classpath=client_path(asked.version),
                    journal=folder / f"journal-{batch}-{number}",
                    batch=batch,
                    apply=True,
                )
                assert (report.sent, report.seconds is None) == (asked.messages, False), report
                return report.seconds or 0.0

            for batch in asked.batch:
                # The first round is for the compilers of the broker.
                rounds = [(alone(batch, n), replayed(batch, n)) for n in range(asked.rounds + 1)]
                seconds = map(statistics.median, zip(*rounds[1:], strict=True))
                rates = [round(asked.messages / each) for each in seconds]
                share = round(rates[1] / rates[0], 2)
                row = {"batch": batch, "alone": rates[0], "replayed": rates[1], "share": share}
                print(json.dumps(row))
        broker.close()


if __name__ == "__main__":
    main()
