"""Stores of very many topics in a process that may open few files."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

OPEN_FILES = 256
"""Default limit of macOS."""

WITH_FEW_FILES = """
import resource, sys
import mqstore

root, flush, when = sys.argv[1:4]
allowed = int(sys.argv[4])

def allow():
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))

if when == "before":
    allow()
topics = [f"topic{number}" for number in range(1500)]
config = {"flush_disk_type": flush, "mapped_file_size_consume_queue": 2000}

def write(store, count):
    for _ in range(count):
        store.append_many([mqstore.Message(topic, b"body", keys="k") for topic in topics])

with mqstore.open(root, "a", config=config) as store:
    write(store, 1)
    store.flush()
    # The store keeps more files open by now than are allowed from here on.
    allow()
    write(store, 1)
    store.flush()
    write(store, 1)
with mqstore.open(root, "r+", config=config) as store:
    write(store, 1)
for mode in ("r", "r+"):
    with mqstore.open(root, mode) as store:
        for topic in topics:
            assert len(store.read(topic, 0, 0).messages) == 4, topic
        assert store.warnings == [], store.warnings
"""


@pytest.mark.parametrize("when", ["before", "while open"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_1500_topics_with_256_open_files(tmp_path: Path, flush: str, when: str) -> None:
    program = [sys.executable, "-c", WITH_FEW_FILES, str(tmp_path), flush, when, str(OPEN_FILES)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert mqstore.verify(tmp_path).ok
