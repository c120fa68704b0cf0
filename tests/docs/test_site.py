"""The documentation site: it builds without a warning, and its references are complete."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import mqstore

ROOT = Path(__file__).parents[2]


def test_generated_parts_are_current() -> None:
    script = ROOT / "scripts/reference.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_python_reference_names_everything_public() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: mqstore\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(named) == sorted({*mqstore.__all__, "aio"} - {"__version__"})


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"(\S+\.md)$", navigation, flags=re.MULTILINE))
    pages = {
        str(page.relative_to(ROOT / "docs"))
        for page in (ROOT / "docs").rglob("*.md")
        # Reached from the lists in their folders.
        if page.parent.name not in ("adr", "findings") or page.name in ("README.md", "index.md")
    }
    assert listed == pages


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    # Built elsewhere, so that the tree stays as it is.
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    config = config.replace("paths: [python]", f"paths: [{ROOT / 'python'}]")
    (tmp_path / "mkdocs.yml").write_text(config, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", tmp_path / "mkdocs.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "site/python/index.html").read_text(encoding="utf-8")
    assert "scan_arrow" in reference
    for name in ("index.html", "findings/index.html", "commands/index.html"):
        assert (tmp_path / "site" / name).is_file()
