"""Lists the messages that repairs put in a store's quarantine, and puts them back."""

from __future__ import annotations

import json
import mmap
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mqstore
from mqstore import _native
from mqstore.exchange.rows import FIELDS, as_it_is
from mqstore.files.durable import sync

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mqstore import Store, StoredMessage

_RESTORED = ".restored"
# Messages of an ended epoch never come back by themselves.
_ENDED = ".ended"
_PREFIX = "commitlog-"
_PLACE = re.compile(r"[0-9]{20}")
# Notes where the log ended before the first message was put back.
_NOTE = "put_back.json"
# Topics of transactions: a broker would check or end their messages again.
_TRANSACTIONS = "RMQ_SYS_TRANS_"
# Magic codes of both versions of a record, which follow its size.
_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_CRC_PROPERTY, _CRC_LEN = b"__CRC32#\x01", 20
# Fields that a list of the messages has.
_SHOWN = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "keys")
# The store time of a message is that of its new record.
_FIELDS = tuple(name for name in FIELDS if name != "store_timestamp_ms")


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
        and folder.suffix not in {_RESTORED, _ENDED}
        and any(path.name.startswith(_PREFIX) for path in folder.iterdir())
    )


def kept_messages(store: str, opened: Store, unread: list[str]) -> Iterator[dict[str, Any]]:
    """Yields a row for each whole message of the quarantine, and whether the log has it again.

    Adds files that do not tell their place in the log to `unread`.
    """
    for folder in folders(store):
        for message in _messages(folder, unread):
            yield {
                "folder": str(folder),
                **{name: getattr(message, name) for name in _SHOWN},
                "in_log": _is_in(opened, message),
            }


class PutBack(NamedTuple):
    """Counts of a `put_back`."""

    put_back: int
    in_log: int
    left_out: int
    folders: list[str]
    """Where the folders that are done lie now."""
    unread: list[str]
    """Files whose names or records do not tell their place in the log."""


def put_back(store: str, opened: Store) -> PutBack:
    """Appends the messages of the quarantine that the log does not have.

    Each folder gets another name once its messages are durable, unless a file in it is no piece
    of the log under the name that a repair gives. Where an earlier run was stopped in its midst,
    the messages that it appended are not appended again. Messages of transactions stay in the
    quarantine.
    """
    put = known = left_out = 0
    kept: list[str] = []
    unread: list[str] = []
    for folder in folders(store):
        appended = _appended(folder, opened)
        foreign: list[str] = []
        for message in _messages(folder, foreign):
            if message.topic.startswith(_TRANSACTIONS):
                left_out += 1
            elif _is_in(opened, message):
                known += 1
            elif appended[_content(message)]:
                appended[_content(message)] -= 1
                known += 1
            else:
                opened.append_many([_again(message)])
                put += 1
        opened.flush()
        if foreign:
            unread += foreign
            continue
        done = folder.with_name(folder.name + _RESTORED)
        folder.rename(done)
        sync(folder.parent)
        kept.append(str(done))
    return PutBack(put, known, left_out, kept, unread)


def _again(message: StoredMessage) -> mqstore.Message:
    fields = {name: as_it_is(name, getattr(message, name)) for name in _FIELDS}
    properties = _without_checksum(message.raw_properties)
    return mqstore.Message(message.topic, message.raw_body, properties=properties, **fields)


def _appended(folder: Path, opened: Store) -> Counter[tuple[object, ...]]:
    """The messages that an earlier run appended; notes for a later one where this one begins."""
    note = folder / _NOTE
    if note.is_file():
        begin = json.loads(note.read_text())["max_physical_offset"]
        begin = max(begin, opened.min_physical_offset)
        return Counter(map(_content, opened.scan(start_physical_offset=begin)))
    opened.flush()
    text = json.dumps({"max_physical_offset": opened.max_physical_offset})
    _native._replace_file(note, text.encode())  # noqa: SLF001 - our own
    return Counter()


def _messages(folder: Path, foreign: list[str]) -> Iterator[StoredMessage]:
    """The messages of a folder; adds files that do not tell their place to `foreign`."""
    for path in sorted(folder.glob(_PREFIX + "*")):
        name = path.name.removeprefix(_PREFIX)
        if path.is_symlink() or not path.is_file() or not _PLACE.fullmatch(name):
            foreign.append(str(path))
        elif path.stat().st_size > 0:
            file = path.open("rb")
            with file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                moved = yield from _records(data, int(name))
            if moved:
                foreign.append(str(path))


def _records(data: mmap.mmap, base: int) -> Generator[StoredMessage, None, bool]:
    """The records of a piece of the log that begins at `base`; none out of the bodies of others.

    Returns whether it has none, but whole records of another place.
    """
    at, found_own, found_other = 0, False, False
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
        if message.physical_offset != base + begin:
            found_other = True
            continue
        found_own = True
        yield message
        at = begin + size
    return found_other and not found_own


def _is_in(store: Store, message: StoredMessage) -> bool:
    """Whether the log has the message at its old place in its queue."""
    read = store.read(message.topic, message.queue_id, message.queue_offset, max_messages=1)
    return any(_identity(found) == _identity(message) for found in read.messages)


def _identity(message: StoredMessage) -> tuple[object, ...]:
    return message.queue_offset, message.raw_properties, *_content(message)


def _content(message: StoredMessage) -> tuple[object, ...]:
    """A message without its place."""
    return (
        message.topic,
        message.queue_id,
        message.born_timestamp_ms,
        blake2b(message.raw_body).digest(),
        _without_checksum(message.raw_properties),
    )


def _without_checksum(properties: bytes) -> bytes:
    has_one = properties[-_CRC_LEN:].startswith(_CRC_PROPERTY)
    return properties[:-_CRC_LEN] if has_one else properties
