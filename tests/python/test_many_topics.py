"""Stores of very many topics in a process that may open few files."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

OPEN_FILES = 256
"""Default limit of macOS."""
TOPICS = int(os.environ.get("MQSTORE_TOPICS", "1000"))
"""Topics of one message in a store; 200000 in the long run, whose times ``-s`` shows."""

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


WITH_MANY_TOPICS = """
import resource, sys, time
import mqstore

root, count = sys.argv[1], int(sys.argv[2])
began = time.monotonic()

def lap(work):
    global began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    now = time.monotonic()
    print(f"{work} {now - began:.1f} s, at most {peak} MiB", flush=True)
    began = now

names = [f"topic{number:06d}" for number in range(count)]
with mqstore.open(root, "a") as store:
    for first in range(0, count, 1000):
        store.append_many([mqstore.Message(name, b"one") for name in names[first : first + 1000]])
    lap("append")
lap("close")
for mode in ("r", "r+"):
    with mqstore.open(root, mode) as store:
        lap(f"open {mode}")
        assert store.topics() == names
        for name in names[:: max(1, count // 500)]:
            assert [found.body for found in store.read(name, 0, 0).messages] == [b"one"]
        began = time.monotonic()
    lap("close")
"""


def test_a_store_of_very_many_topics_is_closed_and_opened_whole(tmp_path: Path) -> None:
    """Default sizes of files; how long each step took is printed and asked of nobody."""
    program = [sys.executable, "-c", WITH_MANY_TOPICS, str(tmp_path), str(TOPICS)]
    done = subprocess.run(program, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if TOPICS <= 1000:
        assert mqstore.verify(tmp_path).ok
