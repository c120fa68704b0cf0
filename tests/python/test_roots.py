"""A commit log spread over several folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4096


def settings(root: Path, *, read_only: str = "") -> dict[str, object]:
    given: dict[str, object] = {
        "store_path_commit_log": ",".join(str(root / name) for name in "abc"),
        "mapped_file_size_commit_log": SIZE,
        # The disk of the tests may be fuller than what counts as full.
        "disk_space_clean_forcibly_ratio": 100,
    }
    if read_only:
        given["read_only_commit_log_store_paths"] = ",".join(str(root / n) for n in read_only)
    return given


def files_in(root: Path) -> dict[str, list[int]]:
    return {
        name: sorted(int(path.name) // SIZE for path in (root / name).iterdir()) for name in "abc"
    }


def test_mf09_files_take_turns_and_are_read_in_order(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with mqstore.open(root, "a", config=settings(tmp_path)) as store:
        for number in range(9):
            store.append("T", bytes([number]) * 3000)
    assert files_in(tmp_path) == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5, 8]}
    with mqstore.open(root, config=settings(tmp_path)) as store:
        assert [message.body[0] for message in store.scan()] == list(range(9))


def test_mf10_folders_that_are_only_read_take_no_new_files(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with mqstore.open(root, "a", config=settings(tmp_path)) as store:
        for number in range(3):
            store.append("T", bytes([number]) * 3000)
    with mqstore.open(root, "r+", config=settings(tmp_path, read_only="ac")) as store:
        for number in range(3, 7):
            store.append("T", bytes([number]) * 3000)
    assert files_in(tmp_path) == {"a": [0], "b": [1, 3, 4, 5, 6], "c": [2]}
    with mqstore.open(root, config=settings(tmp_path)) as store:
        assert [message.body[0] for message in store.scan()] == list(range(7))
