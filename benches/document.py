"""Figures go into a page of the documentation, between two marks that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put_section(page: Path, name: str, text: str) -> None:
    """Replaces what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page}: no section {name}: expected {begin.strip()} and {end}")
    page.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")
