"""The same work with mqstore, other embedded queues and SQLite alone: one run, in turns.

    pip install persist-queue litequeue diskcache huey
    python benches/python/side_by_side.py [--messages 100000] [--durable 100000]

Prints a table of rates and ratios. Bodies have 200 bytes. *Durable*: each message is on the disk
when the call returns. *Acknowledged*: a message that was taken and not acknowledged comes again
after a crash.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import diskcache
import litequeue
import persistqueue
from huey.storage import SqliteStorage

import mqstore

BODY = b"x" * 200
TEXT = BODY.decode()  # litequeue stores text
Work = Callable[[Path, int], float]
SIDES = ("mqstore", "persist-queue", "litequeue", "diskcache", "huey", "SQLite")


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def store_in(folder: Path, *, durable: bool) -> mqstore.Store:
    mode = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
    return mqstore.open(folder, "a", config={"flush_disk_type": mode, "delivery": True})


def cache_in(folder: Path, *, durable: bool) -> diskcache.Deque:
    return diskcache.Deque.fromcache(
        diskcache.Cache(str(folder), eviction_policy="none", sqlite_synchronous=2 if durable else 1)
    )


def lite_in(folder: Path, *, durable: bool) -> litequeue.LiteQueue:
    folder.mkdir()
    queue = litequeue.LiteQueue(folder / "queue.db")
    if durable:
        queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


def acking_in(folder: Path, *, durable: bool) -> persistqueue.SQLiteAckQueue:
    queue = persistqueue.SQLiteAckQueue(str(folder), auto_commit=True)
    for connection in (queue._putter, queue._getter):  # noqa: SLF001 - it has no setting for it
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    return queue


def huey_in(folder: Path, *, durable: bool) -> SqliteStorage:
    folder.mkdir()
    return SqliteStorage(filename=str(folder / "queue.db"), fsync=durable)


class Table:
    """A queue of SQLite alone: a row for each message, and whether it was taken."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        folder.mkdir(exist_ok=True)
        self.connection = sqlite3.connect(folder / "queue.db", isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB, taken INTEGER)"
        )
        self.connection.execute(
            "CREATE INDEX IF NOT EXISTS untaken ON queue (id) WHERE taken IS NULL"
        )

    def put(self, body: bytes) -> None:
        self.connection.execute("INSERT INTO queue (body) VALUES (?)", (body,))

    def take(self) -> tuple[int, bytes] | None:
        taken: list[tuple[int, bytes]] = self.connection.execute(
            "UPDATE queue SET taken = 1 WHERE id = (SELECT id FROM queue WHERE taken IS NULL"
            " ORDER BY id LIMIT 1) RETURNING id, body"
        ).fetchall()
        return taken[0] if taken else None

    def ack(self, number: int) -> None:
        self.connection.execute("DELETE FROM queue WHERE id = ?", (number,))


def append_all(put: Callable[..., object], count: int, *arguments: object) -> Callable[[], None]:
    def work() -> None:
        for _ in range(count):
            put(*arguments)

    return work


def append(side: str, folder: Path, count: int, *, durable: bool) -> float:
    if side == "mqstore":
        with store_in(folder, durable=durable) as store:
            return timed(append_all(store.append, count, "work", BODY))
    if side == "persist-queue":
        return timed(append_all(acking_in(folder, durable=durable).put, count, BODY))
    if side == "litequeue":
        return timed(append_all(lite_in(folder, durable=durable).put, count, TEXT))
    if side == "huey":
        return timed(append_all(huey_in(folder, durable=durable).enqueue, count, BODY))
    if side == "SQLite":
        return timed(append_all(Table(folder, durable=durable).put, count, BODY))
    return timed(append_all(cache_in(folder, durable=durable).append, count, BODY))


def consume(side: str, folder: Path, count: int) -> float:
    """Takes each message, and acknowledges it by itself; nothing is forced to the disk."""
    folder.mkdir()
    append(side, folder / "0", count, durable=False)
    done = 0
    if side == "mqstore":
        with store_in(folder / "0", durable=False) as store, store.group("g") as group:

            def work() -> None:
                nonlocal done
                while messages := group.poll("work"):
                    for message in messages:
                        done += group.ack(message)

            seconds = timed(work)
    elif side == "persist-queue":
        queue = acking_in(folder / "0", durable=False)

        def work() -> None:
            nonlocal done
            for _ in range(count):
                queue.ack(queue.get())
                done += 1

        seconds = timed(work)
    elif side == "litequeue":
        lite = litequeue.LiteQueue(folder / "0" / "queue.db")

        def work() -> None:
            nonlocal done
            while (message := lite.pop()) is not None:
                lite.done(message.message_id)
                done += 1

        seconds = timed(work)
    elif side == "huey":
        storage = SqliteStorage(filename=str(folder / "0" / "queue.db"))

        def work() -> None:
            nonlocal done
            while storage.dequeue() is not None:
                done += 1  # it has no acknowledgement: a crash loses what was taken

        seconds = timed(work)
    elif side == "SQLite":
        table = Table(folder / "0", durable=False)

        def work() -> None:
            nonlocal done
            while (taken := table.take()) is not None:
                table.ack(taken[0])
                done += 1

        seconds = timed(work)
    else:
        deque = cache_in(folder / "0", durable=False)

        def work() -> None:
            nonlocal done
            for _ in range(count):
                deque.peekleft()
                deque.popleft()  # it has no acknowledgement: look at it first, then remove it
                done += 1

        seconds = timed(work)
    assert done == count, (side, done)
    return seconds


def works(side: str) -> dict[str, Work]:
    return {
        "append": lambda folder, count: append(side, folder, count, durable=False),
        "append, durable": lambda folder, count: append(side, folder, count, durable=True),
        "consume, acknowledged": lambda folder, count: consume(side, folder, count),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares embedded queues.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--durable", type=int, default=100_000, help="messages of durable appends")
    given = parser.parse_args()
    print(
        f"| work | {' | '.join(SIDES)} | ratio to the fastest other |\n|{'---|' * (len(SIDES) + 2)}"
    )
    for name in works("mqstore"):
        count = given.durable if "durable" in name else given.messages
        rates = []
        for side in SIDES:
            with tempfile.TemporaryDirectory(dir=".") as folder:
                rates.append(count / works(side)[name](Path(folder) / "side", count))
        shown = " | ".join(f"{rate:,.0f}" for rate in rates)
        print(f"| {name} | {shown} | {rates[0] / max(rates[1:]):.1f} |", flush=True)


if __name__ == "__main__":
    main()
