"""Every code that can be found has its page, and what a page tells to run exists."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import click
import pytest

from mqstore.cli import command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "findings"
CODES = runpy.run_path(str(ROOT / "scripts/reference.py"))["CODES"]
# It is not known whether a broker starts, and what its consumers get.
NOT_TRIED = {"MQ-DOC-06", "MQ-DOC-11", "MQ-LOG-09", "MQ-LOG-11", "MQ-LOG-12"}


def commands(text: str) -> list[str]:
    """The commands of ours that a text has between backticks."""
    return re.findall(r"`(mqstore [^`]+)`", text)


def complaint(line: str) -> str | None:
    """Why a command with its words in capitals filled in could not be run."""
    words = {"TIME": "1700000000000", "QUEUE": "0"}
    name, *arguments = [words.get(word, word) for word in line.split()[1:]]
    context = click.Context(command)
    found = command.get_command(context, name)
    if found is None:
        return f"no command {name}"
    try:
        found.make_context(name, arguments, parent=context)
    except click.ClickException as error:
        return error.format_message()
    return None


def test_the_source_tells_its_codes() -> None:
    assert len(CODES) >= 70
    named = re.findall(r'"(MQ-[A-Z]+-\d+)"', (ROOT / "src/care/finding.rs").read_text())
    assert sorted(named) == sorted(CODES)


def test_each_code_has_a_page_and_each_page_a_code() -> None:
    assert {page.stem for page in FOLDER.glob("MQ-*.md")} == set(CODES)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_says_what_the_finding_says(code: str) -> None:
    *_, fix = CODES[code]
    page = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    for heading in ("Meaning", "Causes", "Cure"):
        section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        assert section.strip(), heading
    if code not in NOT_TRIED:
        effect = page.partition("## Effect\n")[2].partition("\n## ")[0]
        assert re.findall(r"^- (Broker|Consumers):", effect, flags=re.MULTILINE)[:2] == [
            "Broker",
            "Consumers",
        ]
    told = page.partition("## Cure\n")[2]
    assert [line for line in commands(fix) if line not in told] == []


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_cure_exists(code: str) -> None:
    told = commands(CODES[code][-1])
    assert [(line, why) for line in told if (why := complaint(line)) is not None] == []
