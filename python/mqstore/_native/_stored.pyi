from datetime import datetime
from typing import Any, Literal, final

from typing_extensions import Buffer

from mqstore._native._message import Message

@final
class StoredMessage:
    """A message as the commit log holds it.

    It owns a copy of its record and decodes each field on access. Two messages are equal if their
    records are equal byte for byte. Returned by the store and by ``decode``; it pickles as its
    record.

    Text that is not UTF-8 is shown with U+FFFD where a byte cannot be read; ``raw_properties`` has
    the bytes.
    """

    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def queue_id(self) -> int:
        """Number of the queue in its topic."""
    @property
    def queue_offset(self) -> int:
        """Entry number in its queue."""
    @property
    def physical_offset(self) -> int:
        """Where the record begins in the whole commit log, as the record itself says."""
    @property
    def store_size(self) -> int:
        """Length of the whole record in bytes."""
    @property
    def flag(self) -> int:
        """The user's own number."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits (``MessageSysFlag``)."""
    @property
    def born_timestamp_ms(self) -> int:
        """The producer's time."""
    @property
    def born_timestamp(self) -> datetime | None:
        """The producer's time as a ``datetime``; ``None`` outside the years 1 to 9999."""
    @property
    def born_host(self) -> str:
        """The producer's address, ``"ip:port"`` or ``"[v6]:port"``."""
    @property
    def store_timestamp_ms(self) -> int:
        """The store's time."""
    @property
    def store_timestamp(self) -> datetime | None:
        """The store's time as a ``datetime``; ``None`` outside the years 1 to 9999."""
    @property
    def store_host(self) -> str:
        """The store's address, ``"ip:port"`` or ``"[v6]:port"``."""
    @property
    def reconsume_times(self) -> int:
        """How often consumption was tried again."""
    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that a commit belongs to, else 0."""
    @property
    def body_crc(self) -> int:
        """CRC-32 of ``raw_body`` as stored, with the top bit clear."""
    @property
    def raw_body(self) -> bytes:
        """The body as it is stored."""
    @property
    def body(self) -> bytes:
        """The body as the producer sent it: decompressed where ``sys_flag`` says so.

        Raises:
            CorruptionError: The stored bytes cannot be decompressed, or give more than 64 MiB. It
                names the message; ``raw_body`` is still there.
        """
    @property
    def properties(self) -> dict[str, str]:
        """All properties, in the order stored; of a name given twice the later value.

        Read as ``MessageDecoder#string2messageProperties`` reads them.
        """
    @property
    def raw_properties(self) -> bytes:
        """The property block as it is stored."""
    @property
    def tags(self) -> str | None:
        """Property ``TAGS``, or ``None``."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Property ``KEYS``, split at single spaces, empty pieces left out."""
    @property
    def unique_key(self) -> str | None:
        """Property ``UNIQ_KEY``, or ``None``."""
    @property
    def message_id(self) -> str:
        """The store's id: its address and the physical offset in upper-case hex.

        ``MessageDecoder#createMessageId``.
        """
    @property
    def transaction(self) -> Literal["none", "prepared", "commit", "rollback"]:
        """The transaction type in ``sys_flag``."""
    @property
    def delay_level(self) -> int:
        """Property ``DELAY`` as a number, 0 where it is missing or not a number."""
    @property
    def record(self) -> bytes:
        """The whole record as it is stored, ``store_size`` bytes long."""

    def to_dict(self) -> dict[str, object]:
        """All fields by name, ``body`` as bytes.

        Raises:
            CorruptionError: The body cannot be decompressed.
        """

    def json(self) -> str:
        """A JSON document of one line, as ``mqstore get --json`` prints it.

        A body that is not UTF-8 is in ``body_base64`` instead of ``body``.
        """

    def body_json(self) -> Any:  # noqa: ANN401 - any JSON
        """The body, parsed as JSON.

        Raises:
            ValueError: It is no JSON.
            CorruptionError: It cannot be decompressed.
        """

    def to_message(self, **changes: object) -> Message:
        """The message to be written again, here or elsewhere.

        It has topic, queue, body, properties, flag, ``reconsume_times``, and the producer's time
        and host. The store's time and host and a transaction are left out. A compressed body stays
        as it is stored, and ``sys_flag`` says so; another one counts as not compressed.

        Args:
            changes: MessageFields of ``Message`` that differ, such as ``topic`` and ``queue_id``.

        Raises:
            InvalidMessageError: The topic is no text in UTF-8.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def purpose(
        self,
    ) -> Literal["normal", "half", "transaction-op", "delayed", "timer", "retry", "dead-letter"]:
        """Purpose of the topic, by its name.

        ``half``: hidden until its transaction is committed (``RMQ_SYS_TRANS_HALF_TOPIC``);
        ``transaction-op``: names half messages whose transactions have ended
        (``RMQ_SYS_TRANS_OP_HALF_TOPIC``); ``delayed``: waits for the time of its delay level
        (``SCHEDULE_TOPIC_XXXX``); ``timer``: waits for the timer (``rmq_sys_wheel_timer``);
        ``retry`` and ``dead-letter``: a group failed to consume it (``%RETRY%...``, ``%DLQ%...``).
        """
    @property
    def half(self) -> bool:
        """Whether it is a half message, hidden until its transaction is committed."""
    @property
    def real_topic(self) -> str | None:
        """Destination topic of a message that waits in another one (property ``REAL_TOPIC``)."""
    @property
    def real_queue_id(self) -> int | None:
        """Destination queue (property ``REAL_QID``); ``None`` if it is not a number."""
    @property
    def deliver_timestamp_ms(self) -> int | None:
        """When a delayed or a timer message is given out, Unix milliseconds.

        By RocketMQ's own delay levels: a message does not know what ``message_delay_level`` is set
        to; its queue entry does, which holds the time as its tags code. ``None`` for a message that
        waits for no time.
        """
    @property
    def lite_topic(self) -> str | None:
        """Lite topic of RocketMQ 5.5 (property ``__LITE_TOPIC``).

        Its queue is ``%LMQ%$parent$lite``; the message lies in its parent's topic.
        """
    @property
    def priority(self) -> int | None:
        """Priority (property ``_SYS_MSG_PRIORITY_`` of RocketMQ 5.4).

        ``None`` if it is no number.
        """
    @property
    def multi_dispatch(self) -> tuple[tuple[str, int], ...]:
        """The ``%LMQ%`` queues beside its own that it is in, each with its queue offset there."""
    @property
    def batch(self) -> tuple[StoredMessage, ...] | None:
        """The messages of a batch that is kept together; ``None`` for any other message.

        Each is a message of its own: with the batch's place, times and hosts, its own body and
        properties, and queue offsets counting from the batch's.

        Raises:
            CorruptionError: ``kind`` is ``batch``: the lengths in the body do not add up, or it
                holds another number of messages than its properties say; or ``body``: it cannot be
                decompressed. ``raw_body`` has the bytes.
        """

def decode(buffer: Buffer, /, *, verify_crc: bool = True) -> StoredMessage:
    """Reads one record.

    Args:
        buffer: Bytes that begin with a record; what follows it is not looked at.
        verify_crc: Checks the body's checksum too.

    Raises:
        CorruptionError: Not a record, or a damaged one; ``path`` is ``None`` and ``offset`` counts
            from the first byte given.
    """
