"""How many messages and bytes a store holds: by topic, queue, time, tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, final

from mqstore import _native
from mqstore.errors import checked
from mqstore.store import connect, settings_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from mqstore._native import ArrowScan, ArrowSchema
    from mqstore.config import ConfigLike

Grouping: TypeAlias = Literal["topic", "queue_id", "minute", "quarter_hour", "hour", "day", "tags"]

_ROW_NAMES = {name: f"{name}_ms" for name in ("minute", "quarter_hour", "hour", "day")}


class Totals(NamedTuple):
    """How many messages, how large, from when to when."""

    messages: int
    """How many messages."""
    bytes: int
    """Sizes of their records together."""
    first_store_timestamp_ms: int
    """The least store time among them; 0 where there are none."""
    last_store_timestamp_ms: int
    """The greatest."""


@final
@dataclass(frozen=True, eq=False)
class StoreStats:
    """Counts of messages, one row for each group; made by ``mqstore.stats``.

    It is an Arrow stream for whatever takes one, with the columns that were grouped by, then
    ``messages``, ``bytes`` (sizes of the records), ``first_store_timestamp`` and
    ``last_store_timestamp``; ``minute``, ``quarter_hour``, ``hour`` and ``day`` are the times at
    which these begin, in UTC.
    Iterated it gives a dict for each row, with times as ``..._ms``.
    """

    by: tuple[Grouping, ...]
    """Groupings of the messages."""
    others: Totals
    """Messages that are in no row: there were more groups than 32 MiB hold, about 160,000."""
    skipped_ranges: int
    """How many damaged ranges were skipped (``on_error="skip"``)."""
    skipped_bytes: int
    """How many bytes these had."""
    deleted_messages: int
    """How many messages of the whole store its queues once had and its log no longer holds."""
    deleted_bytes: int
    """How many bytes of the log were deleted: the physical offset where it begins."""
    stand_ins: int
    """How many of the messages stand in for lost ones, after a salvage or a copy."""
    _scan: ArrowScan
    _rows: Sequence[tuple[object, ...]]

    @property
    def schema(self) -> ArrowSchema:
        """The columns of the stream."""
        return self._scan.schema

    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow PyCapsule interface."""
        return self._scan.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as a capsule of an Arrow stream."""
        return self._scan.__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """All rows: a ``pyarrow.Table``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        return self._scan.read_all()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, object]]:
        names = [*(_ROW_NAMES.get(name, name) for name in self.by), *Totals._fields]
        return (dict(zip(names, row, strict=True)) for row in self._rows)

    def __repr__(self) -> str:
        return f"<StoreStats of {len(self)} rows by {', '.join(self.by) or 'nothing'}>"


@checked
def stats(
    path: str | os.PathLike[str],
    *,
    by: Grouping | Iterable[Grouping] = ("topic", "hour"),
    topics: Iterable[str] | None = None,
    tags: str | None = None,
    begin_ms: datetime | int | None = None,
    end_ms: datetime | int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StoreStats:
    """Counts the messages of a store and their bytes, in one walk over its log.

    System topics count too. Rows are sorted by topic, queue, time and tags. Memory is bounded; see
    ``StoreStats.others``.

    Args:
        path: The store's root folder.
        by: Groupings, one or several in the order of the columns: ``"topic"``,
            ``"queue_id"``, ``"minute"``, ``"quarter_hour"``, ``"hour"``, ``"day"``, ``"tags"``;
            times are those of the store time in UTC. Nothing gives one row.
        topics: Only these topics.
        tags: Only messages that match this tag expression.
        begin_ms: Only store times from here on.
        end_ms: Only store times up to here.
        on_error: At damage ``"raise"`` it, or ``"skip"`` to the next whole record and count.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be.
        CorruptionError: Damage in the log, with ``on_error="raise"``.
        StoreIOError: The operating system refused something.
        ValueError: Nothing that one can group by.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a") as store:
        ...     results = store.append_many(mqstore.Message("orders", b"paid") for _ in range(3))
        >>> [(row["topic"], row["messages"]) for row in mqstore.stats(folder, by=["topic"])]
        [('orders', 3)]
    """
    groupings = (by,) if isinstance(by, str) else tuple(by)
    scan, rows, others, skipped, deleted, stand_ins = _native.stats(
        connect(path, storage_options),
        by=groupings,
        topics=topics,
        tags=tags,
        begin_ms=begin_ms,
        end_ms=end_ms,
        on_error=on_error,
        progress=progress,
        settings=settings_of(config),
    )
    return StoreStats(groupings, Totals(*others), *skipped, *deleted, stand_ins, scan, rows)
