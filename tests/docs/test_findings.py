"""Every code that can be found has its page, and what a page tells to run exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "findings"
# Variant, code, title, fix: the table in the source is the one place that has them.
CODES = {
    code: (title, fix)
    for code, title, fix in re.findall(
        r'^    \w+ "(MQ-[A-Z]+-\d\d)" "([^"]+)"\s+"([^"]+)"$',
        (ROOT / "src/care/finding.rs").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
}


def commands(text: str) -> list[str]:
    """The commands of ours that a text has between backticks."""
    return re.findall(r"`(mqstore [^`]+)`", text)


def test_the_source_tells_its_codes() -> None:
    assert len(CODES) >= 70
    named = re.findall(r'"(MQ-[A-Z]+-\d+)"', (ROOT / "src/care/finding.rs").read_text())
    assert {name for name in named if named.count(name)} == set(CODES)


def test_each_code_has_a_page_and_each_page_a_code() -> None:
    assert {page.stem for page in FOLDER.glob("MQ-*.md")} == set(CODES)
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(MQ-\S+)\]\(\1\.md\) \| (.+) \|$", index, flags=re.MULTILINE)
    assert dict(listed) == {code: title for code, (title, _) in CODES.items()}


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_says_what_the_finding_says(code: str) -> None:
    title, fix = CODES[code]
    page = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {code}: {title}\n")
    for heading in ("What it is", "How it comes about", "Cure"):
        section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        assert section.strip(), heading
    told = page.partition("## Cure\n")[2]
    assert [line for line in commands(fix) if line not in told] == []
