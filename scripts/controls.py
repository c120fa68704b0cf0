"""Shows that the tests of crashes and faults can fail: plants the bugs of tests/rust/controls.toml.

Copies the crate to target/controls, plants every bug there behind a switch of its own and builds
the integration tests once. Without a bug each named test must pass; with its bug it must fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests/rust/controls.toml"
COPY = ROOT / "target/controls"
COPIED = ("Cargo.*", "src", "tests/rust", "tests/*.rs", "benches", "fuzz/*.rs")

SWITCH = """
/// Whether that bug is switched on.
pub(crate) fn planted(bug: &str) -> bool {
    static BUG: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("MQSTORE_PLANTED").ok());
    BUG.as_deref() == Some(bug)
}
"""


class PlantError(Exception):
    """An edit that does not lead to exactly one place."""


@dataclass(frozen=True)
class Edit:
    """A change of one place in ``src``."""

    new: str
    fn: str | None = None
    old: str | None = None

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """The ranges of ``text`` that it would replace."""
        for start, end in functions(text, self.fn) if self.fn else [(0, len(text))]:
            if self.old is None:
                body = text.index("{\n", start) + 2
                yield body, body
                continue
            words = self.old.split()
            if words[0] in text:
                for match in re.compile(r"\s+".join(map(re.escape, words))).finditer(
                    text, start, end
                ):
                    yield match.span()


def functions(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Where the functions of that name begin and end, by the indentation of rustfmt."""
    for match in re.finditer(rf"\bfn {name}\b", text) if f"fn {name}" in text else ():
        line = text[text.rfind("\n", 0, match.start()) + 1 :]
        indentation = line[: len(line) - len(line.lstrip(" "))]
        end = text.find(f"\n{indentation}}}\n", match.end())
        if end != -1:
            yield match.start(), end


@dataclass(frozen=True)
class Bug:
    """A bug, and the test that must notice it."""

    name: str
    test: str
    edits: tuple[Edit, ...]


def bugs() -> list[Bug]:
    """The bugs of the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["bug"]
    return [Bug(r["name"], r["test"], tuple(Edit(**e) for e in r["edits"])) for r in rows]


def sources() -> dict[Path, str]:
    """The files that bugs are planted in, by their paths in the project."""
    found = (ROOT / "src").rglob("*.rs")
    return {p.relative_to(ROOT): p.read_text(encoding="utf-8") for p in sorted(found)}


def plant(bug: Bug, texts: dict[Path, str]) -> None:
    """Plants a bug behind its switch in ``texts``."""
    for edit in bug.edits:
        places = [(p, *place) for p, text in texts.items() for place in edit.places(text)]
        if len(places) != 1:
            found = ", ".join(str(path) for path, *_ in places) or "no file"
            raise PlantError(
                f"{TABLE.relative_to(ROOT)}: {bug.name}: fn={edit.fn!r}, old={edit.old!r}: "
                f"expected one place in src, found {len(places)}: {found}"
            )
        path, start, end = places[0]
        new = edit.new.replace("PLANTED", f'crate::planted("{bug.name}")')
        texts[path] = texts[path][:start] + new + texts[path][end:]


def copy(texts: dict[Path, str]) -> None:
    """Makes the copy; a file that has not changed keeps its time, so that little is built again."""
    wanted = {
        file.relative_to(ROOT): file.read_bytes()
        for pattern in COPIED
        for path in ROOT.glob(pattern)
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    } | {path: text.encode() for path, text in texts.items()}
    for old in [p for p in COPY.rglob("*") if p.is_file()]:
        if old.relative_to(COPY) not in wanted:
            old.unlink()
    for path, content in wanted.items():
        file = COPY / path
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


# A planted bug may take more disks or calls to show than each change tries.
LONG = {"MQSTORE_CRASH_STATES": "25000", "MQSTORE_FAILING_CALLS_STEP": "1"}


def build() -> Path:
    """Builds the tests of the copy; crates of others are built once for both."""
    command = ["cargo", "test", "--locked", "--quiet", "--features", "arrow", "--test", "rust"]
    done = subprocess.run(
        [*command, "--no-run", "--message-format=json-render-diagnostics"],
        cwd=COPY,
        env=os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit("mqstore: the copy with its planted bugs does not compile")
    built = [json.loads(line) for line in done.stdout.splitlines()]
    return next(Path(b["executable"]) for b in built if b.get("executable"))


def run(binary: Path, test: str, bug: str = "") -> tuple[str, str]:
    """Runs one test, with a bug or without: ``passed``, ``failed`` or what else, and its output."""
    done = subprocess.run(
        [binary, "--exact", test],
        cwd=COPY,
        env=LONG | os.environ | {"MQSTORE_PLANTED": bug, "RUST_BACKTRACE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    counts = re.search(r"(\d+) passed; (\d+) failed", done.stdout)
    outcomes = {("1", "0"): "passed", ("0", "1"): "failed"}
    outcome = outcomes.get(counts.groups()) if counts else f"exit code {done.returncode}"
    return outcome or "no such test", done.stdout


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Plants, builds and runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="BUG", help="part of a bug's name (all)")
    names = parser.parse_args().names
    texts = sources()
    try:
        for bug in bugs():
            plant(bug, texts)
    except PlantError as error:
        sys.exit(f"mqstore: {error}")
    texts[Path("src/lib.rs")] += SWITCH
    copy(texts)
    binary = build()
    asked = [bug for bug in bugs() if not names or any(name in bug.name for name in names)]
    runs = [(test, "", "passed") for test in dict.fromkeys(bug.test for bug in asked)]
    runs += [(bug.test, bug.name, "failed") for bug in asked]
    wrong = 0
    for test, bug, expected in runs:
        outcome, output = run(binary, test, bug)
        say(f"{test}: {bug or 'no bug'}: {outcome}")
        if outcome != expected:
            wrong += 1
            say(f"expected: {expected}\n{output}")
    seen = sum(expected == "failed" for *_, expected in runs)
    say(f"{seen} bugs, {wrong} of {len(runs)} runs not as expected")
    return min(wrong, 1) if asked else 2


if __name__ == "__main__":
    sys.exit(main())
