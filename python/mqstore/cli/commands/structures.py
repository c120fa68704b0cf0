"""``cq``, ``checkpoint`` and ``index``: single structures as they lie on disk."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore._names import nearest, recent_keys
from mqstore.cli import shared
from mqstore.cli.commands.queues import find_queue
from mqstore.cli.names import check_topics
from mqstore.cli.options import flag, option, read_command
from mqstore.cli.output import Column, Lines, Output, Row, Rows, columns, note
from mqstore.cli.progress import progress
from mqstore.files.layout import index_files, open_index_files, open_queue
from mqstore.store import below, root_of
from mqstore.text import count_text, time_text

if TYPE_CHECKING:
    from pathlib import Path

    from mqstore import ConsumeQueue, IndexEntry, IndexHeader, QueueEntry, Store


_CHECKPOINT_TIMES = (
    "physic_msg_timestamp_ms",
    "logics_msg_timestamp_ms",
    "index_msg_timestamp_ms",
    "min_timestamp_ms",
    "min_timestamp_index_ms",
)
_CHECKPOINT_OFFSETS = ("master_flushed_offset", "confirm_physical_offset", "logics_physical_offset")

_ENTRY = ("queue_offset", "physical_offset", "store_size", "tags_code")
_BATCH_ENTRY = ("message_count", "store_timestamp_ms")
# Its queues hold delivery times and not codes of tags.
_DELAYED_TOPIC = "SCHEDULE_TOPIC_XXXX"
# A code at or below this is an address of the queue's extension.
_LAST_ADDRESS = -(2**31) - 1


@read_command("cq")
@shared.topic
@shared.queue(required=True)
@option("-o --offset", "OFFSET", "Begin at this entry.")
@shared.limit(None, "entries")
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
    """Print the entries of a consume queue as its files hold them.

    Examples:
        mqstore cq /data/store -t orders -q 0 -n 20
        mqstore cq /data/store -t orders -q 0 --check
    """
    with mqstore.open(store, config=config) as opened:
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
    """Print the checkpoint: up to which store times the files are known to be flushed.

    Examples:
        mqstore checkpoint /data/store
        mqstore checkpoint /data/store --json
    """
    with mqstore.open(store, config=config) as opened:
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


_ENTRY_COLUMNS = columns(
    "file",
    Column("number", right=True, title="ENTRY"),
    Column("key_hash", right=True, title="HASH"),
    "physical_offset",
    Column("seconds", right=True),
    Column("time_ms", time_text, title="TIME"),
    Column("prev_entry", right=True, title="PREVIOUS"),
)
_HEADER_COLUMNS = columns(
    "file",
    Column("entries", count_text, right=True),
    Column("capacity", count_text, right=True),
    Column("hash_slot_count", count_text, right=True, title="SLOTS USED"),
    Column("slots", count_text, right=True),
    Column("begin_physical_offset", right=True, title="BEGIN"),
    Column("end_physical_offset", right=True, title="END"),
    Column("begin_timestamp_ms", time_text, title="FIRST"),
    Column("end_timestamp_ms", time_text, title="LAST"),
)
_HEADER = (
    *("hash_slot_count", "index_count", "begin_physical_offset", "end_physical_offset"),
    *("begin_timestamp_ms", "end_timestamp_ms"),
)


@read_command("index", short_help="Print index files: headers, entries, a key's chain.")
@option("--file only", "NAME", "Only this index file.")
@flag("--entries", "Print the entries, oldest first.")
@option(
    "--chain",
    "KEY",
    'Walk the chain of this key, newest first: "topic#key", or the key alone with -t.',
)
@shared.topics()
@shared.limit(None, "entries")
def index_command(
    output: Output,
    store: str,
    only: str | None,
    entries: bool,
    chain: str | None,
    topics: tuple[str, ...],
    limit: int | None,
    config: str | None,
) -> int:
    """Print the headers of the index files, their entries, or the chain of one key.

    Examples:
        mqstore index /data/store
        mqstore index /data/store -t orders --chain order-17
    """
    if entries and chain is not None:
        raise click.UsageError("--entries and --chain exclude each other.")
    with mqstore.open(store, config=config) as opened:
        paths = [path for path in index_files(root_of(opened)) if only in {None, path.name}]
        if only is not None and not paths:
            raise click.ClickException(f"no index file {only!r} in {opened.path}")
        if paths and not opened.index_usable:
            note("the index files do not fit these settings; say --config with the broker's own")
            return 1
        if chain is not None:
            check_topics(opened, topics)
            keys = [f"{topic}#{chain}" for topic in topics] or [chain]
            return _print_chain(output, opened, paths, keys, limit)
        if entries:
            output.rows(entry_rows(opened, paths, limit), _ENTRY_COLUMNS)
        else:
            output.rows(_header_rows(opened, paths), _HEADER_COLUMNS)
    return 0


def _header_rows(store: Store, paths: list[Path]) -> Rows:
    for path, file in open_index_files(store, paths):
        header = file.header
        yield {
            "file": path.name,
            "entries": len(file),
            "capacity": file.capacity,
            "slots": file.slots,
            **{name: getattr(header, name) for name in _HEADER},
        }


def entry_rows(store: Store, paths: list[Path], limit: int | None) -> Rows:
    """The entries of index files, as ``mqstore index --entries --json`` lists them."""

    def rows() -> Rows:
        for path, file in open_index_files(store, paths):
            header = file.header
            for number in range(1, len(file) + 1):
                yield _entry_row(path, header, file.entry(number))

    return itertools.islice(rows(), limit)


def _entry_row(path: Path, header: IndexHeader, entry: IndexEntry) -> Row:
    return {
        "file": path.name,
        "number": entry.number,
        "key_hash": entry.key_hash,
        "physical_offset": entry.physical_offset,
        "seconds": entry.seconds,
        "time_ms": header.begin_timestamp_ms + 1000 * entry.seconds,
        "prev_entry": entry.prev_entry,
    }


def _print_chain(
    output: Output, store: Store, paths: list[Path], keys: list[str], limit: int | None
) -> int:
    slots = store.config.max_hash_slot_num
    assert slots is not None  # noqa: S101 - a store's own settings are whole
    for key in keys:
        key_hash = mqstore.key_hash(key)
        note(f"{key}: hash {key_hash}, slot {key_hash % slots} of {slots}")
    found, walked = False, 0

    def rows() -> Rows:
        nonlocal found, walked
        for key in keys:
            for path, file in open_index_files(store, reversed(paths)):
                header = file.header
                for entry in file.chain(key):
                    match = _match(store, entry, key, mqstore.key_hash(key))
                    found, walked = found or match == "yes", walked + 1
                    yield _entry_row(path, header, entry) | {"match": match}

    output.rows(itertools.islice(rows(), limit), (*_ENTRY_COLUMNS, Column("match")))
    if not found and walked == limit:
        names = " or ".join(map(repr, keys))
        note(
            f"mqstore: none of the first {limit} entries is of key {names}; leave out -n to walk "
            "the whole chain"
        )
        return 1
    if not found:
        recent = {f"{topic}#{key}" for topic, key in recent_keys(store)}
        for key in keys:
            note(f"mqstore: no entry of key {key!r} in the index{nearest(key, recent)}")
        return 1
    return 0


def _match(store: Store, entry: IndexEntry, key: str, key_hash: int) -> str:
    """Relation of an entry in the key's slot to the key."""
    if entry.key_hash != key_hash:
        return "another hash in this slot"
    try:
        message = store.get(entry.physical_offset)
    except mqstore.StoreError as error:
        return str(error)
    keys = (message.unique_key, *message.keys)
    if key in {f"{message.topic}#{one}" for one in keys if one is not None}:
        return "yes"
    return "another key with this hash"
