"""The checklists of docs/changing.md name the files that a change of each kind touches."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/changing.md").read_text(encoding="utf-8")
MOST = {"Finding": 4, "Setting": 3, "Spark option": 3, "Command": 5, "Column": 6}
# Their names also stand for fields of a record and functions of the package.
SHARED = {"Command", "Column"}


def example(kind: str) -> list[list[str]]:
    """Names, files and generated files of the example of a kind."""
    row = re.search(rf"^\| {kind} \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None
    return [re.findall(r"`([^`]+)`", cell) for cell in row.groups()]


def naming(names: list[str]) -> set[str]:
    """The files of the tree, beside tests and the page, that have one of the names."""
    found = subprocess.run(
        ["git", "grep", "-lwE", "|".join(names), "--", "src", "python", "docs", "scripts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    # Lists of proofs and of runs name what they prove.
    pages = {"docs/changing.md", "docs/guarantees.md", "docs/runs.md"}
    return set(found.stdout.split()) - pages


@pytest.mark.parametrize("kind", MOST)
def test_an_example_stands_in_the_files_of_its_checklist(kind: str) -> None:
    names, files, generated = example(kind)
    assert len(files) <= MOST[kind]
    found = naming(names)
    if kind in SHARED:
        assert {*files, *generated} <= found
    else:
        assert {*files, *generated} == found


@pytest.mark.parametrize("kind", MOST)
def test_a_checklist_is_no_longer_than_it_says(kind: str) -> None:
    section = re.search(rf"^### {kind}: (\d) files\n(.*?)^##", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    steps = re.findall(r"^(\d)\. ", section[2], re.MULTILINE)
    assert len(steps) == int(section[1]) <= MOST[kind]
