"""RocketMQ's topic of delayed messages, its delays, and the property blocks there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore._settings import DEFAULTS

if TYPE_CHECKING:
    from mqstore.store import Store

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def levels_ms(store: Store) -> list[int]:
    """Milliseconds of each delay level, from level 1 on."""
    text = store.config.message_delay_level or str(DEFAULTS["message_delay_level"])
    return [int(level[:-1]) * _UNITS_MS[level[-1]] for level in text.split()]


def without(raw_properties: bytes, *names: bytes) -> bytes:
    """A property block without some properties."""
    pairs = [pair for pair in raw_properties.split(b"\x02") if pair]
    return b"".join(pair + b"\x02" for pair in pairs if pair.split(b"\x01", 1)[0] not in names)
