"""RocketMQ's topic of delayed messages, and the property blocks that enter and leave it."""

from __future__ import annotations

__all__ = ["SCHEDULE_TOPIC", "without"]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def without(raw_properties: bytes, *names: bytes) -> bytes:
    """A property block without some properties."""
    pairs = [pair for pair in raw_properties.split(b"\x02") if pair]
    return b"".join(pair + b"\x02" for pair in pairs if pair.split(b"\x01", 1)[0] not in names)
