"""`make counts` fails when a path needs more than it did."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The script's names."""
    monkeypatch.syspath_prepend(ROOT / "benches")
    return runpy.run_path(str(ROOT / "benches/counts.py"))


def one(instructions: float, misses: float) -> dict[str, dict[str, float]]:
    """Counts of one path."""
    return {"append-128": {"instructions": instructions, "misses": misses}}


def test_growth_by_more_than_three_in_a_hundred_is_told(counts: dict[str, Any]) -> None:
    grown, kept = counts["grown"], one(1000, 10)
    assert grown(kept, one(1030, 10.3)) == []
    assert grown(kept, one(500, 1)) == []
    assert grown(kept, one(1031, 10)) == ["append-128: 1,000.0 instructions before, 1,031.0 now"]
    assert grown(kept, one(1000, 11)) == ["append-128: 10.0 misses before, 11.0 now"]
    assert grown({"recover": kept["append-128"]}, {"recover": one(1000, 11)["append-128"]}) == []


def test_another_compiler_is_a_named_skip(
    counts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = counts["main"].__globals__
    kept = json.loads((ROOT / "docs/performance/counts.json").read_text(encoding="utf-8"))
    others = {name: kept[name] for name in ("valgrind", "library", "machine")}
    monkeypatch.setitem(names, "tools", lambda: {"rustc": "rustc 9.9", **others})
    monkeypatch.setattr(names["shutil"], "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(sys, "argv", ["counts.py"])
    assert counts["main"]() == 0
    assert capsys.readouterr().out.startswith("skipped: counts: rustc is rustc 9.9, the kept")


def test_the_kept_counts_are_of_every_path(counts: dict[str, Any]) -> None:
    kept = json.loads((ROOT / "docs/performance/counts.json").read_text(encoding="utf-8"))
    assert list(kept["counts"]) == list(counts["PATHS"])
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert counts["table"](kept["counts"]) in page
