"""Consumers of one group that are killed; each repeated message is held against a model."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mqstore
from helpers.consumers import Consumers
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.java import RocketMQ

TOPICS = ("t", "u")
BROKER = 0
CONSUMERS = """
import os, random, sys, time, mqstore
path, log, _ = sys.argv[1:]
log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def tell(kind, message):
    place = "%s/%d/%d" % (message.topic, message.queue_id, message.queue_offset)
    line = "%s %d %s %s %f\\n"
    line %= (kind, os.getpid(), place, message.body.decode(), time.monotonic())
    os.write(log, line.encode())

def consume():
    choose = random.Random(os.getpid())
    with mqstore.open(path) as store, store.group("g") as group:
        os.write(1, b"%d\\n" % os.getpid())
        held = []
        while True:
            topic = choose.choice(["t", "u", group.retry_topic])
            is_short = choose.random() < 0.05
            found = group.poll(
                topic,
                max_messages=choose.randrange(1, 5),
                visibility_s=0.3 if is_short else 3600,
                timeout_s=0.01,
            )
            for message in found:
                tell("v" if is_short else "p", message)
            held += found
            # The oldest ones stay in flight for long.
            while len(held) > (2 if choose.random() < 0.99 else 0):
                message = held.pop(choose.randrange(len(held)) if choose.random() < 0.02 else -1)
                is_failed = choose.random() < 0.1
                if not is_failed:
                    tell("b", message)
                if (group.nack if is_failed else group.ack)(message):
                    tell("n" if is_failed else "a", message)
"""


class Event(NamedTuple):
    """A line of a consumer's log.

    A message was (p)olled, polled to be (v)isible soon, is to (b)e acknowledged, was (a)cked or
    (n)acked, or may be delivered again after a broker (r)eset what it does not know.
    """

    kind: str
    pid: int
    place: str
    body: str
    at_s: float


class GroupKills:
    """Consumers of a store's group, which share two topics, and what became of each message."""

    def __init__(self, root: Path, log: Path, config: dict[str, Any], seed: int) -> None:
        self.root, self._log, self._config = root, log, config
        self._choose = random.Random(seed)
        self._told = f"MQSTORE_SEED={seed}"
        self._bodies: set[str] = set()
        self._events: list[Event] = []
        self._killed_s: dict[int, float] = {}
        self._kills = self._lines = 0

    def kill(self, kills: int) -> None:
        """Kills so many of four consumers, one after the other, then the four."""
        choose = self._choose
        with mqstore.open(self.root, "a", config=self._config) as store:
            self._append(store, 20)
            consumers = Consumers(CONSUMERS, self.root, self._log, "r")
            running = [consumers.start() for _ in range(4)]
            for _ in range(kills):
                self._append(store, choose.randrange(60))
                threading.Event().wait(choose.random() * 1.5)
                self._end(running.pop(choose.randrange(4)))
                running.append(consumers.start())
            for pid in running:
                self._end(pid)
            consumers.close()
            self._kills += kills
            lines = consumers.lines()
            for line in lines[self._lines :]:
                kind, pid_text, place, body, at_s = line.decode().split()
                self._events.append(Event(kind, int(pid_text), place, body, float(at_s)))
            self._lines = len(lines)
            with store.group("g") as group:
                wait_until(lambda: self._drain(group, group.retry_topic) and not waiting(store))

    def _append(self, store: mqstore.Store, count: int) -> None:
        for _ in range(count):
            body = str(len(self._bodies))
            topic, queue_id = self._choose.choice(TOPICS), self._choose.randrange(3)
            store.append(topic, body.encode(), queue_id=queue_id)
            self._bodies.add(body)

    def _end(self, pid: int) -> None:
        self._killed_s[pid] = time.monotonic()
        os.kill(pid, signal.SIGKILL)

    def _drain(self, group: mqstore.ConsumerGroup, topic: str) -> bool:
        """Whether the topic has no message for the group; those that it had are acknowledged."""
        messages = group.poll(topic, max_messages=1000)
        for message in messages:
            place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
            at = (os.getpid(), place, message.body.decode(), time.monotonic())
            assert group.ack(message)
            self._events += [Event("p", *at), Event("a", *at)]
        group.commit()
        return not messages

    def hand_over(self, rocketmq: RocketMQ) -> None:
        """A broker delivers a topic from its committed offsets on, and nothing else."""
        left: dict[str, str] = {}
        with mqstore.open(self.root) as store:
            begins = {(at.topic, at.queue_id): at.queue_offset for at in store.groups()["g"]}
            for topic in TOPICS:
                for message in store.topic(topic):
                    queue = (topic, message.queue_id)
                    if message.queue_offset >= begins.get(queue, 0):
                        place = f"{topic}/{message.queue_id}/{message.queue_offset}"
                        left[place] = message.body.decode()
        wanted = {place for place in left if place.startswith("t/")}
        names = {name: self._config[name] for name in self._config if name != "delivery"}
        words = {name: name.title().replace("_", "") for name in names}
        settings = {word[0].lower() + word[1:]: names[name] for name, word in words.items()}
        rocketmq.start_broker(self.root, {"storeConfig": settings})
        try:
            rows = rocketmq.consume(["t"], "g", mode="push", count=len(wanted), timeoutMs=60_000)
        finally:
            rocketmq.stop_broker()
        taken = [f"{row['topic']}/{row['queueId']}/{row['queueOffset']}" for row in rows]
        assert len(taken) == len(wanted), self._told
        assert set(taken) == wanted, self._told
        for place, body in left.items():
            at = (BROKER, place, body, time.monotonic())
            kinds = "ra" if place in wanted else "r"
            self._events += [Event(kind, *at) for kind in kinds]

    def check(self) -> str:
        """Drains the group, holds each message that came again against the promise, and counts."""
        # A process may be killed between an acknowledgement and its line.
        begun = {event.body for event in self._events if event.kind == "b"}
        with mqstore.open(self.root, "r+", config=self._config) as store, store.group("g") as group:
            topics = (*TOPICS, group.retry_topic)
            wait_until(lambda: all(self._drain(group, topic) for topic in topics))
            wait_until(lambda: not waiting(store) and self._drain(group, group.retry_topic))
        done = {event.body for event in self._events if event.kind == "a"}
        assert self._bodies <= done | begun, (self._told, self._bodies - done - begun)
        in_flight, kept = self._check_repeats()
        assert mqstore.verify(self.root, config=self._config).ok
        told = f"{self._told}: {self._kills} kills, {len(self._bodies)} messages, lost 0, "
        told += f"acknowledged ones repeated 0 of {kept}, in flight repeated {in_flight}"
        assert kept > 0, told
        return told

    def _check_repeats(self) -> tuple[int, int]:
        of_place: dict[str, list[Event]] = defaultdict(list)
        for event in self._events:
            if event.kind in "pvanr":
                of_place[event.place].append(event)
        in_flight = kept = 0
        for of_one in of_place.values():
            before: Event | None = None
            done: Event | None = None
            for event in of_one:
                if event.kind == "r":
                    before = done = None
                elif event.kind in "an":
                    done = event
                else:
                    if before is not None or done is not None:
                        told = f"{self._told}: {before}, {done}, again {event}"
                        assert done is None, told
                        assert before is not None, told
                        killed_s = self._killed_s.get(before.pid, float("inf"))
                        assert before.kind == "v" or killed_s <= event.at_s, told
                        in_flight += 1
                    before = event
            kept += done is not None and done.pid in self._killed_s
        return in_flight, kept


def waiting(store: mqstore.Store) -> bool:
    """Whether failed messages wait for their redelivery."""
    return any(Path(store.path, "mqstore.failed").glob("*.json")) or any(
        one.messages + one.scheduled for one in mqstore.pending(store.path).retries
    )
