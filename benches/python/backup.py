"""A backup of a store in the page cache, beside restic's of the same folder: one run, in turns.

    python benches/python/backup.py [--mebibytes 512] [--rounds 5]

Prints medians in seconds: of the first backup, and of one after a hundredth was appended. restic
compresses nothing, as mqstore by default; it encrypts, which cannot be turned off.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import mqstore

BODY_BYTES = 1024
# Small files, so that few of their bytes are holes, which restic reads.
CONFIG = {
    "mapped_file_size_commit_log": 64 << 20,
    "mapped_file_size_consume_queue": 1_000_000,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
}


def append(store: Path, count: int) -> None:
    bodies = os.urandom(BODY_BYTES + count)
    with mqstore.open(store, "a", config=CONFIG) as opened:
        opened.append_many(
            mqstore.Message("orders", bodies[n : n + BODY_BYTES], queue_id=n % 4, keys=f"k{n}")
            for n in range(count)
        )


def restic(target: Path, *arguments: str | Path) -> None:
    environment = os.environ | {"RESTIC_PASSWORD": "x", "RESTIC_CACHE_DIR": f"{target}-cache"}
    subprocess.run(["restic", "--repo", target, "--quiet", *arguments], env=environment, check=True)


def seconds_of(side: str, store: Path, target: Path) -> float:
    if side == "restic" and not target.exists():
        restic(target, "init")
    begin = time.perf_counter()
    if side == "mqstore":
        mqstore.sync(store, target)
    else:
        restic(target, "backup", "--compression", "off", store)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares backups.")
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    count = given.mebibytes * 1024
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            store = Path(folder, "store")
            for work, more in (("first", count), ("a hundredth more", count // 100)):
                append(store, more)
                for file in filter(Path.is_file, store.rglob("*")):
                    file.read_bytes()
                for side in ("mqstore", "restic"):
                    taken = seconds_of(side, store, Path(folder, side))
                    times.setdefault((work, side), []).append(taken)
    print("| backup | mqstore, s | restic, s |\n|---|---:|---:|")
    for work in ("first", "a hundredth more"):
        ours, others = (statistics.median(times[work, side]) for side in ("mqstore", "restic"))
        print(f"| {work} | {ours:.2f} | {others:.2f} |")


if __name__ == "__main__":
    main()
