"""RocketMQ's own store against this one, in one run, in turns: `make bench-compare`.

Each kind of work is done by RocketMQ through its jars (one warm process: 300,000 puts before the
first clock starts), by this store from Rust and, where there is a public function, from Python.
Messages are built before the clock starts. A round does every side once, one after the other; the
table gives the median of the rounds, and the ratio of the medians. What this machine can do at most
is measured in the same run.

Before each side that appends or recovers the disk has nothing left to write of the side before, and
some memory was just in use: a virtual machine gives back to its host what lies free, and to get it
again costs ten times as much as to fill it. A host may take more than a GiB at once, so it is less.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import pyarrow as pa
from document import put_section

import mqstore
from helpers.java import PINNED, QUICK, VERSION, RocketMQ

ROOT = Path(__file__).parents[1]

TOPIC = "BenchTopic"
MAPPED = 512 << 20
# So many puts before the clock starts: the first files are there, and some of their pages. The same
# in race.rs and Race.java.
BEFORE = 5000
# So much memory was just in use before a side begins.
WARM_MEMORY = 768 << 20
# Approximate bytes in the log of a message of 1 KiB with a tag and two keys.
RECORD = 1200
# The export is for `warmMapedFileEnable`: RocketMQ locks the file it warms.
EXPORTS = "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED"
JAVA = ("-Xmx4g", "-Xms4g", "-XX:MaxDirectMemorySize=2g", "-XX:+UseG1GC", EXPORTS)
STORE = {"mappedFileSizeCommitLog": MAPPED, "messageIndexEnable": True}
Config = dict[str, bool | int]
OURS: Config = {"mapped_file_size_commit_log": MAPPED}
WARM: Config = {**OURS, "warm_maped_file_enable": True}


def scattered(number: int) -> int:
    """Looks random; the same in race.rs and Race.java."""
    return number * 0x9E3779B97F4A7C15 % 2**64


def key(number: int) -> str:
    """The key of a message: an order's id, which is random."""
    return f"order-{scattered(number):016x}"


def unique_key(number: int, *, random_keys: bool) -> str:
    """Counts up, as RocketMQ's client makes it, or is random too."""
    if random_keys:
        return f"{scattered(~number):016X}{scattered(number + 1):016X}"
    return f"7F0000010000{number:020}"


class Race:
    """One run: where it happens, and what was measured."""

    def __init__(
        self, folder: Path, scale: float, *, used_memory: bool = True, optimized: bool = True
    ) -> None:
        self.used_memory = used_memory
        self.folder = folder
        self.scale = scale
        self.race = rust_program(optimized=optimized)
        options = JAVA if optimized else (*QUICK, EXPORTS)
        self.java = RocketMQ(folder / "java", timeout_s=600, options=options)
        self.number = 0
        self.times: dict[str, dict[str, list[float]]] = {}
        self.counts: dict[str, int] = {}

    def count(self, full: int) -> int:
        return max(100, int(full * self.scale))

    def fresh(self) -> Path:
        self.number += 1
        return self.folder / f"store-{self.number}"

    def in_java(self, work: str, store: Path, count: int, **more: object) -> float:
        params = {"storeConfig": {**STORE, **dict(more.pop("config", {}))}}  # type: ignore[call-overload]
        _, done = self.java.call(
            "race", store=str(store), params=params, work=work, count=count, **more
        )
        return float(done["seconds"])

    def in_rust(
        self, work: str, store: Path, count: int, body: int = 1024, threads: int = 1
    ) -> float:
        done = subprocess.run(
            [self.race, work, store, str(count), str(body), str(threads)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return float(done.stdout)

    def settle(self) -> None:
        """Flushes the previous side's data, so that memory is free at once.

        Python's collector does not walk through the messages that were built before the clock.
        """
        os.sync()
        gc.collect()
        gc.freeze()
        if not self.used_memory:
            return
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        with mmap.mmap(-1, self.count(WARM_MEMORY), flags=flags) as memory:
            block = bytes(1 << 20)
            while memory.tell() + len(block) <= len(memory):
                memory.write(block)

    def write(self, size: int) -> Path:
        """A file of so many bytes, on the disk."""
        path, block = self.folder / "written", bytes(1 << 20)
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(block)):
                file.write(block)
            os.fdatasync(file.fileno())
        return path

    def note(self, work: str, side: str, count: int, seconds: float) -> None:
        self.counts[work] = count
        self.times.setdefault(work, {}).setdefault(side, []).append(seconds)
        print(f"  {work:34} {side:26} {count / seconds:14,.0f} /s", file=sys.stderr, flush=True)


def rust_program(*, optimized: bool) -> str:
    """The path of the compiled benches/race.rs."""
    command = ["bench"] if optimized else ["test", "--features", "arrow"]
    built = subprocess.run(
        ["cargo", *command, "--locked", "--no-run", "--bench", "race", "--message-format=json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for line in built.stdout.splitlines():
        made = json.loads(line)
        if made.get("target", {}).get("name") == "race" and made.get("executable"):
            return str(made["executable"])
    raise RuntimeError("cargo built no race")


def appends(race: Race) -> None:
    """One thread, ASYNC_FLUSH, until queues and index are done; with keys of both kinds."""
    for body, full in ((1024, 200_000), (128, 400_000)):
        for random_keys in (False, True):
            append_bursts(race, body, race.count(full), random_keys=random_keys)


def append_bursts(race: Race, body: int, count: int, *, random_keys: bool) -> None:
    work = f"append {body} B" + ", random keys" * random_keys
    for name, config in (
        ("RocketMQ", {}),
        ("RocketMQ, warm files", {"warmMapedFileEnable": True}),
    ):
        store = race.fresh()
        race.settle()
        seconds = race.in_java(
            "append", store, count, bodyBytes=body, config=config, randomKeys=random_keys
        )
        race.note(work, name, count, seconds)
        shutil.rmtree(store)
    for name, how in (("Rust", "append"), ("Rust, warm files", "append-warm")):
        store = race.fresh()
        race.settle()
        how += "-random-keys" * random_keys
        race.note(work, name, count, race.in_rust(how, store, count, body))
        shutil.rmtree(store)
    numbers = range(BEFORE + count)
    keys = [(key(n), unique_key(n, random_keys=random_keys)) for n in numbers]
    for name, append in (
        ("Python append", one_by_one),
        ("Python append_many", many),
        ("Python append_arrow", arrow),
    ):
        for kind, config in (("", OURS), (", warm files", WARM)):
            store = race.fresh()
            race.note(work, f"{name}{kind}", count, append(race, store, config, keys, body))
            shutil.rmtree(store)


Keys = list[tuple[str, str]]


def one_by_one(race: Race, folder: Path, config: Config, keys: Keys, body_bytes: int) -> float:
    body = os.urandom(body_bytes)
    rows = [(n & 7, *both) for n, both in enumerate(keys)]
    race.settle()
    with mqstore.open(folder, "a", config=config) as store:
        append = store.append

        def put(rows: list[tuple[int, str, str]]) -> None:
            for queue_id, key, unique_key in rows:
                append(TOPIC, body, queue_id=queue_id, tags="paid", keys=key, unique_key=unique_key)
            store.wait_dispatched()

        put(rows[:BEFORE])
        timed = rows[BEFORE:]
        begin = time.perf_counter()
        put(timed)
        return time.perf_counter() - begin


def many(race: Race, folder: Path, config: Config, keys: Keys, body_bytes: int) -> float:
    body = os.urandom(body_bytes)
    messages = [
        mqstore.Message(
            TOPIC, body, queue_id=n & 7, tags="paid", keys=one, unique_key=unique
        )
        for n, (one, unique) in enumerate(keys)
    ]  # fmt: skip
    race.settle()
    with mqstore.open(folder, "a", config=config) as store:

        def put(messages: list[mqstore.Message]) -> None:
            for start in range(0, len(messages), 1024):
                store.append_many(messages[start : start + 1024])
            store.wait_dispatched()

        put(messages[:BEFORE])
        timed = messages[BEFORE:]
        begin = time.perf_counter()
        put(timed)
        return time.perf_counter() - begin


def arrow(race: Race, folder: Path, config: Config, keys: Keys, body_bytes: int) -> float:
    import pyarrow as pa

    body = os.urandom(body_bytes)

    def table(numbers: range) -> pa.Table:
        columns = {
            "topic": pa.array([TOPIC] * len(numbers)),
            "body": pa.array([body] * len(numbers)),
            "queue_id": pa.array([n & 7 for n in numbers], pa.int32()),
            "tags": pa.array(["paid"] * len(numbers)),
            "keys": pa.array([[keys[n][0]] for n in numbers]),
            "unique_key": pa.array([keys[n][1] for n in numbers]),
        }
        return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=4096))

    first, timed = table(range(BEFORE)), table(range(BEFORE, len(keys)))
    race.settle()
    with mqstore.open(folder, "a", config=config) as store:
        store.append_arrow(first)
        store.wait_dispatched()
        begin = time.perf_counter()
        store.append_arrow(timed)
        store.wait_dispatched()
        return time.perf_counter() - begin


def sustained(race: Race) -> None:
    """4 GiB with the default flush settings: eight files, at the speed of the disk in the end.

    What the disk takes is measured with as many bytes. Right before each side as many were written
    and thrown away, so that each has the same memory, whatever the side before left of it.
    """
    count = race.count(3_500_000)
    work = "append 1024 B, 4 GiB"
    size = count * RECORD
    for name, config in (
        ("RocketMQ", {}),
        ("RocketMQ, warm files", {"warmMapedFileEnable": True}),
    ):
        store = race.fresh()
        race.write(size).unlink()
        race.settle()
        seconds = race.in_java(
            "append", store, count, bodyBytes=1024, distinct=200_000, config=config
        )
        race.note(work, name, count, seconds)
        shutil.rmtree(store)
    store = race.fresh()
    race.write(size).unlink()
    race.settle()
    race.note(work, "Rust", count, race.in_rust("append-long", store, count))
    shutil.rmtree(store)
    race.write(size).unlink()
    race.settle()
    begin = time.perf_counter()
    written = race.write(size)
    race.note(work, "limit: as many bytes written and flushed", count, time.perf_counter() - begin)
    written.unlink()


def flushes(race: Race) -> None:
    """SYNC_FLUSH, one thread and 64."""
    config = {"flushDiskType": "SYNC_FLUSH"}
    for threads, full in ((1, 3_000), (64, 30_000)):
        count = race.count(full)
        work = f"append 1024 B, SYNC_FLUSH, {threads} thread{'s' if threads > 1 else ''}"
        store = race.fresh()
        race.settle()
        seconds = race.in_java(
            "append", store, count, bodyBytes=1024, threads=threads, config=config
        )
        race.note(work, "RocketMQ", count, seconds)
        shutil.rmtree(store)
        store = race.fresh()
        race.settle()
        race.note(work, "Rust", count, race.in_rust("append-sync", store, count, 1024, threads))
        shutil.rmtree(store)


def index(race: Race) -> None:
    """Keys into one index file of the default size."""
    import pyarrow as pa

    count = race.count(1_000_000)
    store = race.fresh()
    race.note("index put", "RocketMQ", count, race.in_java("index-put", store, count))
    for name, work in (
        ("Rust, the store's index", "index-put-lagging"),
        ("Rust, IndexFile::put_key", "index-put"),
        ("Rust, IndexFile::put_many", "index-put-many"),
    ):
        race.note("index put", name, count, race.in_rust(work, race.fresh(), count))
    dice = random.Random(7)
    keys = [f"{TOPIC}#order-{dice.randrange(-(2**31), 2**31)}" for _ in range(BEFORE + count)]
    offsets = [n * 1024 for n in range(len(keys))]
    times = [1_700_000_000_000 + n for n in range(len(keys))]
    arrow = pa.array(keys), pa.array(offsets), pa.array(times)
    for name, columns in (("list[str]", (keys, offsets, times)), ("Arrow", arrow)):
        path = store / "20231001000000001"
        with mqstore.IndexFile(path, "a") as file:
            file.put_many(*(column[:BEFORE] for column in columns))
            rest = [column[BEFORE:] for column in columns]
            begin = time.perf_counter()
            assert file.put_many(*rest) == count
            race.note("index put", f"Python put_many, {name}", count, time.perf_counter() - begin)
        path.unlink()
    shutil.rmtree(store)


def reads(race: Race, store: Path, count: int) -> None:
    """Queries by key, scans, decoding and recovery of one store that RocketMQ wrote."""
    queries = min(count, race.count(200_000))
    seconds = race.in_java("key-query", store, queries, of=count)
    race.note("key query", "RocketMQ", queries, seconds)
    seconds = race.in_rust("key-query", store, queries)
    race.note("key query", "Rust query_offsets", queries, seconds)
    race.note("key query", "Python select_many, Arrow", queries, select_many(store, queries, count))
    race.note("scan with CRC", "RocketMQ", count, race.in_java("scan", store, count))
    race.note("scan with CRC", "Rust", count, race.in_rust("scan", store, count))
    bare = race.in_rust("bare-read", store, count)
    race.note("scan with CRC", "limit: read and CRC alone", count, bare)
    race.note("decode", "RocketMQ, objects", count, race.in_java("decode", store, count))
    with mqstore.open(store) as opened:
        for name, columns, views in (
            ("scan_arrow, every column", None, False),
            ("scan_arrow, every column, views", None, True),
            ("scan_arrow, three columns", ["topic", "queue_offset", "store_timestamp"], False),
        ):
            scan = opened.scan_arrow(columns=columns)
            begin = time.perf_counter()
            rows = sum(batch.num_rows for batch in batches(scan, views=views))
            race.note("decode", name, count, time.perf_counter() - begin)
            assert rows == count
        begin = time.perf_counter()
        rows = sum(1 for message in opened.scan() if message.body)
        race.note("decode", "Python scan()", count, time.perf_counter() - begin)
        assert rows == count
    recoveries(race, store, count)


def recoveries(race: Race, store: Path, count: int) -> None:
    """Queues and index are lost; there is no checkpoint, or one that says that all was flushed.

    That is what our side leaves when it has recovered the store and closed it.
    """
    for work, has_checkpoint in (
        ("recover, log alone", False),
        ("recover, log and checkpoint", True),
    ):
        checkpoint = (store / "checkpoint").read_bytes() if has_checkpoint else None
        for side in ("RocketMQ", "Rust"):
            crashed(store, checkpoint)
            race.settle()
            if side == "Rust":
                seconds = race.in_rust("recover", store, count)
            else:
                seconds = race.in_java("recover", store, count)
            race.note(work, side, count, seconds)


def select_many(store: Path, queries: int, count: int) -> float:
    """Arrow strings in, Arrow lists out: the index of a store in one file."""
    dice = random.Random(7)
    keys = pa.array([f"{TOPIC}#{key(dice.randrange(count))}" for _ in range(queries)])
    (path,) = (store / "index").iterdir()
    with mqstore.IndexFile(path) as file:
        begin = time.perf_counter()
        offsets = pa.array(file.select_many(keys))
        seconds = time.perf_counter() - begin
        assert len(offsets.flatten()) >= queries
        return seconds


def batches(scan: mqstore.ArrowScan, *, views: bool) -> pa.RecordBatchReader:
    """A scan's rows; with `views` texts and bodies point to where they were read."""
    return pa.RecordBatchReader.from_stream(scan, schema=view_schema(scan) if views else None)


def view_schema(scan: mqstore.ArrowScan) -> pa.Schema:
    """The scan's columns, those of texts and bytes as views."""
    views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
    return pa.schema([(field.name, views.get(field.type, field.type)) for field in pa.schema(scan)])


def crashed(store: Path, checkpoint: bytes | None) -> None:
    """Leaves the log, with a checkpoint or without: the process was killed, the rest is lost."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    (store / "checkpoint").unlink(missing_ok=True)
    if checkpoint:
        (store / "checkpoint").write_bytes(checkpoint)
    (store / "abort").write_bytes(b"1")


def limits(race: Race) -> None:
    """Limits of this machine."""
    block, size = bytearray(256 << 10), 512 << 20
    source = bytes(64 << 20)
    begin = time.perf_counter()
    for _ in range(8):
        bytearray(source)
    race.note("limit: copy", "bytes", 8 * len(source), time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(size // len(block)):
        zlib.crc32(block)
    race.note("limit: CRC-32 of 256 KiB blocks (zlib)", "bytes", size, time.perf_counter() - begin)
    path = race.folder / "limit"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 << 20)
        count = race.count(500)
        begin = time.perf_counter()
        for n in range(count):
            os.pwrite(file.fileno(), bytes(RECORD), n * RECORD)
            os.fdatasync(file.fileno())
        race.note("limit: write 1,200 B and fdatasync", "calls", count, time.perf_counter() - begin)
    path.unlink()
    for name, work, unit, full in (
        ("limit: random access in 20 MB", "limit-random", "accesses", 5_000_000),
        ("limit: fresh page of zeros", "limit-page", "pages", 50_000),
    ):
        count = race.count(full)
        race.note(name, unit, count, race.in_rust(work, race.folder, count))
    count, nothing = race.count(1_000_000), ()
    begin = time.perf_counter()
    for _ in range(count):
        len(nothing)
    race.note("limit: empty Python call", "calls", count, time.perf_counter() - begin)


def table(race: Race, rounds: int) -> str:
    """The result, for people."""
    lines = [
        "| work | side | per second, median | spread | ratio to RocketMQ |",
        "|---|---|---|---|---|",
    ]
    for work, sides in race.times.items():
        rates = {side: [race.counts[work] / t for t in times] for side, times in sides.items()}
        javas = [statistics.median(r) for side, r in rates.items() if side.startswith("RocketMQ")]
        for side, rate in rates.items():
            median = statistics.median(rate)
            ours = javas and not side.startswith("RocketMQ")
            ratio = f"{median / max(javas):.1f}" if ours else ""
            spread = f"{min(rate):,.0f}-{max(rate):,.0f}"
            lines.append(f"| {work} | {side} | {median:,.0f} | {spread} | {ratio} |")
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return (
        f"{rounds} rounds at scale {race.scale:g}, sides in turns; {machine}; memory "
        f"{'just used' if race.used_memory else 'fresh'}; RocketMQ {VERSION or PINNED} on Java, "
        f"the better of its two settings counts.\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    """Runs the race."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="0.01 for a trial")
    parser.add_argument(
        "--fresh-memory", action="store_true", help="use no memory before a side begins"
    )
    parser.add_argument("--document", action="store_true", help="write docs/performance/race.md")
    parser.add_argument(
        "--smoke", action="store_true", help="everything once, small and not optimized"
    )
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.scale = 1, 0.001
    with tempfile.TemporaryDirectory(prefix="mqstore-race-") as name:
        race = Race(
            Path(name),
            options.scale,
            used_memory=not options.fresh_memory,
            optimized=not options.smoke,
        )
        try:
            warm = race.fresh()
            race.in_java("append", warm, race.count(300_000), bodyBytes=1024)
            shutil.rmtree(warm)
            for number in range(options.rounds):
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
                limits(race)
                appends(race)
                sustained(race)
                flushes(race)
                index(race)
                store, count = race.fresh(), race.count(400_000)
                race.in_java("append", store, count, bodyBytes=1024)
                reads(race, store, BEFORE + count)
                shutil.rmtree(store)
        finally:
            race.java.close()
    text = table(race, options.rounds)
    print(text)
    if options.document:
        name = "race" + f"-{VERSION}" * bool(VERSION) + "-fresh-memory" * options.fresh_memory
        figures = {"rounds": options.rounds, "counts": race.counts, "seconds": race.times}
        kept = ROOT / "docs" / "performance" / f"{name}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        put_section(ROOT / "docs" / "performance" / "race.md", name, text)


if __name__ == "__main__":
    main()
