"""Lists the messages that repairs put in a store's quarantine, and puts them back."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqstore import Store, StoredMessage

__all__ = ["folders", "kept_messages", "put_back"]

_RESTORED = ".restored"
# Magic codes of both versions of a record, which follow its size.
_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_CRC_PROPERTY, _CRC_LEN = b"__CRC32#\x01", 20
_FIELDS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)


def folders(store: str) -> list[Path]:
    """Returns the folders of the quarantine with bytes of the log, oldest first."""
    quarantine = Path(store, "quarantine")
    if not quarantine.is_dir() or quarantine.is_symlink():
        return []
    return sorted(
        folder
        for folder in quarantine.iterdir()
        if folder.is_dir()
        and not folder.is_symlink()
        and folder.suffix != _RESTORED
        and any(path.name.startswith("commitlog-") for path in folder.iterdir())
    )


def kept_messages(store: str, opened: Store) -> Iterator[dict[str, Any]]:
    """Yields a row for each whole message of the quarantine, and whether the log has it again."""
    for folder in folders(store):
        for message in _messages(folder):
            yield {
                "folder": str(folder),
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "physical_offset": message.physical_offset,
                "store_timestamp_ms": message.store_timestamp_ms,
                "keys": list(message.keys),
                "in_log": _is_in(opened, message),
            }


def put_back(store: str, opened: Store) -> tuple[int, int]:
    """Appends the messages of the quarantine that the log does not have.

    Each folder gets another name once its messages are durable.

    Returns:
        How many were put back, and how many the log had already.
    """
    put = known = 0
    for folder in folders(store):
        for message in _messages(folder):
            if _is_in(opened, message):
                known += 1
                continue
            fields: dict[str, Any] = {name: getattr(message, name) for name in _FIELDS}
            properties = message.raw_properties
            if properties[-_CRC_LEN:].startswith(_CRC_PROPERTY):
                properties = properties[:-_CRC_LEN]
            body = message.raw_body
            opened.append_many(
                [mqstore.Message(message.topic, body, properties=properties, **fields)]
            )
            put += 1
        opened.flush()
        folder.rename(folder.with_name(folder.name + _RESTORED))
    return put, known


def _messages(folder: Path) -> Iterator[StoredMessage]:
    for path in sorted(folder.glob("commitlog-*")):
        if path.is_symlink() or path.stat().st_size == 0:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _records(data)


def _records(data: mmap.mmap) -> Iterator[StoredMessage]:
    at = 0
    while (found := _MAGIC.search(data, at)) is not None:
        begin = found.start() - 4
        at = found.start() + 1
        if begin < 0:
            continue
        size = int.from_bytes(data[begin : begin + 4], "big", signed=True)
        if not 0 < size <= len(data) - begin:
            continue
        try:
            message = mqstore.decode(data[begin : begin + size])
        except (mqstore.StoreError, ValueError):
            continue
        yield message
        at = begin + size


def _is_in(store: Store, message: StoredMessage) -> bool:
    """Whether the log has the message at its old place in its queue."""
    read = store.read(message.topic, message.queue_id, message.queue_offset, max_messages=1)
    return any(_identity(found) == _identity(message) for found in read.messages)


def _identity(message: StoredMessage) -> tuple[object, ...]:
    return (
        message.queue_offset,
        message.unique_key,
        message.raw_body,
        message.born_timestamp_ms,
        message.raw_properties,
    )
