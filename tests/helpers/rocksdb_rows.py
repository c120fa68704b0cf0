"""Keys and values of RocketMQ's rows in RocksDB, to the byte.

The layouts are those of ``RocksDBConsumeQueueTable`` and ``RocksDBConsumeQueueOffsetTable``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
_CTRL = b"\x01"
_QUEUE_TAIL = struct.Struct(">cicq")
_QUEUE_VALUE = struct.Struct(">qiqq")
_PAIR = struct.Struct(">qq")


class QueueRow(NamedTuple):
    """A row of column family ``default``: one message in its queue."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    tags_code: int
    store_timestamp_ms: int

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> QueueRow:
        """Reads a row; ``ValueError`` if it has another layout."""
        topic, rest = _topic(key)
        if len(rest) != _QUEUE_TAIL.size or len(value) != _QUEUE_VALUE.size:
            raise ValueError(f"key of {len(key)} bytes, value of {len(value)}")
        _, queue_id, ctrl, queue_offset = _QUEUE_TAIL.unpack(rest)
        if ctrl != _CTRL:
            raise ValueError(f"key {key!r}")
        return cls.of((topic, queue_id), queue_offset, value)

    @classmethod
    def of(cls, queue: tuple[str, int], queue_offset: int, value: bytes) -> QueueRow:
        """A row of a queue whose key is known."""
        return cls(*queue, queue_offset, *_QUEUE_VALUE.unpack(value))

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        tail = _QUEUE_TAIL.pack(_CTRL, self.queue_id, _CTRL, self.queue_offset)
        return _head(self.topic) + tail, _QUEUE_VALUE.pack(*self[3:])


class OffsetRow(NamedTuple):
    """A row of column family ``offset``: the least or greatest offset of a queue.

    That of ``CHECKPOINT_TOPIC`` has a physical offset only, the end of the last message with a row.
    """

    topic: str
    queue_id: int
    is_max: bool
    physical_offset: int
    queue_offset: int

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetRow:
        """Reads a row; ``ValueError`` if it has another layout."""
        topic, rest = _topic(key)
        if len(rest) != 9 or rest[1:4] not in (b"max", b"min") or rest[4:5] != _CTRL:
            raise ValueError(f"key {key!r}")
        if len(value) == 8 and topic == CHECKPOINT_TOPIC:
            value += bytes(8)
        if len(value) != _PAIR.size:
            raise ValueError(f"value of {len(value)} bytes")
        queue_id = int.from_bytes(rest[5:], "big", signed=True)
        return cls(topic, queue_id, rest[1:4] == b"max", *_PAIR.unpack(value))

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        kind = b"max" if self.is_max else b"min"
        queue_id = self.queue_id.to_bytes(4, "big", signed=True)
        value = _PAIR.pack(self.physical_offset, self.queue_offset)
        if self.topic == CHECKPOINT_TOPIC:
            value = value[:8]
        return _head(self.topic) + _CTRL + kind + _CTRL + queue_id, value


def _head(topic: str) -> bytes:
    name = _text(topic)
    return len(name).to_bytes(4, "big") + _CTRL + name


def _topic(key: bytes) -> tuple[str, bytes]:
    length = int.from_bytes(key[:4], "big")
    if len(key) < 6 + length or key[4:5] != _CTRL or key[5 + length : 6 + length] != _CTRL:
        raise ValueError(f"key {key!r}")
    return key[5 : 5 + length].decode("utf-8", "surrogateescape"), key[5 + length :]


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
