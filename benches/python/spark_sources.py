"""Baselines of the scan through Spark: a plain-Python decoder, and no decoder.

Workers of Spark import this module by its name.
"""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, datetime, timedelta
from itertools import islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from mqstore.spark.options import ReadOptions
from mqstore.spark.plan import plan
from mqstore.spark.reader import read_range
from mqstore.spark.schema import message_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from mqstore.spark.plan import LogRange

_HEAD = struct.Struct(">iiiiiqqiq4siq4siiqi")
_ID_TAIL = struct.Struct(">iq")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAGIC = -626843481
#: Columns that are there once the head is taken apart, by their place in it; then the topic.
_IN_HEAD = {
    "store_size": 0, "body_crc": 2, "queue_id": 3, "flag": 4, "queue_offset": 5,
    "physical_offset": 6, "sys_flag": 7, "reconsume_times": 14, "prepared_transaction_offset": 15,
    "topic": 17,
}  # fmt: skip


def decode_file(path: Path, columns: tuple[str, ...]) -> Iterator[tuple]:
    """The messages of a commit log file as tuples; records of version 1 with IPv4 hosts only.

    Where the head has all that is asked for the rest is left alone, but for the body's checksum.
    """
    data = path.read_bytes()
    at = 0
    pick = None
    if _IN_HEAD.keys() >= set(columns) and len(columns) > 1:
        pick = itemgetter(*(_IN_HEAD[name] for name in columns))
    while at + _HEAD.size <= len(data):
        head = (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms,
         born_ip, born_port, store_ms, store_ip, store_port, again, prepared, body_len) = (
            _HEAD.unpack_from(data, at)
        )  # fmt: skip
        if magic != _MAGIC:
            return
        begin = at + _HEAD.size
        body = data[begin : begin + body_len]
        if zlib.crc32(body) & 0x7FFFFFFF != crc:
            raise ValueError(f"{path}: byte {at}: the body's checksum is wrong")
        begin += body_len
        topic_len = data[begin]
        topic = data[begin + 1 : begin + 1 + topic_len].decode()
        if pick is not None:
            yield pick((*head, topic))
            at += size
            continue
        begin += 1 + topic_len
        (length,) = struct.unpack_from(">h", data, begin)
        text = data[begin + 2 : begin + 2 + length].decode()
        pairs = [item.split("\x01", 1) for item in text.split("\x02") if item]
        properties = dict(pairs)
        row = {
            "broker": "store",
            "topic": topic,
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "physical_offset": physical_offset,
            "store_size": size,
            "store_timestamp": _EPOCH + timedelta(milliseconds=store_ms),
            "born_timestamp": _EPOCH + timedelta(milliseconds=born_ms),
            "tags": properties.get("TAGS"),
            "keys": properties.get("KEYS", "").split(),
            "unique_key": properties.get("UNIQ_KEY"),
            "message_id": (store_ip + _ID_TAIL.pack(store_port, physical_offset)).hex().upper(),
            "properties": properties,
            "body": body,
            "body_crc": crc,
            "sys_flag": sys_flag,
            "flag": flag,
            "born_host": f"{'.'.join(map(str, born_ip))}:{born_port}",
            "store_host": f"{'.'.join(map(str, store_ip))}:{store_port}",
            "reconsume_times": again,
            "prepared_transaction_offset": prepared,
        }
        yield tuple(row[name] for name in columns)
        at += size


class _Reader(DataSourceReader):
    def __init__(self, path: str, columns: tuple[str, ...]) -> None:
        self.path = path
        self.columns = columns


class PlainReader(_Reader):
    """A file for each task, decoded row by row."""

    def partitions(self) -> list[InputPartition]:
        files = sorted(Path(self.path, "commitlog").iterdir())
        return [InputPartition(str(file)) for file in files]

    def read(self, partition: InputPartition) -> Iterator[tuple]:
        return decode_file(Path(partition.value), self.columns)


class ConstantReader(_Reader):
    """As many batches as a scan gives, and each the same: nothing can be faster."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in plan(ReadOptions(paths=(self.path,)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return repeat(*self.batch_and_count(partition.value))

    def batch_and_count(self, part: LogRange) -> tuple[pa.RecordBatch, int]:
        options = ReadOptions(paths=(self.path,))
        (first,) = islice(read_range(part, options, self.columns), 1)
        (sizes,) = islice(read_range(part, options, ("store_size",)), 1)
        bytes_of_batch = sum(sizes.column(0).to_pylist()[: first.num_rows])
        return first, max((part.end - part.begin) // bytes_of_batch, 1)


class BareReader(ConstantReader):
    """The same, and the log's bytes are read before each: no source that reads can be faster."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        first, count = self.batch_and_count(part)
        step = (part.end - part.begin) // count
        for begin in islice(range(part.begin, part.end, step), count):
            read_bare(Path(self.path, "commitlog"), begin, min(begin + step, part.end))
            yield first


_BLOCK = bytearray(256 << 10)


def read_bare(log: Path, begin: int, end: int) -> None:
    """Reads a part of the log in blocks, as a scan does, and looks at nothing."""
    size = next(log.iterdir()).stat().st_size
    while begin < end:
        base = begin - begin % size
        with (log / f"{base:020}").open("rb", buffering=0) as file:
            file.seek(begin - base)
            stop = min(end, base + size)
            while begin < stop:
                begin += file.readinto(memoryview(_BLOCK)[: stop - begin])


class _Source(DataSource):
    def schema(self) -> StructType:
        return message_schema()


class PlainSource(_Source):
    """The format ``bench_plain``."""

    @classmethod
    def name(cls) -> str:
        return "bench_plain"

    def reader(self, schema: StructType) -> PlainReader:
        return PlainReader(self.options["path"], tuple(schema.fieldNames()))


class ConstantSource(_Source):
    """The format ``bench_constant``."""

    @classmethod
    def name(cls) -> str:
        return "bench_constant"

    def reader(self, schema: StructType) -> ConstantReader:
        return ConstantReader(self.options["path"], tuple(schema.fieldNames()))
