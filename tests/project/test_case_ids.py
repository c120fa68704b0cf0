"""Every acceptance case about flushing, recovery and start, and every kind of hostile input, has a
test named after its id."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

# How many cases there are of each kind.
CASES = {
    "fl": 9, "rc": 20, "ck": 9,
    "hc": 19, "hn": 8, "hq": 7, "hi": 10, "hk": 5, "hb": 4, "hm": 6, "ho": 8,
}  # fmt: skip

# Cases that no test is named after yet. A case leaves this list with its test.
WITHOUT = {
    "fl": [5],
    "hb": [1, 2, 3, 4],
    "hc": [9, 13, 15, 17],
    "hi": [4, 8, 9],
    "hk": [5],
    "hm": [2, 3, 4, 5, 6],
    "hn": [5, 6, 7, 8],
    "ho": [2, 3, 5, 6, 7, 8],
    "rc": [6, 10, 13, 17],
}

NAME = r"^\s*(?:pub\(crate\) )?(?:fn|def) (\w+)"


def named() -> set[str]:
    """The ids in the names of tests."""
    found: set[str] = set()
    for folder in ("src", "tests", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".rs", ".py"}:
                text = path.read_text(encoding="utf-8")
                for name in re.findall(NAME, text, re.MULTILINE):
                    found.update(re.findall(r"(?<![a-z0-9])[a-z]{2}\d\d(?![0-9])", name))
    return found


def test_every_case_has_a_test_of_its_name() -> None:
    wanted = {f"{kind}{n:02}" for kind, count in CASES.items() for n in range(1, count + 1)}
    without = {f"{kind}{n:02}" for kind, numbers in WITHOUT.items() for n in numbers}
    assert sorted(wanted - named() - without) == []
