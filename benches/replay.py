"""A replay and RocketMQ's client alone, in turns on one broker, singly and in batches."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import mqstore
from helpers.clusters import client_path, running_cluster
from helpers.java import RocketMQ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="")
    asked = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with mqstore.open(folder / "broker-a/store", "a") as store:
            for begin in range(0, asked.messages, 1000):
                store.append_many(
                    {
                        "topic": "orders",
                        "body": bytes(asked.bytes),
                        "queue_id": n % 8,
                        "tags": "paid",
                        "keys": f"key-{n}",
                        "unique_key": f"{n:032X}",
                    }
                    for n in range(begin, min(begin + 1000, asked.messages))
                )
        # On a machine under load a broker would refuse what waits for 200 ms.
        patient = {"waitTimeMillsInSendQueue": "10000"}
        rocketmq = RocketMQ(folder / "process", version=asked.version, options=("-Xmx1g",))
        with running_cluster(rocketmq, folder / "target/store", brokerConfig=patient) as cluster:
            cluster.topics("alone", "replayed", queues=8)
            for batch in (1, 32):
                rates: dict[str, list[float]] = {"alone": [], "replayed": []}
                for number in range(asked.rounds + 1):
                    given = {"topic": "alone", "count": asked.messages, "bytes": asked.bytes}
                    _, done = rocketmq.call("flood", threads=16, batch=batch, **given)
                    report = mqstore.replay(
                        folder / "broker-a/store",
                        cluster.to,
                        to_topic="replayed",
                        classpath=client_path(asked.version),
                        journal=folder / f"journal-{batch}-{number}",
                        batch=batch,
                        apply=True,
                    )
                    assert report.sent == asked.messages, report
                    assert report.seconds is not None
                    if number:  # the first is for the compilers
                        rates["alone"].append(asked.messages / done["seconds"])
                        rates["replayed"].append(asked.messages / report.seconds)
                best = {name: round(max(each)) for name, each in rates.items()}
                share = round(best["replayed"] / best["alone"], 2)
                print(json.dumps({"batch": batch, **best, "share": share}))
        rocketmq.close()


if __name__ == "__main__":
    main()
