"""Every acceptance case about flushing, recovery, retention and start, and every kind of hostile
input, has a test named after its id."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

# How many cases there are of each kind.
CASES = {
    "fl": 9, "rc": 20, "rt": 8, "ck": 9,
    "hc": 19, "hn": 8, "hq": 7, "hi": 10, "hk": 5, "hb": 4, "hm": 6, "ho": 8,
}  # fmt: skip


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
    assert sorted(wanted - named()) == []
