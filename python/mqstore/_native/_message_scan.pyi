from collections.abc import Iterator
from types import GenericAlias
from typing import Final, Generic, Self, final

from typing_extensions import TypeVar

from mqstore._native._stored import StoredMessage

_Item = TypeVar("_Item", bound=StoredMessage | Damage, default=StoredMessage)

@final
class Damage:
    """Bytes of a log that a scan could not give as a message."""

    __match_args__: Final = ("physical_offset", "length", "reason")
    def __new__(cls, physical_offset: int, length: int, reason: str) -> Self: ...
    @property
    def physical_offset(self) -> int:
        """Where they begin in the whole commit log."""
    @property
    def length(self) -> int:
        """Their number."""
    @property
    def reason(self) -> str:
        """File, byte, expected and found; of a message also its topic, queue and queue offset."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class MessageScan(Iterator[_Item], Generic[_Item]):
    """An iterator over messages, and ``Damage`` if asked for.

    Made by ``Store.scan`` and ``CommitLog.scan``.
    """

    @classmethod
    def __class_getitem__(cls, item: object) -> GenericAlias:
        """The class of a scan of these items, as annotations name it."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> _Item: ...
    @property
    def physical_offset(self) -> int:
        """How far the scan has come: behind what it gave or skipped last."""
    @property
    def stop_physical_offset(self) -> int:
        """Where the scan ends."""
    @property
    def skipped_ranges(self) -> int:
        """How many damaged ranges were skipped or reported so far."""
    @property
    def skipped_bytes(self) -> int:
        """How many bytes these had."""
