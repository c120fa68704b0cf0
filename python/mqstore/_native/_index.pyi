from collections.abc import Sequence
from typing import Final, Literal, Self, final

from mqstore._native._arrow import OffsetLists
from mqstore._native._scan import ArrowScan
from mqstore._native._types import _ArrowArray, _Path, _Time

@final
class IndexHeader:
    """The first 40 bytes of an index file (``IndexHeader``)."""

    __match_args__: Final = (
        "begin_timestamp_ms",
        "end_timestamp_ms",
        "begin_physical_offset",
        "end_physical_offset",
        "hash_slot_count",
        "index_count",
    )
    def __new__(
        cls,
        begin_timestamp_ms: int,
        end_timestamp_ms: int,
        begin_physical_offset: int,
        end_physical_offset: int,
        hash_slot_count: int,
        index_count: int,
    ) -> Self: ...
    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first message in the file."""
    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last message in the file."""
    @property
    def begin_physical_offset(self) -> int:
        """Where the first message begins in the commit log."""
    @property
    def end_physical_offset(self) -> int:
        """Where the last message begins in the commit log."""
    @property
    def hash_slot_count(self) -> int:
        """Slots in use, not the slots that the file has."""
    @property
    def index_count(self) -> int:
        """Number of the next entry: entries held plus one."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class IndexEntry:
    """One 20-byte entry of an index file, with its number."""

    __match_args__: Final = ("number", "key_hash", "physical_offset", "seconds", "prev_entry")
    def __new__(
        cls, number: int, key_hash: int, physical_offset: int, seconds: int, prev_entry: int
    ) -> Self: ...
    @property
    def number(self) -> int:
        """Number of the entry in its file, from 1."""
    @property
    def key_hash(self) -> int:
        """Hash of ``topic#key``."""
    @property
    def physical_offset(self) -> int:
        """Where the message begins in the commit log."""
    @property
    def seconds(self) -> int:
        """Whole seconds from the header's begin time to the message's store time."""
    @property
    def prev_entry(self) -> int:
        """Number of the next older entry of the same slot; 0 at the end of the chain."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class IndexFile:
    """One index file: a hash table of keys in a file of fixed size (``IndexFile``).

    ``len(index_file)`` is the number of entries that it holds.

    Args:
        path: The file.
        mode: ``"r"``: read. ``"r+"``: read and write, must exist. ``"a"``: as ``"r+"``, created
            when missing.
        slots: Hash slots of the file; neither number is recorded in it, so they must be the right
            ones.
        entries: Room for entries, of which number 0 is never used.

    Raises:
        ConfigError: Slots or entries of 0, or a size of 2 GiB and more.
        CorruptionError: The file's length is not 40 + 4 * slots + 20 * entries; both are named.
        StoreLockedError: Another process, or another handle of this one, writes to the file.
        StoreIOError: The file cannot be opened.
    """

    def __new__(
        cls, path: _Path, mode: str = "r", *, slots: int = 5000000, entries: int = 20000000
    ) -> Self: ...
    @property
    def path(self) -> str:
        """The file."""
    @property
    def mode(self) -> Literal["r", "r+", "a"]:
        """How it was opened."""
    @property
    def slots(self) -> int:
        """Hash slots that the file has."""
    @property
    def capacity(self) -> int:
        """How many entries fit: one less than the room for them."""
    @property
    def header(self) -> IndexHeader:
        """The header as of now."""
    def __len__(self) -> int: ...
    def put(self, key: str, physical_offset: int, store_timestamp_ms: _Time) -> bool:
        """Adds one key (``IndexFile#putKey``).

        Args:
            key: ``"topic#key"``.
            physical_offset: Where the message begins in the commit log.
            store_timestamp_ms: Its store time, kept in whole seconds; also a ``datetime``.

        Returns:
            ``False`` when the file is full, and then nothing was done.

        Raises:
            StoreReadOnlyError: The file was opened with mode ``"r"``.
            InvalidMessageError: A number does not fit 64 bits, or the key is no text in UTF-8.
        """
    def put_many(
        self,
        keys: Sequence[str] | _ArrowArray,
        physical_offsets: Sequence[int] | _ArrowArray,
        store_timestamps_ms: Sequence[_Time] | _ArrowArray,
    ) -> int:
        """Adds many keys in order.

        Args:
            keys: ``"topic#key"`` each: strings, or an Arrow array of a string type.
            physical_offsets: As many integers, or an Arrow array or a buffer of ``int64``.
            store_timestamps_ms: The same; among integers of a list also a ``datetime``.

        Returns:
            How many of them fitted.

        Raises:
            ValueError: The three differ in length, or an Arrow array has a null.
            InvalidMessageError: A number does not fit 64 bits, or a key is no text in UTF-8.
                Nothing was put then.
        """
    def select(
        self,
        key: str,
        *,
        begin_ms: _Time = 0,
        end_ms: _Time = 9223372036854775807,  # noqa: PYI054
        max_entries: int = 32,
    ) -> list[int]:
        """Physical offsets under a key, newest first: exactly RocketMQ's ``selectPhyOffset``.

        Only hashes are compared, so another key's offsets may be among them.

        Args:
            key: ``"topic#key"``.
            begin_ms: First time that counts; the chain is left at the first entry before it.
            end_ms: Last time that counts.
            max_entries: At most this many.
        """
    def select_many(
        self,
        keys: Sequence[str] | _ArrowArray,
        *,
        begin_ms: _Time = 0,
        end_ms: _Time = 9223372036854775807,  # noqa: PYI054
        max_entries: int = 32,
    ) -> OffsetLists:
        """The same for many keys: one list of offsets for each."""
    def entries(self) -> ArrowScan:
        """All entries in order, as columns named like the fields of ``IndexEntry``."""
    def entry(self, number: int, /) -> IndexEntry:
        """One entry by its number, 1 to ``len(index_file)``.

        Raises:
            IndexError: The file holds no entry of that number.
        """
    def chain(self, key: str) -> list[IndexEntry]:
        """The entries of a key's slot from the newest on, those of other keys in it too.

        It ends where a link does not lead to an older entry.
        """
    def chain_lengths(self) -> dict[int, int]:
        """How many slots have a chain of each length that occurs, empty slots left out.

        It reads every entry, and counts a broken chain as whole.
        """
    def flush(self) -> None:
        """Makes everything put so far durable."""
    def close(self) -> None:
        """Flushes what was put and closes the file; closing twice does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...
