from typing import Self, final

from typing_extensions import Buffer

from mqstore._native._types import _Keys, _Properties, _Tags, _Time

@final
class Message:
    """A message to be written, with everything that a record can hold.

    ``Store.append`` takes the same fields one by one and is enough for new messages; a
    ``Message`` is for many at once, for import and for migration, where the store's time and host
    come from elsewhere.

    Args:
        topic: Name of the topic; see ``validate_topic_names`` of ``mqstore.StoreConfig``.
        body: The body, any object with the buffer protocol, stored unchanged.
        queue_id: Number of the queue in its topic, from 0. ``None``: as for ``Store.append``.
        tags: The one tag of the message, stored as property ``TAGS``.
        keys: One key, or an iterable of keys, stored joined by spaces as property ``KEYS``. An
            empty key or one with a space in it is refused.
        unique_key: The client's id of the message, stored as property ``UNIQ_KEY``.
        properties: A mapping, written in its own order behind ``TAGS``, ``KEYS``, ``UNIQ_KEY`` and
            ``DELAY``; or ``bytes``, the property block as it is to be stored, and then ``tags``,
            ``keys``, ``unique_key`` and ``delay_level`` must be left out.
        flag: An application-defined 32-bit number, never interpreted.
        born_timestamp_ms: The producer's time; ``None`` is the time of the append.
        born_host: The producer's address, ``"ip:port"`` or ``"[v6]:port"``; ``None`` is the store's
            own.
        delay_level: Written as property ``DELAY`` where it is not 0, and no more:
            ``append(..., delay=)`` delays. Below 0 is written too; a broker takes it for none.
        sys_flag: RocketMQ's bits, such as compression or transaction type. The two bits that say
            whether a host is IPv6 are set from the hosts.
        store_timestamp_ms: The store's time; ``None`` is the time of the append. An append refuses
            one below 0. It moves no later message.
        store_host: The store's address; ``None`` is the store's own.
        reconsume_times: Number of redeliveries.
        prepared_transaction_offset: Physical offset of the half message that a commit belongs to.

    Raises:
        InvalidMessageError: A field that no record can hold, or that contradicts another.
        TypeError: A value of the wrong type.
    """

    def __new__(
        cls,
        topic: str,
        body: Buffer,
        *,
        queue_id: int | None = 0,
        tags: _Tags = None,
        keys: _Keys = (),
        unique_key: str | None = None,
        properties: _Properties | None = None,
        flag: int = 0,
        born_timestamp_ms: _Time | None = None,
        born_host: str | None = None,
        delay_level: int = 0,
        sys_flag: int = 0,
        store_timestamp_ms: _Time | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def body(self) -> bytes:
        """The body as stored."""
    @property
    def queue_id(self) -> int | None:
        """Number of the queue in its topic; ``None`` where its key chooses it."""
    @property
    def tags(self) -> str | None:
        """The one tag, or ``None``."""
    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order given."""
    @property
    def unique_key(self) -> str | None:
        """The client's id of the message, or ``None``."""
    @property
    def properties(self) -> dict[str, str] | bytes:
        """The further properties as they were given; an empty ``dict`` where there are none."""
    @property
    def flag(self) -> int:
        """The user's own number."""
    @property
    def born_timestamp_ms(self) -> int | None:
        """The producer's time, or ``None`` for the time of the append."""
    @property
    def born_host(self) -> str | None:
        """The producer's address, or ``None`` for the store's own."""
    @property
    def delay_level(self) -> int:
        """The delay level, 0 for none."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits, as given."""
    @property
    def store_timestamp_ms(self) -> int | None:
        """The store's time, or ``None`` for the time of the append."""
    @property
    def store_host(self) -> str | None:
        """The store's address, or ``None`` for the store's own."""
    @property
    def reconsume_times(self) -> int:
        """How often consumption was tried again."""
    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that a commit belongs to."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
