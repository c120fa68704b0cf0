"""Random calls against a store and against plain lists, which must always agree.

A failure prints the calls that lead to it, shrunk to the fewest; hypothesis repeats it by the blob
that it prints, too. ``HYPOTHESIS_EXAMPLES`` says how many runs there are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import mqstore

TOPICS = st.sampled_from(["orders", "refunds", "a-b_c%|"])
QUEUES = st.integers(0, 2)
TAGS = st.sampled_from([None, "paid", "refunded", "Aa", "BB"])  # the last two have one hash
KEYS = st.lists(st.sampled_from(["k1", "k2", "Ea", "FB"]), max_size=3, unique=True)
BODIES = st.binary(max_size=300)
CONFIG = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 5,
    "max_index_num": 20,
}


class Store(RuleBasedStateMachine):
    """A store and what was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mqstore-model-"))
        self.queues: dict[tuple[str, int], list[tuple[bytes, str | None]]] = defaultdict(list)
        self.log: list[tuple[str, bytes]] = []
        self.keyed: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.store = mqstore.open(self.folder, "a", config=CONFIG)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(topic=TOPICS, queue_id=QUEUES, body=BODIES, tags=TAGS, keys=KEYS)
    def append(
        self, topic: str, queue_id: int, body: bytes, tags: str | None, keys: list[str]
    ) -> None:
        at = self.queues[topic, queue_id]
        done = self.store.append(topic, body, queue_id=queue_id, tags=tags, keys=keys)
        assert done.queue_offset == len(at)
        self.kept(topic, queue_id, body, tags, keys)

    @rule(topic=TOPICS, bodies=st.lists(BODIES, min_size=1, max_size=8), tags=TAGS, keys=KEYS)
    def append_many(
        self, topic: str, bodies: list[bytes], tags: str | None, keys: list[str]
    ) -> None:
        self.store.append_many(mqstore.Message(topic, b, tags=tags, keys=keys) for b in bodies)
        for body in bodies:
            self.kept(topic, 0, body, tags, keys)

    def kept(
        self, topic: str, queue_id: int, body: bytes, tags: str | None, keys: list[str]
    ) -> None:
        self.queues[topic, queue_id].append((body, tags))
        self.log.append((topic, body))
        for key in keys:
            self.keyed[topic, key].append(body)

    @rule(topic=TOPICS, queue_id=QUEUES, offset=st.integers(0, 40), tags=TAGS)
    def read(self, topic: str, queue_id: int, offset: int, tags: str | None) -> None:
        result = self.store.read(topic, queue_id, offset, max_messages=1000, tags=tags)
        wanted = self.queues[topic, queue_id][offset:]
        bodies = [body for body, tag in wanted if tags is None or tag == tags]
        assert [message.body for message in result.messages] == bodies
        assert (result.status == "FOUND") == bool(bodies)

    @rule(topic=TOPICS, key=st.sampled_from(["k1", "k2", "Ea", "FB", "none"]))
    def query(self, topic: str, key: str) -> None:
        found = self.store.query(topic, key, max_messages=1000)
        assert [message.body for message in found] == self.keyed[topic, key][::-1]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.store.close()
        else:
            # A killed process leaves its files as they are now.
            copy = Path(tempfile.mkdtemp(prefix="mqstore-model-"))
            shutil.copytree(self.folder, copy, dirs_exist_ok=True)
            self.store.close()
            shutil.rmtree(self.folder)
            self.folder = copy
        self.store = mqstore.open(self.folder, "r+", config=CONFIG)

    @rule(name=st.sampled_from(["consumequeue", "index"]))
    def lose(self, name: str) -> None:
        self.store.close()
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.store = mqstore.open(self.folder, "r+", config=CONFIG)

    @invariant()
    def the_log_is_what_was_appended(self) -> None:
        with mqstore.open(self.folder, config=CONFIG) as reader:
            assert [(message.topic, message.body) for message in reader.scan()] == self.log

    @invariant()
    def nothing_is_found_wrong(self) -> None:
        assert self.store.max_physical_offset == self.store.dispatched_offset


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "60")),
    stateful_step_count=25,
    deadline=None,
    derandomize="HYPOTHESIS_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
