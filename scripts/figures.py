"""Size and shape of the project: `make figures`. Code lines have no blanks, comments, or tests."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Files that read the log, wherever they stand.
READING = (
    "src/log/read/**/*.rs",
    "src/store/read/scan/**/*.rs",
    "src/store/read/view/*.rs",
    "src/store/dispatch/log_parts.rs",
    "src/store/dispatch/collect.rs",
    "src/store/open/redispatch.rs",
    "src/store/open/analysis.rs",
    "src/store/open/tail.rs",
    "src/columns/ahead.rs",
    "src/care/rebuild/*.rs",
    "src/care/verify/log_walk.rs",
    "src/care/verify/file_parts.rs",
    "src/care/verify/context.rs",
    "src/py/scan.rs",
    "src/py/log_scan.rs",
)


def is_test(path: Path) -> bool:
    """Whether the file has tests only."""
    return "tests" in path.relative_to(ROOT).with_suffix("").parts


def rust_code(path: Path) -> int:
    """Code lines before a file's unit tests, which stand at its end."""
    text = path.read_text(encoding="utf-8").split("\n#[cfg(test)]\n")[0]
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def python_code(path: Path) -> int:
    """Lines that hold more than a comment or a text that nobody uses."""
    lines: set[int] = set()
    first = True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            first = True
        elif token.type not in (tokenize.COMMENT, tokenize.ENDMARKER):
            if not (first and token.type == tokenize.STRING):
                lines.update(range(token.start[0], token.end[0] + 1))
            first = False
    return len(lines)


def frame_users() -> list[str]:
    """Files outside `log/read` that step over frames themselves."""
    steps = re.compile(r"\.step\(\)|step_in_block\(|FrameReader")
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "src").rglob("*.rs"))
        if not is_test(path)
        and not path.is_relative_to(ROOT / "src" / "log" / "read")
        and not path.is_relative_to(ROOT / "src" / "format")
        and steps.search(path.read_text(encoding="utf-8").split("\n#[cfg(test)]\n")[0])
    ]


def main() -> int:
    """Prints the table."""
    rust = [path for path in (ROOT / "src").rglob("*.rs") if not is_test(path)]
    python = list((ROOT / "python").rglob("*.py"))
    reading = {path for pattern in READING for path in ROOT.glob(pattern) if not is_test(path)}
    users = frame_users()
    rows = [
        ("Rust, code lines", sum(map(rust_code, rust))),
        ("Rust, files", len(rust)),
        ("Python, code lines", sum(map(python_code, python))),
        ("Python, files", len(python)),
        ("reading the log, code lines", sum(map(rust_code, reading))),
        ("reading the log, files", len(reading)),
        ("files that step over frames outside `log/read`", len(users)),
    ]
    lines = [f"{figure:8,}  {name}\n" for name, figure in rows]
    sys.stdout.write("".join(lines + [f"          {name}\n" for name in users]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
