"""Each error that ``docs/spark-trouble.md`` quotes is one that can be raised, with its reason."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import mqstore
from mqstore.errors import StoreError
from mqstore.spark.books import check_purpose
from mqstore.spark.failures import jvm_end, reason
from mqstore.spark.options import ReadOptions
from mqstore.spark.target import TargetLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
# `|` in a cell is escaped.
ROWS = [
    re.split(r"(?<!\\)\|", line)[1].replace("\\|", "|")
    for line in (ROOT / "docs/spark-trouble.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "`" in re.split(r"(?<!\\)\|", line)[1]
]
QUOTES = [(quote, row) for row in ROWS for quote in re.findall("`([^`]+)`", row)]
PURPOSES = [
    {"topics": ["a"]},
    *({"layout": {name: "a"}} for name in ("partition_by", "format", "date_zone")),
]
OPTIONS = [{"topcs": "x"}, {"tags": "a,b"}, {"kafka.group.id": "g"}, {"maxRowsPerTrigger": "1"}]


def python_texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module, with a zero byte for each value in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "\0" for one in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def texts() -> Iterator[str]:
    """Texts of the package and the core, and some that are raised here."""
    for path in (ROOT / "python/mqstore").rglob("*.py"):
        yield from python_texts(ast.parse(path.read_text(encoding="utf-8")))
    for path in (ROOT / "src").rglob("*.rs"):
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8")):
            yield re.sub(r"\{[^{}]*\}", "\0", re.sub(r"\\\n\s*", "", text))
    for options in OPTIONS:
        yield raised(ReadOptions.parse, {"path": "/a", **options})
    for purpose in PURPOSES:
        kept = {"version": 1, **purpose}
        yield raised(check_purpose, kept, {"version": 1, "layout": {}}, "the checkpoint")
    yield raised(mqstore.open, ROOT)
    yield f"/lake{TargetLock('')._taken({'pid': 7, 'host': 'h'})}"
    yield os.strerror(errno.ENOSPC)
    process = SimpleNamespace(wait=lambda _: -signal.SIGKILL)
    yield f"{jvm_end(SimpleNamespace(_sc=SimpleNamespace(_gateway=SimpleNamespace(proc=process))))}"  # type: ignore[arg-type]
    # Spark's worker alone raises these.
    for found in ("no mqstore", "mqstore 0.0.1"):
        yield f"worker w has {found}; the driver has mqstore 0.1.0"
    yield "row 3 of task 0: topic: expected 1 to 127 bytes, got 0"
    yield "column body: expected binary, got string; cast it, for example"


def raised(call: Callable[..., object], *arguments: object) -> str:
    """The text of the error that a call raises."""
    with pytest.raises(StoreError) as caught:
        call(*arguments)
    return str(caught.value)


TEXTS = [text for text in texts() if len(text) < 1000]


@pytest.mark.parametrize(("quote", "row"), QUOTES)
def test_a_quoted_error_can_be_raised_and_has_its_reason(quote: str, row: str) -> None:
    pattern = ".*".join(re.escape(part) for part in quote.split("…"))
    found = next((text for text in TEXTS if re.search(pattern, text)), None)
    assert found is not None, quote
    if words := re.search(r"\[([a-z A-Z]+)\]", re.sub("`[^`]*`", "", row)):
        assert reason(RuntimeError(found)) == words[1]
