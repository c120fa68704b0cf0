"""Converts messages to rows of an export and back, without loss.

If a row's fields cannot represent the record exactly (a topic that is not UTF-8, an unusual record
version), the field ``record`` holds the whole record and the other fields are ignored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeAlias, get_args

from mqstore._names import nearest
from mqstore._native import Message
from mqstore.errors import InvalidMessageError
from mqstore.results import documents
from mqstore.results.documents import BodyForm
from mqstore.text import Milliseconds

Row: TypeAlias = "dict[str, Any]"
"""Field names and values; of JSON, or of an Arrow batch."""

Placed: TypeAlias = "tuple[Message | bytes, int | None, int | None, int]"
"""A message or a whole record, its queue offset, the physical offset that it had, and its row."""

FIELDS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)
"""Fields shared by a row and a message."""
_TIMES = frozenset(["born_timestamp_ms", "store_timestamp_ms"])
_BYTES = ("record", "body", "raw_body", "properties", "raw_properties")
_KNOWN = frozenset(
    [
        *FIELDS, *_BYTES, *(f"{name}_base64" for name in _BYTES), "store_timestamp",
        "born_timestamp", *documents.FIELDS, *(f"body_{form}" for form in get_args(BodyForm)),
        *("batch", "batch_error", "body_error", "broker", "error"),
    ]
)  # fmt: skip
"""Fields of messages as rows, wherever they come from: of an export, a command, or a scan."""


def message_of(row: Row, number: int) -> Placed:
    """A row's message or whole record, with its offsets if it has any, and the row's number.

    Raises:
        InvalidMessageError: A field that is missing, or that no record can hold.
    """
    if not row.keys() <= _KNOWN:
        for name in row.keys() - _KNOWN:
            if row[name] is not None:
                text = f"{name}: a message has no such field{nearest(name, _KNOWN)}"
                raise InvalidMessageError(text, name, "MESSAGE_ILLEGAL")
    for name in (*FIELDS, "queue_offset", "physical_offset"):
        if isinstance(row.get(name), bool):
            raise _wrong(name, "a number", row[name])
    for name in ("store_timestamp", "born_timestamp"):
        if row.get(name) is not None:
            expected = f"a timestamp of Arrow, or a number as {name}_ms"
            raise _wrong(name, expected, row[name])
    queue_offset, physical_offset = row.get("queue_offset"), row.get("physical_offset")
    for name, at in (("queue_offset", queue_offset), ("physical_offset", physical_offset)):
        if at is not None and not (isinstance(at, int) and -(1 << 63) <= at < 1 << 63):
            raise _wrong(name, "an integer of 64 bits", at)
    record = _bytes(row, "record")
    if record is not None:
        return record, queue_offset, physical_offset, number
    topic = row.get("topic")
    if not isinstance(topic, str):
        raise _wrong("topic", "text", topic)
    body = _bytes(row, "raw_body")
    if body is None:
        body = _bytes(row, "body")
    if body is None:
        raise _wrong("body", "text, or base64 as body_base64", None)
    fields = {name: as_it_is(name, row[name]) for name in FIELDS if row.get(name) is not None}
    properties = _properties(row)
    if properties is not None:
        fields["properties"] = properties
    else:
        named = ("tags", "keys", "unique_key")
        fields |= {name: row[name] for name in named if row.get(name) is not None}
    try:
        return Message(topic, body, **fields), queue_offset, physical_offset, number
    except (TypeError, OverflowError) as error:
        raise InvalidMessageError(str(error), "message", "MESSAGE_ILLEGAL") from None


def as_it_is(name: str, value: Any) -> Any:  # noqa: ANN401 - of any field
    """A field's value; a time that was stored counts, however odd."""
    return Milliseconds(value) if name in _TIMES and isinstance(value, int) else value


def _properties(row: Row) -> bytes | dict[str, str] | None:
    raw = _bytes(row, "raw_properties")
    if raw is None and "properties_base64" in row:
        raw = _bytes(row, "properties")
    if raw is not None:
        return raw
    properties = row.get("properties")
    if properties is None:
        return None
    pairs = properties.items() if isinstance(properties, dict) else properties
    # Arrow gives a map as a list of pairs.
    if not isinstance(properties, dict | list) or not all(map(_is_pair, pairs)):
        raise _wrong("properties", "an object of texts", properties)
    named = dict(pairs)
    if len(named) != len(properties):
        raise _wrong("properties", "each name once", properties)
    return named


def _is_pair(item: object) -> bool:
    return (
        isinstance(item, tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)
    )


def _bytes(row: Row, name: str) -> bytes | None:
    """The bytes of a field: given so, as text, or in base64 under the longer name."""
    value = row.get(name)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if value is not None:
        raise _wrong(name, "text or bytes", value)
    coded = row.get(f"{name}_base64")
    if coded is None:
        return None
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _wrong(f"{name}_base64", "base64", coded) from None


def _wrong(field: str, expected: str, found: object) -> InvalidMessageError:
    shown = "nothing" if found is None else repr(found)[:64]
    text = f"{field}: expected {expected}, found {shown}"
    return InvalidMessageError(text, field, "MESSAGE_ILLEGAL")
