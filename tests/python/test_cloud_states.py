"""Damaged stores behind a URL: what is said of them is what is said of the local ones."""

from __future__ import annotations

import functools
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers import damaged_stores, incidents, mixed_damages
from helpers.broken_states import STATES as OPERATORS
from helpers.broken_states import make_healthy
from helpers.buckets import answers, asked, nameless
from helpers.damaged_stores import SOME, STATES, make_base
from helpers.mixed_damages import MORE_SOME, MORE_STATES
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.broken_states import State
    from helpers.buckets import Bucket
    from helpers.damaged_stores import Damage

# With MQSTORE_BROKEN_STORES=all every state, on each store that has it.
ALL = os.environ.get("MQSTORE_BROKEN_STORES") == "all"
EVERY = [*incidents.NEW, *(STATES if ALL else SOME), *(MORE_STATES if ALL else MORE_SOME)]
# Object storage has no links and no empty folders, and a database is copied whole.
LOCAL_ONLY = (
    incidents.file_also_in_a_second_folder,
    incidents.queue_gone_behind_a_link,
    incidents.damage_behind_a_link,
    incidents.disk_of_the_queues_not_mounted,
    damaged_stores.all_files_gone,
    damaged_stores.disk_not_mounted,
    mixed_damages.log_in_the_root,
    mixed_damages.folder_named_as_the_next_file,
    mixed_damages.checkpoint_is_a_folder,
)
DAMAGED = [
    (base, each)
    for base, each in EVERY
    if each.do not in LOCAL_ONLY and not base.startswith("rocksdb")
][:: 1 if ALL else 2]
# Behind a URL opening reads the heads of the first and the last log file; reads notice others.
UNNOTICED = ("two_files_swapped", "three_files_in_a_ring", "foreign_file", "wrong_file_restored")


def told(path: str | Path, config: Any) -> dict[str, Any]:
    """What a reader, `verify` and `doctor` say of a store, errors too."""
    found: dict[str, Any] = {}
    try:
        with mqstore.open(path, config=config) as store:
            found |= answers(store)
    except mqstore.StoreError as error:
        found["open"] = type(error)
    verdicts: list[Callable[[], Any]] = [
        lambda: [
            (one.code, one.severity, one.path, one.offset)
            for one in mqstore.verify(path, config=config).findings
        ],
        lambda: [(one.code, one.severity) for one in doctor().diagnoses],
        lambda: (doctor().will_start, doctor().lost, doctor().groups),
    ]
    doctor = functools.cache(partial(mqstore.doctor, path, config=config))
    found |= {f"verdict {number}": asked(ask) for number, ask in enumerate(verdicts)}
    return nameless(found, path)


@pytest.mark.parametrize(
    ("base", "each"), DAMAGED, ids=[f"{each.do.__name__}-{base}" for base, each in DAMAGED]
)
def test_a_damaged_store_answers_the_same(
    base: str, each: Damage, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    root = make_base(base, tmp_path / "given")
    each.do(root)
    config = tmp_path / "given" / "broker.conf"
    found, expected = told(memory(root), config), told(root, config)
    if each.do.__name__ in UNNOTICED:
        keys = [question for question in expected if question[0] == "key"]
        for answers_of in (found, expected):
            answers_of |= {key: answers_of[key].partition(", complete=")[0] for key in keys}
    assert found == expected


@pytest.mark.parametrize("state", OPERATORS, ids=lambda state: state.id)
def test_a_broken_state_answers_the_same(
    state: State, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    make_healthy(root)
    state.damage(root)
    assert told(memory(root), None) == told(root, None)


def test_an_object_that_was_cut_is_missing(memory: Callable[[Path], str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as store:
        for number in range(60):
            store.append("orders", b"%d" % number, keys=f"k{number}", queue_id=0)
    last = max((root / "commitlog").iterdir())
    last.write_bytes(b"hello")
    found, expected = told(memory(root), None), told(root, None)
    assert found == expected
    with mqstore.open(memory(root)) as store:
        assert not store.query("orders", "k55").complete


def test_a_long_chain_costs_few_requests(s3: Bucket, tmp_path: Path) -> None:
    """Of 200,000 keys in chains of a hundred, and of an index file that is not finished."""
    keys, rest = 200_000, 3_000
    config = {
        "mapped_file_size_commit_log": 8 << 20,
        "max_hash_slot_num": 2000,
        "max_index_num": keys,
    }
    asks = (keys // 2, keys + rest - 1, keys * 2)
    with mqstore.open(tmp_path, "a", config=config) as writer:
        for number in range(0, keys + rest, 1000):
            ids = range(number, number + 1000)
            writer.append_many([mqstore.Message("orders", b"x", keys=f"k-{n}") for n in ids])
        writer.flush()
        url = s3.put(tmp_path, "chains")
        for key in asks:
            with mqstore.open(url, storage_options=s3.options) as store:
                before = store.io
                found = store.query("orders", f"k-{key}")
                assert before is not None
                assert store.io is not None
                # Header, slot and proofs of two files at most; steps; a whole file; the message.
                assert store.io.requests - before.requests <= 2 * 4 + 8 + 1 + 2
                assert store.io.bytes - before.bytes <= 6 << 20
            assert str(found) == str(writer.query("orders", f"k-{key}"))
            assert [m.keys for m in found] == [(f"k-{key}",)] * (key < keys + rest)
        # A log read backwards is no chain, which would be fetched whole.
        backwards = range(7 << 20, 0, -(1 << 19))
        found_at = [next(writer.scan(start_physical_offset=at)).physical_offset for at in backwards]
        with mqstore.open(url, storage_options=s3.options) as store:
            before = store.io
            assert [store.get(at).physical_offset for at in found_at] == found_at
            assert before is not None
            assert store.io is not None
            assert store.io.bytes - before.bytes <= 2 << 20
