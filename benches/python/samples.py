"""The messages all benchmarks write: one body size, a tag, a key, a unique key, a fixed seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mqstore

BODY_BYTES = [128, 1024, 16 * 1024]
#: Bytes of records that one round writes.
ROUND_BYTES = 16 << 20

CONFIG = {
    "mapped_file_size_commit_log": 64 << 20,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
}


@dataclass(frozen=True)
class Sample:
    """Messages of one round."""

    body: bytes
    count: int
    keys: list[str]
    unique_keys: list[str]


def sample(body_bytes: int) -> Sample:
    rng = random.Random(20261121)
    count = ROUND_BYTES // (body_bytes + 200)
    return Sample(
        body=rng.randbytes(body_bytes),
        count=count,
        keys=[f"order{rng.getrandbits(48):012x}" for _ in range(count)],
        unique_keys=[f"{rng.getrandbits(128):032X}" for _ in range(count)],
    )


def append_all(store: mqstore.Store, messages: Sample) -> None:
    append, body = store.append, messages.body
    for number, (key, unique_key) in enumerate(
        zip(messages.keys, messages.unique_keys, strict=True)
    ):
        append("BenchTopic", body, queue_id=number & 7, tags="tag", keys=key, unique_key=unique_key)
