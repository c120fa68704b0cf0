"""Stores of real brokers, harmed at random: what an operator may find, from a seed."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

from helpers.golden import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Harm = Callable[[random.Random, Path, dict[str, Any]], str]

CASES = ("plain", "plain-55", "queues", "rollover", "abort-intact", "abort-intact-55", "indexroll")
CASES += ("clean-cqlag", "broker", "broker-55", "propcrc", "lmq", "batch", "oddprops")


def _files(root: Path) -> list[Path]:
    folders = ("commitlog", "consumequeue", "batchconsumequeue", "index", "config")
    found = [path for name in folders for path in (root / name).rglob("*") if path.is_file()]
    return sorted([*found, *(path for path in [root / "checkpoint"] if path.exists())])


def _one(chance: random.Random, root: Path) -> Path:
    """A file; each kind is as likely."""
    kinds: dict[str, list[Path]] = {}
    for path in _files(root):
        kinds.setdefault(path.relative_to(root).parts[0], []).append(path)
    return chance.choice(kinds[chance.choice(sorted(kinds))])


def _remove(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    path = _one(chance, root)
    path.unlink()
    return f"removed {path.relative_to(root)}"


def _cut(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    path = _one(chance, root)
    size = chance.choice([0, chance.randrange(path.stat().st_size + 1)])
    with path.open("r+b") as file:
        file.truncate(size)
    return f"cut {path.relative_to(root)} to {size}"


def _fill(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    path = _one(chance, root)
    content = bytearray(path.read_bytes())
    # Most bytes of a file are zeros behind its end.
    used = len(content.rstrip(b"\0"))
    at, count = chance.randrange(used + 1), chance.choice([1, 4, 40, 400, 4000])
    count = max(min(count, len(content) - at), 0)
    content[at : at + count] = bytes(count) if chance.random() < 0.5 else chance.randbytes(count)
    path.write_bytes(content)
    return f"overwrote {count} bytes at {at} of {path.relative_to(root)}"


def _rename(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    path = _one(chance, root)
    name = chance.choice([f"{path.name}.bak", "notes", f"{chance.randrange(200_000):020}"])
    path.rename(path.with_name(name))
    return f"renamed {path.relative_to(root)} to {name}"


def _swap(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    path = _one(chance, root)
    kind = path.relative_to(root).parts[0]
    other = chance.choice([one for one in _files(root) if one.relative_to(root).parts[0] == kind])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)
    return f"swapped {path.relative_to(root)} and {other.relative_to(root)}"


def _stray(chance: random.Random, root: Path, _: dict[str, Any]) -> str:
    folder = _one(chance, root).parent
    path = folder / chance.choice(["!notes", "zzz", ".nfs0001", "00000000000000009999"])
    path.write_bytes(bytes(chance.choice([0, 100, 20_000])))
    return f"made {path.relative_to(root)} of {path.stat().st_size} bytes"


def _abort(_: random.Random, root: Path, __: dict[str, Any]) -> str:
    path = root / "abort"
    if path.exists():
        path.unlink()
        return "removed abort"
    path.touch()
    return "made abort"


def _setting(chance: random.Random, _: Path, settings: dict[str, Any]) -> str:
    name, value = chance.choice(
        [
            ("mappedFileSizeCommitLog", 131_072),
            ("mappedFileSizeConsumeQueue", 4000),
            ("forceVerifyPropCRC", True),
            ("checkCRCOnRecover", False),
            ("messageIndexEnable", False),
        ]
    )
    settings[name] = value
    return f"set {name}={value}"


def _mix(chance: random.Random, root: Path, settings: dict[str, Any]) -> str:
    path = _one(chance, root)
    other = Case(chance.choice(CASES))
    kind = path.relative_to(root).parts[0]
    folder = root.parent / "other"
    folder.mkdir()
    files = [one for one in _files(other.unpack(folder)) if kind in one.parts]
    if not files:
        return _remove(chance, root, settings)
    path.write_bytes(chance.choice(files).read_bytes())
    return f"put a file of {other.name} over {path.relative_to(root)}"


HARMS: tuple[Harm, ...] = (_remove, _cut, _fill, _rename, _swap, _stray, _abort, _setting, _mix)


def make(seed: int, folder: Path) -> tuple[Path, dict[str, Any], str]:
    """A harmed store, the parameters of its broker, and what was done to it."""
    chance = random.Random(seed)
    case = Case(chance.choice(CASES))
    root, settings = case.unpack(folder), dict(case.settings)
    harms = chance.sample(HARMS, chance.choice([1, 1, 2]))
    told = [harm(chance, root, settings) for harm in harms]
    shutil.rmtree(folder / "other", ignore_errors=True)
    params = {**case.params, "storeConfig": case.params["storeConfig"] | settings}
    return root, params, f"seed {seed}, {case.name}: {'; '.join(told)}"
