"""``cq`` and ``checkpoint``: single structures as they lie on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import (
    flag,
    limit_option,
    open_store,
    option,
    queue_option,
    read_command,
    topic_option,
)
from mqstore.cli.output import Column, Lines, Output, Rows, columns, note
from mqstore.cli.progress import progress
from mqstore.cli.structures import find_queue, open_queue
from mqstore.cli.units import OFFSET
from mqstore.store import below, root_of
from mqstore.text import time_text

if TYPE_CHECKING:
    from mqstore import ConsumeQueue, QueueEntry, Store

_CHECKPOINT_TIMES = (
    "physic_msg_timestamp_ms",
    "logics_msg_timestamp_ms",
    "index_msg_timestamp_ms",
    "min_timestamp_ms",
    "min_timestamp_index_ms",
)
_CHECKPOINT_OFFSETS = (
    "master_flushed_offset",
    "confirm_physical_offset",
    "logics_physical_offset",
)

_ENTRY = ("queue_offset", "physical_offset", "store_size", "tags_code")
_BATCH_ENTRY = ("message_count", "store_timestamp_ms")
# Its queues hold delivery times and not codes of tags.
_DELAYED_TOPIC = "SCHEDULE_TOPIC_XXXX"
# A code at or below this is an address of the queue's extension.
_LAST_ADDRESS = -(2**31) - 1


@read_command("cq")
@topic_option
@queue_option(required=True)
@option("-o --offset", "OFFSET", "Begin at this entry.", type=OFFSET)
@limit_option(None, "entries")
@flag("--check", "Hold each entry against the log; 1 if one is wrong.")
def cq_command(
    output: Output,
    store: str,
    topic: str,
    queue_id: int,
    offset: int | None,
    limit: int | None,
    check: bool,
    config: str | None,
) -> int:
    """Print the entries of a consume queue as its files hold them."""
    with open_store(store, config) as opened:
        queue = open_queue(opened, find_queue(opened, topic, queue_id))
        if queue is None:
            note("no file yet: the messages of this queue are in the log only")
            return 0
        rows = _Entries(opened, queue, check=check)
        shown = columns(
            "queue_offset",
            "physical_offset",
            Column("store_size", right=True, title="SIZE"),
            Column("tags_code", right=True, title="TAGS CODE"),
            *((Column("message_count", right=True, title="MESSAGES"),) if rows.batch else ()),
            *(("problem",) if check else ()),
        )
        output.rows(rows.read(offset, limit), shown)
    if check:
        note(f"{rows.checked} entries compared with the log, {rows.wrong} of them wrong")
    return int(rows.wrong > 0)


class _Entries:
    """The entries of a queue as rows, and what is wrong with them."""

    def __init__(self, store: Store, queue: ConsumeQueue, *, check: bool) -> None:
        self._store = store
        self._queue = queue
        self._check = check
        self.batch = queue.kind == "BatchCQ"
        self.checked = 0
        self.wrong = 0

    def read(self, offset: int | None, limit: int | None) -> Rows:
        begin, end = self._queue.min_offset, self._queue.max_offset
        if offset is not None:
            begin = max(offset, begin)
        if limit is not None:
            end = min(begin + limit, end)
        fields = _ENTRY + _BATCH_ENTRY * self.batch
        with progress("checking entries", unit="entries", beside_output=True) as advance:
            for entry in self._queue.entries(begin, end):
                row = {name: getattr(entry, name) for name in fields}
                if self._check:
                    problem = self._problem(entry)
                    self.checked += 1
                    self.wrong += problem is not None
                    row["problem"] = problem
                yield row
                advance(entry.queue_offset - begin, end - begin)

    def _problem(self, entry: QueueEntry) -> str | None:
        if entry.physical_offset < self._store.min_physical_offset:
            return None  # gone with an expired file of the log, as it should be
        try:
            message = self._store.get(entry.physical_offset)
        except mqstore.StoreError as error:
            return str(error)
        if message.store_size != entry.store_size:
            return f"the record has {message.store_size} bytes"
        here = self._queue.topic, self._queue.queue_id
        if (message.topic, message.queue_id) != here:
            dispatched_to = message.properties.get("INNER_MULTI_DISPATCH", "").split(",")
            if self._queue.topic in dispatched_to:
                return None
            return f"the record is of {message.topic}/{message.queue_id}"
        if message.queue_offset != entry.queue_offset:
            return f"the record says queue offset {message.queue_offset}"
        if self._queue.topic == _DELAYED_TOPIC or entry.tags_code <= _LAST_ADDRESS:
            return None
        code = mqstore.tags_code(message.tags)
        return None if entry.tags_code == code else f"the tags' code is {code}"


@read_command("checkpoint", short_help="Print the checkpoint.")
def checkpoint_command(output: Output, store: str, config: str | None) -> None:
    """Print the checkpoint: up to which store times the files are known to be flushed."""
    with open_store(store, config) as opened:
        path = below(root_of(opened), "checkpoint")
        if not path.exists():
            raise click.ClickException(f"no checkpoint in {opened.path}")
        checkpoint = mqstore.Checkpoint(path)
    fields = {
        name: int(getattr(checkpoint, name)) for name in (*_CHECKPOINT_TIMES, *_CHECKPOINT_OFFSETS)
    }

    def lines() -> Lines:
        for name, value in fields.items():
            if name in _CHECKPOINT_TIMES:
                yield f"{name.removesuffix('_ms'):<28} {time_text(value) if value > 0 else '-'}"
            else:
                yield f"{name:<28} {value}"

    output.document(fields, lines)
