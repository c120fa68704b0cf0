"""The structures of a store as tables: ``table=`` with anything but ``messages``.

``raw`` and ``dispatch`` are views of the log and are planned and filtered as messages are. The
others are read structure by structure; an option that a table cannot filter by is refused.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import mqstore
from mqstore import _native
from mqstore.errors import StoreError
from mqstore.files.layout import index_files
from mqstore.spark.compat import InputPartition
from mqstore.spark.failures import in_one_sentence
from mqstore.spark.plan import pack, ranges_of
from mqstore.spark.reader import MessageReader, PushdownReader, Reader, batches_of, task_cpus
from mqstore.spark.schema import ARROW_SCHEMAS, usual_columns
from mqstore.spark.stores import find_stores, log_once
from mqstore.spark.values import LOG
from mqstore.store import below, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceReader

    from mqstore.spark.options import ReadOptions

_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
_ENTRY_BYTES = 20


def make_table_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceReader:
    """The reader of the table that the options name."""
    is_messages = options.table == "messages"
    # Spark does not tell which columns a query uses.
    if is_messages and options.columns is None and set(usual_columns()) <= set(columns):
        log_once(
            logging.INFO,
            f"all {len(usual_columns())} columns of a message are decoded, whichever the query "
            "uses; option columns=topic,body decodes only those that it names",
        )
    in_log = PushdownReader if options.pushdown and is_messages else MessageReader
    return (in_log if options.table in LOG else StructureReader)(options, tuple(columns))


@dataclass(frozen=True)
class StructurePart(InputPartition):
    """One task's part of a structure.

    Attributes:
        store: The store's directory.
        broker: Value of the column ``broker``.
        table: Which table.
        size: Bytes that the task reads, about.
        path: The file or folder; empty where the whole store is meant.
        begin: The first entry.
        end: One past the last.
        slots: Slots of an index file, which does not tell them itself.
        capacity: Room for entries of an index file, the same.
    """

    store: str
    broker: str
    table: str
    size: int = 0
    path: str = ""
    begin: int = 0
    end: int = 0
    slots: int = 0
    capacity: int = 0


class StructureReader(Reader):
    """Reads a structure."""

    @in_one_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        """Tasks of about ``splitBytes``, each of parts of queues, index files or stores."""
        parts: list[StructurePart] = []
        for store in find_stores(self.options):
            whole = StructurePart(store.path, store.broker, self.options.table)
            split = _SPLIT.get(whole.table)
            parts += [whole] if split is None else split(whole, self.options)
        return pack(parts, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        for part in ranges_of(partition):
            yield from self._read(part)

    def _read(self, part: StructurePart) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([ARROW_SCHEMAS[part.table].field(name) for name in self.columns])
        for batch in _READ[part.table](part, self.options):
            whole = batch.append_column("broker", _same(part.broker, batch.num_rows))
            yield whole.select(schema.names).cast(schema)


def _same(value: str | int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)


def _queue_parts(whole: StructurePart, options: ReadOptions) -> Iterator[StructurePart]:
    entries = max(options.split_bytes // _ENTRY_BYTES, 1)
    timed = options.starting_timestamp_ms is not None or options.ending_timestamp_ms is not None
    for kind in _QUEUE_FOLDERS:
        root = below(options.root(whole.store), kind)
        topics = [topic for topic in root.iterdir() if topic.is_dir()] if root.is_dir() else []
        for folder in sorted(queue for topic in topics for queue in topic.iterdir()):
            topic, queue_id = str(folder).split("/")[-2:]
            if not (queue_id.isdecimal() and folder.is_dir()):
                continue
            if not _chooses(options, topic, int(queue_id)):
                continue
            queue = mqstore.ConsumeQueue(folder)
            first, last = queue.min_offset, queue.max_offset
            if timed:
                with mqstore.open(options.root(whole.store), config=options.config) as opened:
                    first, last = _between(opened, topic, int(queue_id), (first, last), options)
            for begin in range(first, last, entries):
                end = min(begin + entries, last)
                size = (end - begin) * _ENTRY_BYTES
                yield replace(whole, size=size, path=str(folder), begin=begin, end=end)


def _between(
    store: mqstore.Store, topic: str, queue_id: int, held: tuple[int, int], options: ReadOptions
) -> tuple[int, int]:
    """The queue offsets of a queue whose messages were stored between the times."""
    first, last = held
    if options.starting_timestamp_ms is not None:
        first = max(first, store.offset_at(topic, queue_id, options.starting_timestamp_ms))
    if options.ending_timestamp_ms is not None:
        last = min(last, store.offset_at(topic, queue_id, options.ending_timestamp_ms + 1))
    return first, last


def _log_part(whole: StructurePart, options: ReadOptions) -> Iterator[StructurePart]:
    with mqstore.open(options.root(whole.store), config=options.config) as opened:
        yield replace(whole, size=opened.max_physical_offset - opened.min_physical_offset)


def _consume_queue(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    path = options.root(part.store, part.path)
    scan = _native.scan_queue(path, part.begin, part.end)
    queue = Path(part.path)
    for batch in batches_of(scan, f"{part.path}, queue offsets {part.begin} to {part.end}"):
        times = _times(batch.column("store_timestamp_ms"))
        yield (
            batch.append_column("topic", _same(queue.parent.name, batch.num_rows))
            .append_column("queue_id", _same(int(queue.name), batch.num_rows))
            .append_column("store_timestamp", times)
        )


def _index_parts(whole: StructurePart, options: ReadOptions) -> Iterator[StructurePart]:
    root = options.root(whole.store)
    folder = below(root, "index")
    if not folder.is_dir():
        return
    with mqstore.open(root, config=options.config) as store:
        slots, capacity = store.config.max_hash_slot_num, store.config.max_index_num
    if slots is None or capacity is None:
        raise StoreError(f"{folder}: how many slots and entries its files have is not known")
    for path in index_files(root):
        size = path.stat().st_size
        yield replace(whole, size=size, path=str(path), slots=slots, capacity=capacity)


def _index(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    first, last = options.starting_timestamp_ms, options.ending_timestamp_ms
    path = options.root(part.store, part.path)
    with mqstore.IndexFile(path, slots=part.slots, entries=part.capacity) as file:
        begin_ms = file.header.begin_timestamp_ms
        for batch in batches_of(file.entries(), part.path):
            seconds = batch.column("seconds").cast(pa.int64())
            times = pc.add(pc.multiply(seconds, 1000), begin_ms)
            entries = batch.append_column(
                "file", _same(Path(part.path).name, batch.num_rows)
            ).append_column("store_timestamp", _times(times))
            for bound, compare in ((first, pc.greater_equal), (last, pc.less_equal)):
                if bound is not None:
                    entries = entries.filter(compare(times, bound))
                    times = times.filter(compare(times, bound))
            yield entries


def _times(milliseconds: pa.Array) -> pa.Array:
    return milliseconds.cast(pa.timestamp("ms", tz="UTC"))


def _files(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    root = options.root(part.store)
    found: dict[str, Any]  # `os.stat_result`, or that of an object
    if is_remote(root):
        found = {"/".join(names): state for names, state in root.entries() if state is not None}
    else:
        paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        found = {str(path.relative_to(root)): path.lstat() for path in paths}
    rows = [
        {
            "path": path,
            "structure": path.partition("/")[0],
            "size": found[path].st_size,
            "allocated": found[path].st_blocks * 512,
            "modified": found[path].st_mtime_ns // 1000,
        }
        for path in sorted(found)
    ]
    yield _rows(rows, "files")


def _checkpoint(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    with mqstore.open(options.root(part.store), config=options.config) as store:
        row: dict[str, object] = {
            "min_physical_offset": store.min_physical_offset,
            "max_physical_offset": store.max_physical_offset,
            "dispatched_offset": store.dispatched_offset,
            "abort": below(options.root(part.store), "abort").exists(),
        }
    path = below(options.root(part.store), "checkpoint")
    if path.exists():
        checkpoint = mqstore.Checkpoint(path)
        for name in ("physic", "logics", "index"):
            row[f"{name}_msg_timestamp"] = _micros(getattr(checkpoint, f"{name}_msg_timestamp_ms"))
        for name in ("master_flushed", "confirm_physical", "logics_physical"):
            row[f"{name}_offset"] = getattr(checkpoint, f"{name}_offset")
    yield _rows([row], "checkpoint")


def _micros(milliseconds: int) -> int | None:
    """A time of Spark's; ``None`` outside the years 1 to 9999."""
    return (
        milliseconds * 1000 if -62_135_596_800_000 <= milliseconds < 253_402_300_800_000 else None
    )


def _offsets(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    with mqstore.open(options.root(part.store), config=options.config) as store:
        rows = [
            {"consumer_group": group, **{name: getattr(one, name) for name in one.__match_args__}}
            for group, offsets in sorted(store.groups().items())
            for one in offsets
            if _chooses(options, one.topic, one.queue_id)
        ]
    yield _rows(rows, "offsets")


def _chooses(options: ReadOptions, topic: str, queue_id: int) -> bool:
    queues = options.queues
    is_chosen = queues is None or queue_id in dict(queues).get(topic, ())
    return is_chosen and bool(options.topics_of([topic]))


def _damage(part: StructurePart, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    level: Literal["full", "quick"] = "full" if options.verify_crc else "quick"
    threads = task_cpus()
    report = mqstore.verify(
        options.root(part.store), level=level, threads=threads, config=options.config
    )
    names = ARROW_SCHEMAS["damage"].names[1:]
    yield _rows([{name: getattr(one, name) for name in names} for one in report.findings], "damage")


def _rows(rows: Sequence[Mapping[str, object]], table: str) -> pa.RecordBatch:
    schema = ARROW_SCHEMAS[table]
    fields = [field for field in schema if field.name != "broker"]
    return pa.RecordBatch.from_pylist(list(rows), schema=pa.schema(fields))


_SPLIT: Mapping[str, Callable[[StructurePart, ReadOptions], Iterator[StructurePart]]] = {
    "consumequeue": _queue_parts,
    "index": _index_parts,
    "damage": _log_part,
}
_READ: Mapping[str, Callable[[StructurePart, ReadOptions], Iterator[pa.RecordBatch]]] = {
    "consumequeue": _consume_queue,
    "index": _index,
    "files": _files,
    "checkpoint": _checkpoint,
    "offsets": _offsets,
    "damage": _damage,
}
