"""``mqstore.rebuild``: its report, its progress, its errors."""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.files import stamps
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=TINY) as store:
        store.append_many(
            [message("T" if n % 3 else "U", keys=f"k{n}", queue_id=n % 2) for n in range(60)]
        )
    return path


def test_report(root: Path) -> None:
    shutil.rmtree(root / "index")
    heard: list[tuple[int, int]] = []
    report = mqstore.rebuild(root, config=TINY, progress=lambda *told: heard.append(told))
    assert (report.applied, report.messages, report.index_keys, report.index_files) == (
        True,
        60,
        60,
        2,
    )
    assert [(queue.topic, queue.queue_id, queue.entries) for queue in report.queues] == [
        ("T", 0, 20),
        ("T", 1, 20),
        ("U", 0, 10),
        ("U", 1, 10),
    ]
    assert report.queues[0].was == (0, 20)
    assert (
        heard[-1][0]
        == heard[-1][1]
        == sum(f.stat().st_size for f in (root / "commitlog").iterdir())
    )
    assert pickle.loads(pickle.dumps(report)) == report
    assert json.loads(report.to_json())["queues"][0]["max_offset"] == 20
    with mqstore.open(root, "r+", config=TINY) as store:
        assert store.recovery is not None
        assert store.recovery.rebuilt == ()
        assert len(store.query("T", "k1")) == 1


def test_an_exception_from_progress_ends_it(root: Path) -> None:
    before = {name: stamp for name, stamp in stamps(root).items() if name != "lock"}

    def enough(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mqstore.rebuild(root, config=TINY, progress=enough)
    assert {name: stamp for name, stamp in stamps(root).items() if name in before} == before
    assert not (root / "rebuild").exists()


def test_wrong_arguments(root: Path) -> None:
    with pytest.raises(ValueError, match='got "commitlog"'):
        mqstore.rebuild(root, what=["commitlog"], config=TINY)
    with pytest.raises(ValueError, match="what: expected consumequeue, index, or both"):
        mqstore.rebuild(root, what=(), config=TINY)
    with pytest.raises(ValueError, match="topics: expected at least one topic"):
        mqstore.rebuild(root, topics=[], config=TINY)
    with pytest.raises(ValueError, match="threads: expected 1 or more"):
        mqstore.rebuild(root, threads=0, config=TINY)
    with pytest.raises(mqstore.MessageNotFoundError, match='topic "V" has no message'):
        mqstore.rebuild(root, topics="V", config=TINY)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.rebuild(root / "commitlog")
    with mqstore.open(root, "r+", config=TINY), pytest.raises(mqstore.StoreLockedError):
        mqstore.rebuild(root, config=TINY)
