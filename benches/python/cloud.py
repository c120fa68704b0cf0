"""Scans of a store in a bucket beside obstore alone: the same parts, the same number in flight.

Run it by ``python benches/python/cloud.py [MIB]``; it starts SeaweedFS on this machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import mqstore
from helpers.buckets import connect, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from helpers.buckets import Bucket

TURNS = 5
# As a scan reads: a part, and five ahead.
PART, IN_FLIGHT = 8 << 20, 6


def make(folder: Path, length: int) -> None:
    """Writes a closed store of messages of 1 KiB."""
    body = bytes(range(256)) * 4
    config = {"mapped_file_size_commit_log": 64 << 20}
    with mqstore.open(folder, "a", config=config) as store:
        for at in range(0, length, 1 << 20):
            store.append_many(
                [mqstore.Message("orders", body, keys=f"{at}-{n}", tags="a") for n in range(1000)]
            )


def obstore_alone(bucket: Bucket, url: str) -> int:
    """Reads the log's objects in the parts in which a scan reads them."""
    store = connect(bucket.name, bucket.options)
    prefix = url.removeprefix(f"s3://{bucket.name}/") + "/commitlog"
    objects = [meta for page in store.list(prefix) for meta in page]
    parts = [
        (meta["path"], at, min(at + PART, meta["size"]))
        for meta in sorted(objects, key=lambda meta: meta["path"])
        for at in range(0, meta["size"], PART)
    ]
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        read = threads.map(
            lambda part: len(store.get_range(part[0], start=part[1], end=part[2])), parts
        )
        return sum(read)


def main() -> None:
    length = int(sys.argv[1] if len(sys.argv) > 1 else "256") << 20
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as served:
        bench(Path(name), served, length)


def bench(name: Path, served: str, length: int) -> None:
    """Prints the medians of all works, and their speed beside obstore's."""
    with s3_server(Path(served)) as bucket:
        folder = name / "store"
        make(folder, length)
        url = bucket.put(folder, "store")

        def scan(columns: list[str] | None) -> Callable[[], object]:
            def run() -> int:
                with mqstore.open(url, storage_options=bucket.options) as store:
                    return sum(batch.num_rows for batch in store.scan_arrow(columns=columns))

            return run

        def messages() -> int:
            with mqstore.open(url, storage_options=bucket.options) as store:
                return sum(1 for _ in store.scan())

        works: dict[str, Callable[[], object]] = {
            "obstore alone": lambda: obstore_alone(bucket, url),
            "scan": messages,
            "three columns": scan(["topic", "keys", "body"]),
            "all columns": scan(None),
        }
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(TURNS):
            for what, work in works.items():
                began = time.perf_counter()
                work()
                seconds[what].append(time.perf_counter() - began)
        alone = statistics.median(seconds["obstore alone"])
        for what, found in seconds.items():
            middle = statistics.median(found)
            speed = length / middle / (1 << 20)
            print(f"{what:15} {middle:6.2f} s {speed:7.0f} MiB/s {alone / middle:6.0%}")


if __name__ == "__main__":
    main()
