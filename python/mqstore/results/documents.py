"""Stored messages as mappings and JSON documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore._native import StoredMessage


def to_dict(message: StoredMessage) -> dict[str, object]:
    """All fields by name, ``body`` as bytes."""
    from mqstore.cli.messages import FIELDS

    return {field: getattr(message, field) for field in FIELDS} | {"body": message.body}


def to_json(message: StoredMessage) -> str:
    """The document that ``mqstore get --json`` prints, in one line."""
    import msgspec

    from mqstore.cli.messages import MessageView

    document = MessageView().document(message)
    return msgspec.json.encode(document, enc_hook=str).decode()


def body_json(message: StoredMessage) -> Any:  # noqa: ANN401 - any JSON
    """The body, parsed."""
    try:
        return json.loads(message.body)
    except (ValueError, RecursionError) as error:
        place = f"body of the message at physical offset {message.physical_offset}"
        raise ValueError(f"{place}: expected JSON, got {error}") from None
