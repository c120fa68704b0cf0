"""Files as one address space, as far as a store shows them: cases MF of tests/cases.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.files import stamps
from helpers.stores import TINY, log_files, message, offsets

if TYPE_CHECKING:
    from pathlib import Path


def three_files(root: Path) -> list[int]:
    """A store with three commit log files and no empty one; where its messages lie."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(size=1000)] * 10)
        found = offsets(store)
    assert log_files(root) == [f"{4096 * n:020}" for n in range(3)]
    return found


def test_mf07_strange_names_beside_the_files(tmp_path: Path) -> None:
    found = three_files(tmp_path)
    (tmp_path / "commitlog" / "notes.txt").write_text("mine")
    (tmp_path / "commitlog" / "folder").mkdir()
    (tmp_path / "commitlog" / f"{4096 * 3:020}").touch()
    before = stamps(tmp_path)
    with mqstore.open(tmp_path, config=TINY) as store:
        assert offsets(store) == found
    report = mqstore.verify(tmp_path, config=TINY)
    assert stamps(tmp_path) == before
    warned = {finding.path for finding in report.findings if finding.severity == "warning"}
    assert warned == {"commitlog/notes.txt", "commitlog/folder"}
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert offsets(store) == found
        added = store.append("T", bytes(2000))
        assert store.get(added.physical_offset).body == bytes(2000)
    assert (tmp_path / "commitlog" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "commitlog" / "folder").is_dir()
    lengths = {path.stat().st_size for path in (tmp_path / "commitlog").glob("0*")}
    assert lengths == {4096}


def test_mf07_empty_file_in_the_middle(tmp_path: Path) -> None:
    three_files(tmp_path)
    middle = tmp_path / "commitlog" / f"{4096:020}"
    middle.write_bytes(b"")
    before = stamps(tmp_path)
    with pytest.raises(mqstore.CorruptionError) as refused:
        mqstore.open(tmp_path, "r+", config=TINY)
    assert middle.name in str(refused.value)
    after = stamps(tmp_path)
    assert {name: after[name] for name in before if name.startswith("commitlog")} == {
        name: stamp for name, stamp in before.items() if name.startswith("commitlog")
    }


def test_mf08_size_differs_from_the_files(tmp_path: Path) -> None:
    found = three_files(tmp_path)
    before = stamps(tmp_path)
    for mode in ("r", "r+", "a"):
        with pytest.raises(mqstore.ConfigError) as refused:
            mqstore.open(tmp_path, mode, config={"mapped_file_size_commit_log": 2048})
        assert refused.value.field == "mapped_file_size_commit_log"
        for told in ("2048", "4096", f"{0:020}"):
            assert told in str(refused.value)
    kept = {n: s for n, s in before.items() if n.startswith(("commitlog", "consumequeue", "index"))}
    assert {name: stamps(tmp_path)[name] for name in kept} == kept
    index = {"max_hash_slot_num": 7, "max_index_num": 50}
    with mqstore.open(tmp_path, "r+", config=index) as store:
        assert store.config.mapped_file_size_commit_log == 4096
        assert store.config.mapped_file_size_consume_queue == 200
        assert offsets(store) == found
