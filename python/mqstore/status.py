"""RocketMQ's statuses, as string enums: ``GetStatus.FOUND == "FOUND"``."""

from enum import StrEnum, unique

__all__ = ["GetStatus", "PutStatus"]


@unique
class GetStatus(StrEnum):
    """Status of a read of a queue (``org.apache.rocketmq.store.GetMessageStatus``)."""

    FOUND = "FOUND"
    """At least one message is given."""
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """The entries looked at were all filtered out."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The entries looked at lead to messages that the log no longer has."""
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    """The queue has no entry there, though its bounds say so."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """The offset is behind the end of the queue."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the end of the queue: nothing more yet."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """The offset is before the first entry that the queue still has."""
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """There is no such queue."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue never had a message."""
    OFFSET_RESET = "OFFSET_RESET"
    """The group's offset was reset; no read of a file store gives it."""


@unique
class PutStatus(StrEnum):
    """Status of a put (``org.apache.rocketmq.store.PutMessageStatus``).

    A store gives the first by returning, the others as ``status`` of what it raises.
    """

    PUT_OK = "PUT_OK"
    """Stored."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but not flushed in time."""
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    """The next file could not be made."""
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    """A message that may not be: its topic, its body, or a field."""
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    """More than 32,767 bytes of properties."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """The store takes no messages now."""
