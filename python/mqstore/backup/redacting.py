"""Files of a live log, read without the bodies of their messages."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.backup.snapshot import log_name
from mqstore.backup.source import SourceFile, overlay
from mqstore.errors import CorruptionError
from mqstore.text import Milliseconds

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from mqstore import Store, StoredMessage
    from mqstore.backup.snapshot import Snapshot
    from mqstore.files.pace import Pace


_BLANK = bytes.fromhex("cbd43194")
_COMPRESSED = 0x701
_CHECKSUM = re.compile(rb"__CRC32#\x01[0-9]{10}\x02\Z")
# Offsets of half messages that ended: without them those would wait for ever.
_ENDED, _OFFSETS = "RMQ_SYS_TRANS_OP_HALF_TOPIC", re.compile(rb"[0-9,]*")
_AS_ZEROS = ": the first message as zeros: "
_MEMBER = 20
"""Bytes before the body of a message of a batch; properties and their length follow it."""
_WIDTHS = (1 << 12, 1 << 16, 1 << 20, 1 << 24)


class RedactedFile(SourceFile):
    """A file of the log with zeros for each body, and for all that is in no whole message.

    The store reads the records. `skipped` gets a line for the first message that is all zeros.
    """

    def __init__(self, path: Path, pace: Pace, store: Store, skipped: list[str]) -> None:
        super().__init__(path, pace)
        self._store, self._base, self._skipped = store, int(path.name), skipped
        self._last: int | None = None

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from `begin` to before `end`, fewer where the file ends."""
        end = min(end, self.length)
        self._pace.wait(max(0, end - begin))
        content = bytearray(max(0, end - begin))
        at = self._start(begin)
        for message in self._messages(at, end):
            self._last = at = message.physical_offset - self._base
            try:
                overlay(content, begin, at, _without_body(message))
            except ValueError as error:  # such as a topic that is no text
                # One line a file, however many a hostile store has.
                name = f"{log_name(self._base)}: byte "
                if not any(line.startswith(name) for line in self._skipped):
                    self._skipped.append(f"{name}{at}{_AS_ZEROS}{error}")
            at += message.store_size
        blank = super().read(at, at + 8)
        if blank[4:] == _BLANK:
            overlay(content, begin, at, blank)
        if os.fstat(self._file).st_nlink == 0:  # then the store may have found no messages
            raise FileNotFoundError(errno.ENOENT, "deleted meanwhile", str(self.path))
        return bytes(content)

    def _start(self, begin: int) -> int:
        """Begin of a message at or before `begin`; 0 if there is none near."""
        if self._last is not None and 0 <= begin - self._last <= _WIDTHS[-1]:
            return self._last
        for width in _WIDTHS:
            if begin > width and (near := next(self._messages(begin - width, begin), None)):
                return near.physical_offset - self._base
        return 0

    def _messages(self, begin: int, end: int) -> Iterator[StoredMessage]:
        return iter(
            self._store.scan(
                start_physical_offset=self._base + begin, stop_physical_offset=self._base + end,
                on_error="skip", decompress=False,
            )
        )  # fmt: skip


def zeros_of(snapshot: Snapshot, files: Container[str]) -> Iterator[str]:
    """The lines of a snapshot for messages as zeros in files; closed files are not read again."""
    for line in snapshot.left_out:
        if _AS_ZEROS in line and line.partition(":")[0] in files:
            yield line


def _without_body(message: StoredMessage) -> bytes:
    """The record of a message as if its body were zeros, as it is stored in a plain one."""
    properties = _CHECKSUM.sub(b"", message.raw_properties)
    changed = message.to_message(
        body=_zeros(message),
        properties=properties,
        sys_flag=message.sys_flag & ~_COMPRESSED,
        store_timestamp_ms=Milliseconds(message.store_timestamp_ms),
        store_host=message.store_host,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    record = _native.encode(
        changed, physical_offset=message.physical_offset, queue_offset=message.queue_offset,
        append_property_crc=properties != message.raw_properties,
    )  # fmt: skip
    if len(record) != message.store_size:
        raise ValueError(f"expected a record of {message.store_size} bytes, got {len(record)}")
    return record


def _zeros(message: StoredMessage) -> bytes:
    """As many zeros as its body has; messages of a batch keep their lengths and properties."""
    stored = message.raw_body
    if message.topic == _ENDED and _OFFSETS.fullmatch(stored):
        return stored
    body, at = bytearray(len(stored)), 0
    with contextlib.suppress(CorruptionError):
        for one in () if message.sys_flag & 1 else message.batch or ():
            behind = at + _MEMBER + len(one.raw_body)
            body[at : at + _MEMBER] = (
                stored[at : at + 8] + bytes(4) + stored[at + 12 : at + _MEMBER]
            )
            at = behind + 2 + len(one.raw_properties)
            body[behind:at] = stored[behind:at]
    return bytes(body)
