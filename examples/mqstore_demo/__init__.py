"""The main job on a store of its own: write, be killed, recover, query, verify.

A child process writes and is killed by SIGKILL in the middle of it; this process then opens what is
left, and holds every answer against what must have been written: message ``n`` is the same on every
run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import mqstore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["DemoError", "Step", "run_own_store", "run_rocketmq_store"]

# Small files, so that 200,000 messages fill several of each kind.
SETTINGS: Final[Mapping[str, object]] = {
    "mapped_file_size_commit_log": 16 << 20,
    "mapped_file_size_consume_queue": 20 * 20_000,
    "max_hash_slot_num": 62_500,
    "max_index_num": 250_000,
}
# Topics and how many queues each has.
_TOPICS: Final = (("orders", 4), ("payments", 4), ("shipments", 2), ("audit", 1))
TAGS: Final = ("created", "paid", "refunded")
CHUNK: Final = 1_000
SEED: Final = 20_261_121


class DemoError(Exception):
    """An answer is not what was written."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done.

    Attributes:
        name: Name of the step.
        count: Number of items.
        unit: Name of the items.
        seconds: Duration.
        size: Bytes processed; 0 if irrelevant.
        detail: Further text.
    """

    name: str
    count: int
    unit: str
    seconds: float
    size: int = 0
    detail: str = ""


def message(number: int) -> mqstore.Message:
    """The demo's message of a number: topic, queue, tags, keys and body follow from it."""
    # Knuth's multiplicative hash spreads neighbours; the number itself chooses nothing.
    mixed = number * 2_654_435_761 % 2**32
    topic, queues = _TOPICS[mixed % len(_TOPICS)]
    customer = mixed // 7 % 5_000
    body = b'{"number":%d,"customer":%d,"amount":%d,"note":"%b"}' % (
        number,
        customer,
        mixed // 11 % 100_000,
        b"x" * (40 + mixed // 13 % 400),
    )
    return mqstore.Message(
        topic,
        body,
        queue_id=mixed // 17 % queues,
        tags=TAGS[mixed // 19 % len(TAGS)],
        keys=(f"order-{number // 3}", f"customer-{customer}"),
        unique_key=f"{number:032X}",
        born_timestamp_ms=1_700_000_000_000 + number,
    )


def write_until_killed(folder: str, count: int) -> NoReturn:
    """Runs in the child: writes messages 0, 1, ... without end.

    Of each chunk of the first `count` it says on standard output how many messages are stored now,
    where the log ends, and how many seconds the store has taken so far. Then it goes on one by one
    and says nothing, so that the kill finds it at work.
    """
    store = mqstore.open(folder, "a", config=SETTINGS)
    stored, seconds = 0, 0.0
    while stored < count:
        chunk = [message(stored + i) for i in range(min(CHUNK, count - stored))]
        began = time.monotonic()
        results = store.append_many(chunk)
        seconds += time.monotonic() - began
        stored += len(results)
        end = results[-1].physical_offset + results[-1].store_size
        sys.stdout.write(f"{stored} {end} {seconds:.6f}\n")
        sys.stdout.flush()
    while True:
        store.append_many([message(stored)])
        stored += 1


def run_own_store(
    folder: Path,
    count: int,
    done: Callable[[Step], None],
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Writes a store with a process that is killed, and does the main job on what it leaves.

    Args:
        folder: An empty folder.
        count: How many messages have to be stored before the kill.
        done: Told each step when it is done.
        progress: Told ``(done, total)`` while messages are written.

    Raises:
        DemoError: An answer is not what was written.
    """
    stored = _write_and_kill(folder, count, done, progress)
    with _recover(folder, done) as store:
        total = _read_all(store, stored, done)
        _read_queues(store, total, done)
        _seek_times(store, done)
        _query_keys(store, total, done)
    _verify(folder, done)


def _check(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise DemoError(f"{what}: expected {expected}, found {found}")


def _write_and_kill(
    folder: Path,
    count: int,
    done: Callable[[Step], None],
    progress: Callable[[int, int], object] | None,
) -> int:
    """Starts the writer, kills it once `count` messages are stored; how many it said were."""
    stored, size, seconds = 0, 0, 0.0
    with subprocess.Popen(  # noqa: S603 - this interpreter, and a folder
        [sys.executable, __file__, os.fspath(folder), str(count)], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None  # noqa: S101 - asked for above
            for line in child.stdout:
                words = line.split()
                stored, size, seconds = int(words[0]), int(words[1]), float(words[2])
                if progress is not None:
                    progress(stored, count)
                if stored >= count:
                    break
        finally:
            child.kill()
    code_of_end = child.returncode
    if stored < count:
        raise DemoError(f"the writer ended by itself after {stored} messages, code {code_of_end}")
    _check("the writer was killed", -signal.SIGKILL, code_of_end)
    detail = f"{len(list((folder / 'commitlog').iterdir()))} log files, then SIGKILL"
    done(Step("write", stored, "messages", seconds, size, detail))
    return stored


def _recover(folder: Path, done: Callable[[Step], None]) -> mqstore.Store:
    """Opens what is left, by what the files tell: no setting is given."""
    if not (folder / "abort").exists():
        raise DemoError("the kill left no abort file")
    began = time.monotonic()
    store = mqstore.open(folder, "r+")
    store.wait_dispatched()
    took = time.monotonic() - began
    report = store.recovery
    if report is None:
        raise DemoError("no recovery was reported")
    _check("recovery's mode", "crash", report.mode)
    size = report.end_physical_offset - store.min_physical_offset
    detail = f"{report.dispatched} messages dispatched again"
    if report.cut:
        detail += f", {report.cut} bytes of a torn tail cut"
    count = sum(queue.max_offset - queue.min_offset for queue in store.queues())
    done(Step("recover", count, "messages", took, size, detail))
    return store


def _read_all(store: mqstore.Store, stored: int, done: Callable[[Step], None]) -> int:
    """Reads the whole log: every message that was promised, each with the fields it was given."""
    began = time.monotonic()
    total = 0
    for found in store.scan():
        if found.unique_key != f"{total:032X}":
            raise DemoError(f"message {total}: found unique key {found.unique_key}")
        total += 1
    took = time.monotonic() - began
    if total < stored:
        raise DemoError(f"{stored} messages were stored, and {total} are there")
    chosen = random.Random(SEED)  # noqa: S311 - reproducible, and no secret
    for number in sorted(chosen.sample(range(total), min(total, 1_000))):
        expected = message(number)
        hits = store.query(expected.topic, f"{number:032X}", max_messages=2)
        _check(f"messages of unique key {number}", 1, len(hits))
        for field in ("topic", "queue_id", "tags", "keys", "body", "born_timestamp_ms"):
            _check(f"{field} of {number}", getattr(expected, field), getattr(hits[0], field))
    detail = f"all {stored} that were acknowledged, and {total - stored} in flight"
    done(Step("read the log", total, "messages", took, store.max_physical_offset, detail))
    return total


def _read_queues(store: mqstore.Store, total: int, done: Callable[[Step], None]) -> None:
    """Path 1: by queue offset, with a tag expression."""
    began = time.monotonic()
    read = size = 0
    for queue in store.queues():
        for tags in TAGS:
            for found in _queue(store, queue, tags):
                if found.tags != tags:
                    raise DemoError(f"asked for {tags}, found {found.tags}")
                read += 1
                size += found.store_size
    took = time.monotonic() - began
    _check("messages of all queues and tags", total, read)
    queues = len(store.queues())
    done(Step("by queue and tag", read, "messages", took, size, f"{queues} queues, each tag"))


def _queue(
    store: mqstore.Store, queue: mqstore.QueueInfo, tags: str
) -> Iterator[mqstore.StoredMessage]:
    at = queue.min_offset
    while at < queue.max_offset:
        result = store.read(queue.topic, queue.queue_id, at, max_messages=256, tags=tags)
        yield from result.messages
        at = result.next_queue_offset


def _seek_times(store: mqstore.Store, done: Callable[[Step], None]) -> None:
    """Path 2: by store time; the neighbours of each answer must lie on either side of it."""
    chosen = random.Random(SEED)  # noqa: S311 - reproducible, and no secret
    seconds, count = 0.0, 0
    for queue in store.queues():
        first, last = queue.first_store_timestamp_ms, queue.last_store_timestamp_ms
        if first is None or last is None:
            continue
        for _ in range(100):
            wanted = chosen.randint(first, last)
            began = time.monotonic()
            at = store.offset_at(queue.topic, queue.queue_id, wanted)
            seconds += time.monotonic() - began
            count += 1
            if _time(store, queue, at) < wanted or (
                at > queue.min_offset and _time(store, queue, at - 1) >= wanted
            ):
                raise DemoError(f"offset {at} of {queue.topic} is not the first at {wanted}")
    done(Step("by time", count, "lookups", seconds))


def _time(store: mqstore.Store, queue: mqstore.QueueInfo, offset: int) -> int:
    result = store.read(queue.topic, queue.queue_id, offset, max_messages=1)
    return result.messages[0].store_timestamp_ms


def _query_keys(store: mqstore.Store, total: int, done: Callable[[Step], None]) -> None:
    """Path 3: by key, through the index; three numbers share an order."""
    chosen = random.Random(SEED)  # noqa: S311 - reproducible, and no secret
    seconds, count, hits = 0.0, 0, 0
    for order in sorted(chosen.sample(range(total // 3), min(total // 3, 1_000))):
        numbers = range(3 * order, 3 * order + 3)
        for topic, _queues in _TOPICS:
            expected = [f"{n:032X}" for n in reversed(numbers) if message(n).topic == topic]
            began = time.monotonic()
            result = store.query(topic, f"order-{order}")
            seconds += time.monotonic() - began
            _check(f"order {order} of {topic}", expected, [found.unique_key for found in result])
            count += 1
            hits += len(result)
    files = len(list(Path(store.path, "index").iterdir()))
    detail = f"{hits} messages found, {files} index files"
    done(Step("by key", count, "lookups", seconds, detail=detail))


def _verify(folder: Path, done: Callable[[Step], None]) -> None:
    """Holds log, queues, index and checkpoint against each other."""
    began = time.monotonic()
    report = mqstore.verify(folder)
    took = time.monotonic() - began
    if not report.ok:
        raise DemoError(f"verify: {report.findings[0].message}")
    counts = report.counts
    detail = f"{counts['queue_entries']} queue and {counts['index_entries']} index entries checked"
    done(Step("verify", counts["messages"], "messages", took, counts["log_bytes"], detail))


@dataclass(frozen=True, slots=True)
class RocketmqAnswers:
    """Reads a store that RocketMQ wrote.

    Attributes:
        topics: Its topics, and how many messages each has.
        queue: Topic and queue read, and the messages there.
        time_ms: The time looked up in that queue.
        time_offset: The queue offset at it.
        key: The key asked for, and its topic.
        found: The messages of the key.
    """

    topics: dict[str, int]
    queue: tuple[str, int]
    messages: tuple[mqstore.StoredMessage, ...]
    time_ms: int
    time_offset: int
    key: tuple[str, str]
    found: tuple[mqstore.StoredMessage, ...]


def run_rocketmq_store(archive: Path) -> RocketmqAnswers:
    """Opens a store that RocketMQ wrote and puts one question of each kind to it.

    Args:
        archive: A ``store.tar.gz`` with the folder ``store``; ``params.json`` beside it tells the
            settings that RocketMQ had.

    Raises:
        DemoError: The store has no message with a key.
    """
    params = archive.with_name("params.json")
    settings = json.loads(params.read_text())["storeConfig"] if params.exists() else None
    with tempfile.TemporaryDirectory(prefix="mqstore-demo-") as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        with mqstore.open(Path(folder, "store"), config=settings) as store:
            return _ask(store)


def _ask(store: mqstore.Store) -> RocketmqAnswers:
    topics: dict[str, int] = {}
    for queue in store.queues():
        topics[queue.topic] = topics.get(queue.topic, 0) + queue.max_offset - queue.min_offset
    keyed = next((found for found in store.scan() if found.keys), None)
    if keyed is None:
        raise DemoError(f"{store.path}: no message with a key")
    place = keyed.topic, keyed.queue_id
    read = store.read(*place, 0, max_messages=5)
    return RocketmqAnswers(
        topics=topics,
        queue=place,
        messages=read.messages,
        time_ms=keyed.store_timestamp_ms,
        time_offset=store.offset_at(*place, keyed.store_timestamp_ms),
        key=(keyed.topic, keyed.keys[0]),
        found=tuple(store.query(keyed.topic, keyed.keys[0])),
    )


if __name__ == "__main__":
    write_until_killed(sys.argv[1], int(sys.argv[2]))
