from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from mqstore._native._message import Message
from mqstore._native._types import _Path, _Time
from mqstore._native._values import MessageId

def encode(
    message: Message,
    /,
    *,
    physical_offset: int,
    queue_offset: int,
    store_timestamp_ms: _Time | None = None,
    store_host: str | None = None,
    append_property_crc: bool = False,
) -> bytes:
    """Writes one record, as the commit log would hold it.

    Args:
        message: The message. A time or host that it leaves out is taken from the arguments.
        physical_offset: Where the record is to begin in the commit log.
        queue_offset: Its entry number in its queue.
        store_timestamp_ms: The store's time where the message has none, and so the producer's.
        store_host: The store's address where the message has none, and so the producer's.
        append_property_crc: Ends the properties with their checksum (``enabledAppendPropCRC``).

    Raises:
        InvalidMessageError: The record cannot be: a field too long, a time or host that neither
            gives.
    """

def java_hash(text: str, /) -> int:
    """``String.hashCode`` of a text: over UTF-16 units, 32 bits, signed."""

def key_hash(key: str, /) -> int:
    """The index's hash of ``"topic#key"``: never negative, and -2**31 counts as 0.

    ``IndexFile#indexKeyHashMethod``.
    """

def tags_code(tags: str | None, /) -> int:
    """The consume queue's code of a tag: its Java hash, 0 for none (``tagsString2tagsCode``)."""

def parse_message_id(text: str, /) -> MessageId:
    """Takes a store's message id apart (``MessageDecoder#decodeMessageId``).

    Raises:
        ValueError: Not 32 or 56 hex digits.
    """

def lock_state(path: _Path, /) -> tuple[bool, int | None]:
    """Whether a process writes to a store, and which, where the system tells.

    Asks for the state of the record lock on ``<path>/lock`` without taking it; a store without that
    file is not locked. The calling process's own stores count.
    """

def _anchors(
    path: _Path, physical_offset: int, /, *, settings: Mapping[str, object]
) -> list[tuple[int, int, int]]:
    """Evidence that a log is the one that was read up to a physical offset, newest first.

    Returns:
        Where a record begins, its length, and the CRC-32 of its bytes: of the last record before
        the offset, and of some that lie further and further back.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreIOError: The operating system refused something.
    """

def _other_than(
    path: _Path, anchor: tuple[int, int, int], /, *, settings: Mapping[str, object]
) -> str | None:
    """The record that lies now where ``_anchors`` found one; ``None`` if the same, or deleted.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        StoreIOError: The operating system refused something.
    """

def _names_a_folder(topic: bytes, /) -> bool:
    """Whether a topic, as its bytes, may name a folder of queues."""

def inventory(path: _Path, /) -> list[dict[str, object]]:
    """Lists files below a store's root that hold no messages, queues or keys.

    Timer wheel and timer log, queues and logs of compacted topics, RocksDB databases, DLedger logs,
    epoch files. Nothing is changed, and no link followed.

    Returns:
        A mapping for each, by path: ``structure`` (``timer-wheel``, ``timer-log``,
        ``sparse-queue``, ``compaction-log``, ``rocksdb``, ``dledger``, ``epoch-file``,
        ``broker-identity``), ``what`` it is, its ``path`` below the root, how many ``files`` and
        ``bytes`` it has, and ``counts``: by name what is counted in it (slots, units, entries,
        messages, epochs), empty where the format is not known.

    Raises:
        StoreIOError: A file or folder cannot be read.
    """

def _store_name(path: str, /) -> tuple[str, str, bool] | None:
    """The meaning of a path below a store's root; ``None`` for a path that is not a store's.

    Returns:
        The name directly below the root, the meaning of its files, and whether it is a folder.
    """

def _timer_check(path: _Path, /) -> tuple[int, int] | None:
    """Reads ``config/timercheck``; ``None`` for a file that is missing or too short.

    Returns the time before which timers are delivered, and the next entry of the timer's topic.
    """

def _spare_page_cache() -> None:
    """Makes this process leave no page of a file that it reads in the page cache.

    Pages that another process has mapped and touched stay. Read-ahead is off then.
    """

def _time_ms(at: datetime | int, /) -> int:
    """Unix milliseconds of an argument ``at``: a ``datetime`` with a zone, or such a number."""

def _index_slots(table: bytes, entries: bytes, first: int, /) -> bytes:
    """Enters entries of an index file into a table of its slots, and returns the table.

    Args:
        table: Slots as in the file.
        entries: Whole entries as in the file, of which the first has the number `first`.
        first: That number.
    """

def _is_system_topic(topic: str, /) -> bool:
    """Whether a broker creates the topic for itself."""

def _is_system_group(group: str, /) -> bool:
    """Whether a consumer group is a broker's own."""

def _settings() -> bytes:
    """The table of settings as JSON, which ``mqstore._settings`` reads."""

def _setting_refusal(name: str, value: str, /) -> str | None:
    """The values that a setting can have, if ``value`` is none of them.

    Raises:
        KeyError: An unknown name.
    """

def _read_broker_line(
    name: str, value: str, /
) -> tuple[Literal["of_broker", "of_four", "ours", "setting", "unknown"], str, str | None]:
    """A line of a ``broker.conf``, as 5.x takes it.

    Returns:
        ``"of_broker"``, ``"of_four"``, ``"ours"``, ``"setting"`` or ``"unknown"``; the setting, or
        the name that 5.x takes; and the value that it reads, ``None`` where it keeps its default.
    """

def _load_config_json(path: _Path, /) -> str | None:
    """The table of one of the broker's own JSON files as strict JSON, as a broker reads it.

    Returns:
        The text of the file, or of its backup (``.bak``) where the file is missing, empty or
        damaged; ``None`` without either.

    Raises:
        CorruptionError: Neither can be read.
        StoreIOError: The operating system refused something.
    """

def _write_config_json(path: _Path, text: str, /) -> None:
    """Replaces one of the broker's own JSON files atomically; its old content becomes ``.bak``.

    Raises:
        CorruptionError: The file is damaged, and its content would be lost.
        StoreIOError: The operating system refused something.
        UnsupportedError: More than a broker's file may hold.
    """

def _keep_config(path: _Path, /) -> Path | None:
    """Copies one of the broker's own JSON files to a numbered name, before a cure changes it.

    Returns:
        The copy, ``consumerOffset.json.mqstore-1`` and so on; ``None`` where there is no file.

    Raises:
        StoreIOError: The operating system refused something.
    """

def read_config_json(path: _Path, /) -> str:
    """One of the broker's own JSON files as strict JSON, such as ``config/consumerOffset.json``.

    RocketMQ writes maps of numbers with bare keys (``{0:128}``); here they are quoted. Nothing else
    is changed, not the order of members either. Where the file cannot be read as JSON, RocketMQ's
    copy beside it (``.bak``) is not looked at.

    Raises:
        CorruptionError: Not JSON even so, nested deeper than 64, or larger than 64 MiB.
        StoreIOError: The file cannot be read.
    """

def _check_owner(path: _Path, /, *, settings: Mapping[str, object]) -> None:
    """Refuses if files made in a store would not get owner and group of its folders.

    Raises:
        StoreIOError: They would not, or the operating system refused something.
    """

def _replace_file(path: _Path, data: bytes, /) -> None:
    """Replaces a file, or makes it and its folders: atomically and durably.

    Raises:
        StoreIOError: The operating system refused something.
    """

def _copy_folder(source: _Path, target: _Path, /) -> None:
    """Copies a folder, with what is in it and is no link, to a new one.

    Raises:
        StoreIOError: The operating system refused something.
    """
