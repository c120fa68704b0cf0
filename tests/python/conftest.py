"""Stores behind URLs, for the tests of `test_cloud.py` and `test_cloud_calls.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.buckets import SMALL, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from helpers.buckets import Bucket


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with s3_server(tmp_path_factory.mktemp("weed")) as bucket:
        yield bucket


@pytest.fixture
def memory() -> Iterator[Callable[[Path], str]]:
    """Puts a folder into fsspec's file system in memory; returns its URL."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")

    def put(folder: Path) -> str:
        system.put(str(folder), "/store", recursive=True)
        return "memory://store"

    yield put
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(scope="session")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of several log files, with keys, tags, groups and a retry topic."""
    folder = tmp_path_factory.mktemp("usual") / "store"
    with mqstore.open(folder, "a", config=SMALL) as store:
        for number in range(1500):
            topic = "%RETRY%billing" if number % 50 == 0 else "orders"
            store.append(
                topic,
                f"body {number} ".encode() * 200,
                queue_id=0 if number % 50 == 0 else number % 4,
                tags="paid" if number % 3 else "open",
                keys=f"key-{number}",
            )
        with store.group("billing") as group:
            group.poll("orders", max_messages=20)
            group.commit()
    return folder
