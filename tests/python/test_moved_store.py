"""A store whose folder is moved under its writer, or under a consumer group."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Callable
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


def move_away(root: Path) -> Path:
    return root.rename(root.with_name("moved"))


def put_a_store(root: Path) -> None:
    with mqstore.open(root, "a", config=TINY) as other:
        other.append_many([mqstore.Message("orders", b"other's")] * 60)


def replace_by_a_store(root: Path) -> None:
    move_away(root)
    put_a_store(root)


def remove_and_make_a_store(root: Path) -> None:
    # The system gives a new file the number of one that is gone.
    shutil.rmtree(root)
    put_a_store(root)


def replace_by_a_folder(root: Path) -> None:
    move_away(root)
    (root / "config").mkdir(parents=True)


def replace_the_content(root: Path) -> None:
    for part in list(root.iterdir()):
        part.rename(root.with_name(f"old-{part.name}"))
    put_a_store(root)


def content(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


REPLACED = [
    move_away,
    shutil.rmtree,
    replace_by_a_store,
    remove_and_make_a_store,
    replace_by_a_folder,
    replace_the_content,
]
ENDED = [
    lambda group, held: group.ack(held[0]),
    lambda group, held: group.ack(held[-1]),
    lambda group, held: group.nack(held[0]),
    lambda group, _: group.commit(),
    lambda group, _: group.seek("orders", 0, 1),
]


GONE = (mqstore.StorePoisonedError, mqstore.StoreIOError, mqstore.OffsetOutOfRangeError)
"""A read finds no store, another one, or another log at the path."""


@pytest.mark.parametrize("replace", REPLACED)
@pytest.mark.parametrize("has_acked", [False, True])
def test_a_reader_s_group_writes_nothing_into_another_store(
    tmp_path: Path, replace: Callable[[Path], object], *, has_acked: bool
) -> None:
    root = tmp_path / "store"
    config = {**TINY, "delivery": True}
    with mqstore.open(root, "a", config=config) as store:
        store.append_many([mqstore.Message("orders", b"%d" % number) for number in range(50)])
    reader = mqstore.open(root)
    group = reader.group("g")
    held = group.poll("orders", visibility_s=3600)
    if has_acked:
        assert group.ack(held.pop())
    replace(root)
    before = content(root)
    for end in ENDED:
        with pytest.raises(mqstore.StorePoisonedError, match="moved, removed or replaced"):
            end(group, held)
    group._hide(held, None, 0)
    for read in (
        lambda: group.poll("orders"),
        lambda: reader.group("h").process("orders", bool, idle_s=0),
    ):
        with pytest.raises(GONE):
            read()
    if has_acked:
        with pytest.raises(mqstore.StorePoisonedError):
            group.close()
    group.close()
    reader.close()
    assert content(root) == before


def test_a_handler_under_which_the_store_is_replaced_commits_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([mqstore.Message("orders", b"")] * 3)

    def fail(_: mqstore.StoredMessage) -> None:
        replace_by_a_store(root)
        raise RuntimeError

    for handler in (fail, lambda _: replace_by_a_store(root)):
        reader = mqstore.open(root)
        group = reader.group("g")
        with pytest.raises(mqstore.StorePoisonedError, match="moved, removed or replaced"):
            group.process("orders", handler, max_messages=1, idle_s=0)
        reader.close()
        assert not (root / "config" / "consumerOffset.json").exists()
        assert not (root / "mqstore.failed").exists()
        shutil.rmtree(tmp_path / "moved")


def test_a_writer_s_group_stops_with_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = mqstore.open(root, "a", config=TINY)
    store.append_many([mqstore.Message("orders", b"")] * 3)
    group = store.group("g")
    held = group.poll("orders")
    replace_by_a_store(root)
    before = content(root)
    for end in (lambda: group.ack(held[0]), group.commit):
        with pytest.raises(mqstore.StorePoisonedError, match="moved, removed or replaced"):
            end()
    with pytest.raises(mqstore.StorePoisonedError):
        store.close()
    assert content(root) == before


def test_a_missing_lock_is_no_sign_of_another_store(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("orders", b"")
    (tmp_path / "lock").unlink()
    with mqstore.open(tmp_path) as reader, reader.group("g") as group:
        (message,) = group.poll("orders")
        assert group.ack(message)
        group.commit()
        (tmp_path / "lock").unlink()
        with pytest.raises(mqstore.StorePoisonedError):
            group.poll("orders")
