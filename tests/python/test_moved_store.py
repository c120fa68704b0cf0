"""A store whose folder is moved under its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_writer_stops_when_its_store_is_moved(tmp_path: Path, flush: str) -> None:
    root, moved = tmp_path / "store", tmp_path / "store.old"
    config = {**TINY, "flush_disk_type": flush}
    store = mqstore.open(root, "a", config=config)
    acknowledged = 0

    def append(count: int) -> None:
        nonlocal acknowledged
        for number in range(acknowledged, acknowledged + count):
            store.append("T", b"%04d" % number * 50)
            acknowledged = number + 1

    append(20)
    root.rename(moved)
    with pytest.raises(mqstore.StorePoisonedError, match="moved, removed or replaced") as raised:
        append(1000)
    assert acknowledged == 20 or flush == "ASYNC_FLUSH"
    assert raised.value.path == str(root)
    with pytest.raises(mqstore.StorePoisonedError):
        store.close()
    assert not root.exists()
    with mqstore.open(moved, "r+", config=config) as again:
        bodies = [message.body for message in again.scan()]
    assert len(bodies) >= acknowledged
    assert bodies == [b"%04d" % number * 50 for number in range(len(bodies))]
