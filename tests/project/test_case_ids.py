"""Each id in the name of a test has its case in tests/cases.md, and each case has a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

NAME = r"^\s*(?:pub\(crate\) )?(?:fn|def) (\w+)"
ID = r"(?<![a-z0-9])[a-z]{2}\d\d(?![0-9])"
ROW = r"^\| ([A-Z]{2}\d\d)(?: \*\*\+\*\*)? \| ."


def named() -> set[str]:
    """The ids in the names of tests."""
    found: set[str] = set()
    for folder in ("src", "tests", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".rs", ".py"}:
                text = path.read_text(encoding="utf-8")
                for name in re.findall(NAME, text, re.MULTILINE):
                    found.update(re.findall(ID, name))
    return found


def cases() -> list[str]:
    """The ids of the rows of the page, in its order."""
    page = (ROOT / "tests/cases.md").read_text(encoding="utf-8")
    return [row.lower() for row in re.findall(ROW, page, re.MULTILINE)]


def test_each_case_is_told_once() -> None:
    assert cases()
    assert len(cases()) == len(set(cases()))


def test_each_case_has_a_test_of_its_name() -> None:
    assert sorted(set(cases()) - named()) == []


def test_each_id_in_a_name_has_its_case() -> None:
    assert sorted(named() - set(cases())) == []
