"""Stored messages as mappings and JSON documents."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from mqstore.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore._native import StoredMessage

    Decode = Callable[[bytes], object | None] | None

BodyForm: TypeAlias = Literal["text", "hex", "json", "protobuf", "avro", "none"]

FIELDS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "message_id"),
    *("store_timestamp_ms", "store_host", "born_timestamp_ms", "born_host"),
    *("tags", "keys", "unique_key", "properties"),
    *("purpose", "transaction", "delay_level", "real_topic", "real_queue_id"),
    *("deliver_timestamp_ms", "multi_dispatch", "lite_topic", "priority"),
    *("flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "body_crc"),
)
"""Fields of a message's JSON document, in order; the body follows."""

_MEMBER_FIELDS = ("queue_offset", "flag", "tags", "keys", "unique_key", "properties")


def to_dict(message: StoredMessage) -> dict[str, object]:
    """All fields by name, ``body`` as bytes."""
    return {field: getattr(message, field) for field in FIELDS} | {"body": message.body}


def to_json(message: StoredMessage) -> str:
    """The document that ``mqstore get --json`` prints, in one line."""
    return msgspec.json.encode(document(message), enc_hook=str).decode()


def body_json(message: StoredMessage) -> Any:  # noqa: ANN401 - any JSON
    """The body, parsed."""
    try:
        return json.loads(message.body)
    except (ValueError, RecursionError) as error:
        place = f"body of the message at physical offset {message.physical_offset}"
        raise ValueError(f"{place}: expected JSON, got {error}") from None


def document(
    message: StoredMessage, form: BodyForm = "text", decode: Decode = None
) -> dict[str, object]:
    """A message as the JSON documents have it: every field, the body whole.

    ``batch`` has the messages of a batch that is kept together, and is null for any other
    message; ``batch_error`` says why they cannot be told apart.
    Of ``body``, ``body_base64`` (no UTF-8), ``body_hex``, ``body_json``, ``body_protobuf`` and
    ``body_avro`` it has one, or
    ``body_error`` with ``raw_body_base64``. Where topic or properties are no UTF-8, their text
    has marks for it and ``record_base64`` has the exact bytes.
    """
    document: dict[str, object] = {field: getattr(message, field) for field in FIELDS}
    document["multi_dispatch"] = [
        {"topic": name, "queue_offset": at} for name, at in message.multi_dispatch
    ]
    members, failure = members_of(message)
    document["batch"] = None if members is None else [_member(one, form, decode) for one in members]
    if failure:
        document["batch_error"] = failure
    if form != "none":
        document.update(_body_fields(message, form, decode))
    if not _is_exact(message):
        document["record_base64"] = _base64(message.record)
    return document


def packed(body: bytes, form: BodyForm, decode: Decode) -> bytes | None:
    """The body as JSON in one line; ``None`` where its form is another one, or it has none."""
    if decode is not None:
        found = decode(body)
        return None if found is None else _encoded(found)
    return _as_json(body) if form == "json" else None


def _member(member: StoredMessage, form: BodyForm, decode: Decode) -> dict[str, object]:
    """A message of a batch: what it does not have of the batch."""
    document: dict[str, object] = {field: getattr(member, field) for field in _MEMBER_FIELDS}
    if form != "none":
        document.update(_body_fields(member, form, decode))
    return document


def _body_fields(message: StoredMessage, form: BodyForm, decode: Decode) -> dict[str, object]:
    body, failure = body_of(message)
    if failure:
        return {"body_error": failure, "raw_body_base64": _base64(body)}
    if form == "hex":
        return {"body_hex": body.hex()}
    found = packed(body, form, decode)
    if found is not None:
        return {f"body_{form}": msgspec.Raw(found)}
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": _base64(body)}


def members_of(message: StoredMessage) -> tuple[tuple[StoredMessage, ...] | None, str]:
    """The messages of a batch and no complaint, or none and why they cannot be told apart."""
    try:
        return message.batch, ""
    except CorruptionError as error:
        return None, error.message


def body_of(message: StoredMessage) -> tuple[bytes, str]:
    """The body and no complaint, or what is stored and why it cannot be read."""
    try:
        return message.body, ""
    except CorruptionError as error:
        return message.raw_body, error.message


def _is_exact(message: StoredMessage) -> bool:
    """Whether topic and properties are text, so that nothing is lost in a document."""
    if "\ufffd" in message.topic:
        return False
    try:
        message.raw_properties.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _as_json(body: bytes) -> bytes | None:
    try:
        msgspec.json.decode(body)
        # Taken over as it stands, so that numbers keep their digits.
        return msgspec.json.format(body, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _encoded(value: object) -> bytes | None:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        return None
