"""Chromium for the tests that need it; skipped, with the reason, where it cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

_PREREQUISITES = Path(__file__).parents[2] / "scripts" / "prerequisites.sh"
# It runs as root in a container, and asks nobody for anything.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The one browser of a file of tests: its event loop, while it runs, lets no other begin."""
    found = subprocess.run(
        [_PREREQUISITES, "browser"], capture_output=True, text=True, check=False, timeout=60
    )
    if found.returncode != 0:
        pytest.skip(f"[browser] {found.stderr.strip().removeprefix('mqstore: ')}")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=_ARGUMENTS, timeout=60_000
        )
        yield running
        running.close()
