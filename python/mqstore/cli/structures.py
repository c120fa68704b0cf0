"""The single structures of an opened store, as the commands find them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import mqstore

if TYPE_CHECKING:
    from mqstore import ConsumeQueue, IndexFile, QueueInfo, Store

__all__ = ["index_files", "open_index_file", "open_queue", "queue_bytes"]

_FOLDER_OF = {"SimpleCQ": "consumequeue", "BatchCQ": "batchconsumequeue"}


def open_queue(store: Store, queue: QueueInfo) -> ConsumeQueue | None:
    """The files of a queue; ``None`` where it has none yet, its messages being in the log only."""
    folder = Path(store.path, _FOLDER_OF[queue.kind], queue.topic, str(queue.queue_id))
    if not folder.is_dir():
        return None
    return mqstore.ConsumeQueue(folder)


def find_queue(store: Store, topic: str, queue_id: int) -> QueueInfo:
    """The queue of that name.

    Raises:
        click.ClickException: There is none.
    """
    for queue in store.queues(topic):
        if queue.queue_id == queue_id:
            return queue
    raise click.ClickException(f"no queue {queue_id} of topic {topic!r} in {store.path}")


def queue_bytes(store: Store, queue: QueueInfo) -> int:
    """Sizes of the records that a queue's files lead to, together."""
    files = open_queue(store, queue)
    if files is None:
        return 0
    entries = files.entries(queue.min_offset, queue.max_offset)
    return sum(entry.store_size for entry in entries)


def index_files(store: Store) -> list[Path]:
    """The index files, oldest first: 17 digits sort by time."""
    folder = Path(store.path, "index")
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        # A link is not followed, as everywhere below a store.
        if len(path.name) == 17
        and path.name.isdecimal()
        and path.is_file()
        and not path.is_symlink()
    )


def open_index_file(store: Store, path: Path) -> IndexFile:
    """One of them, with the slots and entries that the store found."""
    config = store.config
    assert config.max_hash_slot_num is not None  # noqa: S101 - a store's own settings are whole
    assert config.max_index_num is not None  # noqa: S101
    return mqstore.IndexFile(path, slots=config.max_hash_slot_num, entries=config.max_index_num)
