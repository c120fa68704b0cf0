"""Whole stores with damage of every kind: each call ends in data or in one of our errors."""

from __future__ import annotations

import contextlib
import random
import shutil
from typing import TYPE_CHECKING

import mqstore
from helpers.writing import number

if TYPE_CHECKING:
    from pathlib import Path

SEED = number("MQSTORE_SEED", 20261121)
STORES = number("MQSTORE_DAMAGED_STORES", 250)
CONFIG = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 7,
    "max_index_num": 28,
}
# Numbers that lengths, offsets and counts are least fit to be.
NASTY = [0, 1, -1, 91, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]


def damage(root: Path, dice: random.Random) -> str:
    """Does one thing to one file, and says what."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    path = dice.choice(files)
    data = bytearray(path.read_bytes())
    kind = dice.choice(["bits", "zeros", "number", "cut", "longer", "swap", "gone"])
    # Most of a small store is filler; damage what says something.
    used = max(1, len(data.rstrip(b"\0")))
    at = dice.randrange(used)
    if kind == "bits":
        for _ in range(dice.randrange(1, 9)):
            if data:
                data[dice.randrange(min(used, len(data)))] ^= 1 << dice.randrange(8)
    elif kind == "zeros":
        data[at : at + dice.randrange(1, 600)] = b""
        data.extend(bytes(max(0, path.stat().st_size - len(data))))
    elif kind == "number":
        wide = dice.choice([4, 8])
        value = dice.choice(NASTY) & (2 ** (8 * wide) - 1)
        at = at // 4 * 4
        data[at : at + wide] = value.to_bytes(wide, "big")
    elif kind == "cut":
        del data[at:]
    elif kind == "longer":
        data.extend(dice.randbytes(dice.randrange(1, 500)))
    elif kind == "swap":
        other = dice.choice(files)
        data = bytearray(other.read_bytes())
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(data)
    return f"{kind} {path.relative_to(root)} at {at}"


def use(root: Path, mode: str) -> None:
    """Reads and asks everything."""
    with mqstore.open(root, mode, config=CONFIG) as store:
        found = 0
        with contextlib.suppress(mqstore.StoreError):
            for _ in store.scan():
                found += 1
                assert found <= 2000, "a walk that does not end"
        for n in range(0, 120, 13):
            with contextlib.suppress(mqstore.StoreError):
                store.query(f"t{n % 2}", f"k{n}")
            with contextlib.suppress(mqstore.StoreError):
                store.read(f"t{n % 2}", n % 3, 0, max_messages=50)
        if mode == "r+":
            with contextlib.suppress(mqstore.StoreError):
                store.append("t0", b"one more", keys="more")


def test_damaged_stores_are_data_or_an_error(tmp_path: Path) -> None:
    sound = tmp_path / "sound"
    with mqstore.open(sound, "a", config=CONFIG) as store:
        for n in range(120):
            store.append(f"t{n % 2}", b"%d" % n * (n % 40), queue_id=n % 3, keys=f"k{n}")
    dice = random.Random(SEED)
    for which in range(STORES):
        root = tmp_path / f"{which}"
        shutil.copytree(sound, root)
        if which % 2:
            (root / "abort").write_text("1")
        done = [damage(root, dice) for _ in range(dice.randrange(1, 4))]
        try:
            for mode in ("r", "r+"):
                with contextlib.suppress(mqstore.StoreError):
                    use(root, mode)
            with contextlib.suppress(mqstore.StoreError):
                mqstore.verify(root, config=CONFIG)
        except BaseException as error:
            error.add_note(f"store {which}, MQSTORE_SEED={SEED}: {done}")
            raise
        shutil.rmtree(root)
