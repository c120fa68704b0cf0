"""The single structures of an opened store, as the commands find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.names import check_queue, check_topics
from mqstore.store import below, root_of

if TYPE_CHECKING:
    from mqstore import ConsumeQueue, QueueInfo, Store

_FOLDER_OF = {"SimpleCQ": "consumequeue", "BatchCQ": "batchconsumequeue"}


def open_queue(store: Store, queue: QueueInfo) -> ConsumeQueue | None:
    """The files of a queue; ``None`` where it has none yet, its messages being in the log only."""
    names = _FOLDER_OF[queue.kind], queue.topic, str(queue.queue_id)
    folder = below(root_of(store), *names)
    if not folder.is_dir():
        return None
    return mqstore.ConsumeQueue(folder)


def find_queue(store: Store, topic: str, queue_id: int) -> QueueInfo:
    """The queue of that name.

    Raises:
        click.ClickException: There is none.
    """
    check_topics(store, [topic])
    check_queue(store, [topic], queue_id)
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
