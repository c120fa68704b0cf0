"""Coverage of the Rust core out of an LCOV file: lines and branches of each file, tests left out.

What binds the core to Python (`src/py`) is tested from Python and not counted here. Unit tests
stand at the end of the file they test; their own lines would make every figure better than it is.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass
class Covered:
    """One file: how often each line and each branch ran."""

    lines: dict[int, int] = field(default_factory=dict)
    branches: dict[tuple[int, str, str], int] = field(default_factory=dict)

    def add(self, record: str) -> None:
        """Takes one line of LCOV; the same line of several compilations counts once."""
        kind, _, rest = record.partition(":")
        if kind == "DA":
            line, count = rest.split(",")[:2]
            number = int(line)
            self.lines[number] = max(self.lines.get(number, 0), int(count))
        elif kind == "BRDA":
            line, block, branch, taken = rest.split(",")
            key = int(line), block, branch
            ran = 0 if taken == "-" else int(taken)
            self.branches[key] = max(self.branches.get(key, 0), ran)

    def before(self, end: int) -> Covered:
        """The source before line ``end``."""
        lines = {line: count for line, count in self.lines.items() if line < end}
        branches = {key: count for key, count in self.branches.items() if key[0] < end}
        return Covered(lines, branches)


def tests_begin(path: Path) -> int:
    """The line at which a source file's unit tests begin."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() == "#[cfg(test)]":
            return number
    return sys.maxsize


def core(lcov: Path) -> dict[str, Covered]:
    """Each file of the core by its path below src."""
    files: dict[str, Covered] = {}
    here = Covered()
    for record in lcov.read_text().splitlines():
        if record.startswith("SF:"):
            here = files.setdefault(record.removeprefix("SF:"), Covered())
        else:
            here.add(record)
    found = {}
    for name, covered in files.items():
        path = Path(name)
        if not path.is_relative_to(ROOT / "src"):
            continue
        below = path.relative_to(ROOT / "src")
        if below.parts[0] != "py" and "tests" not in {*below.parts, below.stem}:
            found[str(below)] = covered.before(tests_begin(path))
    return found


def share(counts: list[int]) -> float:
    """Which part of them ran, in percent."""
    return 100 * sum(count > 0 for count in counts) / len(counts) if counts else 100.0


def report(text: str) -> None:
    """One line, or a few, to stdout."""
    sys.stdout.write(text + "\n")


def main() -> int:
    """Prints the table; 1 if less is covered than asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lcov", type=Path)
    parser.add_argument("--lines", type=float, default=0, help="percent that must have run")
    parser.add_argument("--branches", type=float, default=0, help="percent that must have run")
    parser.add_argument("--missed", action="store_true", help="name the lines that did not run")
    options = parser.parse_args()

    files = core(options.lcov)
    lines = [count for covered in files.values() for count in covered.lines.values()]
    branches = [count for covered in files.values() for count in covered.branches.values()]
    for name, covered in sorted(files.items()):
        of_lines, of_branches = list(covered.lines.values()), list(covered.branches.values())
        report(
            f"{name:44} {share(of_lines):6.1f} % of {len(of_lines):5} lines"
            f" {share(of_branches):6.1f} % of {len(of_branches):5} branches"
        )
        if options.missed:
            missed = [line for line, count in sorted(covered.lines.items()) if not count]
            half = sorted({key[0] for key, count in covered.branches.items() if not count})
            report(f"    lines {missed}\n    branches {half}")
    report(
        f"{'the core':44} {share(lines):6.1f} % of {len(lines):5} lines"
        f" {share(branches):6.1f} % of {len(branches):5} branches"
    )
    return int(share(lines) < options.lines or share(branches) < options.branches)


if __name__ == "__main__":
    sys.exit(main())
