"""Log files that are missing at the end: nothing removes the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 2_000}


def test_a_rebuild_in_place_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SMALL) as store:
        store.append_many([("t", b"%d" % number + b"x" * 100) for number in range(1500)])
    # As a broker leaves a store, without the files of our own.
    for name in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
        (path / name).unlink()
    last = max((path / "commitlog").iterdir())
    kept = tmp_path / "kept"
    last.rename(kept)
    with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
        mqstore.rebuild(path)
    assert "MQ-DOC-13" in {finding.code for finding in mqstore.doctor(path)}
    made = mqstore.rebuild(path, out=tmp_path / "elsewhere")
    assert made.queues[0].max_offset < 1500
    kept.rename(last)
    with mqstore.open(path, "r+") as store:
        assert len(store.topic("t")) == 1500
