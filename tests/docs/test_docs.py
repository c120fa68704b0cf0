"""The pages are true: examples run, commands exist, links lead somewhere.

Blocks of a page run in order, in one empty folder, Python ones with their names kept:

- ``python``: executed.
- ``pycon``: executed, and each answer compared.
- ``console``: lines ``$ mqstore ...`` are executed; where lines of output follow, they are
  compared, and ``...`` stands for anything. ``$ make ...`` must name a target. Other commands are
  not run.

A block behind the comment ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]
COMPARE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

NOT_RUN = re.compile(r"<!-- not run: \S.* -->")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are to be run."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"^(\s*)(`{3,})(\w*)\s*$", lines[at])
        if fence is None:
            at += 1
            continue
        indent, ticks, language = fence.groups()
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == ticks)
        before = next((line for line in reversed(lines[:at]) if line.strip()), "")
        if not NOT_RUN.fullmatch(before.strip()):
            body = [line.removeprefix(indent) for line in lines[at + 1 : end]]
            found.append(Block(language, at + 2, "\n".join(body) + "\n"))
        at = end + 1
    return found


def without_blocks(page: Path) -> str:
    """The page without its blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^\s*(`{3,}).*?^\s*\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The page without its blocks and without code in lines."""
    return re.sub(r"`[^`\n]*`", "", without_blocks(page))


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the page shows for it."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        elif found:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    # Line numbers of a traceback are those of the page.
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, str(page), "exec"), names)


def run_pycon(block: Block, page: Path, names: dict[str, Any]) -> None:
    example = doctest.DocTestParser().get_doctest(
        block.text, names, page.name, str(page), block.line - 1
    )
    complaints: list[str] = []
    result = doctest.DocTestRunner(optionflags=COMPARE).run(
        example, out=complaints.append, clear_globs=False
    )
    names.update(example.globs)
    assert result.attempted, f"{page.name}:{block.line}: no example in the block"
    assert not result.failed, "".join(complaints)


def run_console(block: Block, page: Path, folder: Path) -> None:
    for command, expected in commands(block):
        if not command.startswith("mqstore "):
            continue
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=os.environ
            | {
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "100",
                "NO_COLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        where = f"{page.name}:{block.line}: $ {command}"
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        if expected:
            fits = doctest.OutputChecker().check_output(expected, done.stdout, COMPARE)
            assert fits, f"{where}\nexpected:\n{expected}\nfound:\n{done.stdout}"


def runnable(page: Path) -> list[Block]:
    """The blocks of a page that do something when they are run."""
    return [
        block
        for block in blocks(page)
        if block.language in ("python", "pycon")
        or (
            block.language == "console"
            and any(c.startswith("mqstore ") for c, _ in commands(block))
        )
    ]


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: p.name)
def test_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in runnable(page):
        if block.language == "python":
            run_python(block, page, names)
        elif block.language == "pycon":
            run_pycon(block, page, names)
        else:
            run_console(block, page, tmp_path)


def test_the_first_pages_have_examples_of_both_kinds() -> None:
    for name in ("README.md", "docs/index.md"):
        languages = Counter(block.language for block in runnable(ROOT / name))
        assert languages["python"], name
        assert languages["console"], name


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_a_block_names_its_language(page: Path) -> None:
    unnamed = [block.line for block in blocks(page) if not block.language]
    assert not unnamed, f"{page.name}: blocks without a language at lines {unnamed}"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`)make ([a-z][a-z-]*)", text, flags=re.MULTILINE))
    assert named <= targets, f"{page.name}: no such target: {sorted(named - targets)}"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken, f"{page.name}: {broken}"


def anchors(page: Path) -> set[str]:
    """The anchors that the headings of a page get."""
    headings = re.findall(r"^#+ +(.*?)\s*$", without_blocks(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


DEFINED = r"^[ \t]*(?:pub(?:\([\w: ]+\))? )?(?:const |async )?(?:{words}) {name}\b"
WORDS = "fn|def|class|struct|enum|trait|type|const|static"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_tests_and_functions_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = []
    for path, name in re.findall(r"`([\w/.-]+\.(?:rs|py))::(\w+)`", text):
        file = ROOT / path
        code = file.read_text(encoding="utf-8") if file.exists() else ""
        defined = DEFINED.format(words=WORDS, name=name)
        python = rf"^{name}\b.*="
        if not re.search(rf"{defined}|{python}", code, flags=re.MULTILINE):
            missing.append(f"{path}::{name}")
    assert not missing, f"{page.name}: {missing}"


def test_files_and_tests_of_the_page_on_changing_exist() -> None:
    page = (ROOT / "docs/changing.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|tests|python|docs)/[\w/.-]+?)(?:::\w+)?`", page)
    assert len(paths) > 60
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_headings_and_list_items_begin_with_the_point(page: Path) -> None:
    begin = r"^(?:#+|\s*(?:[-*]|\d+\.)) +\W*(?:What|Who|Whoever|Of)\b.*"
    assert re.findall(begin, without_blocks(page), flags=re.MULTILINE) == []


def test_first_pages_stay_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    performance = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    assert len(performance.split()) <= 2500


def test_every_promise_names_its_test() -> None:
    text = without_blocks(ROOT / "docs/guarantees.md")
    page, _, tests = text.partition("## Tests of each promise")
    promises = re.findall(r"^\*\*(.+?)[.,]?\*\*", page, flags=re.MULTILINE | re.DOTALL)
    assert len(promises) >= 10
    shown = re.findall(r"^\| (.+?) \| .*`\S+::\w+`.* \|$", tests, flags=re.MULTILINE)
    assert [" ".join(one.split()) for one in promises] == shown


def test_every_page_can_be_reached_from_the_readme() -> None:
    waiting, seen = [ROOT / "README.md"], {ROOT / "README.md"}
    while waiting:
        page = waiting.pop()
        for target in re.findall(r"\]\(([^)#\s]+\.md)", prose(page)):
            linked = (page.parent / target).resolve()
            if linked.exists() and linked not in seen:
                seen.add(linked)
                waiting.append(linked)
    lost = [str(p.relative_to(ROOT)) for p in PAGES if p not in seen and p.parent != ROOT]
    assert not lost
