"""Packs small parts of stores into one task: a task costs more than a small store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqstore.spark.compat import InputPartition
from mqstore.spark.plan import LogRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mqstore.spark.options import ReadOptions
    from mqstore.spark.tables import StructurePart

# Opening a store takes about as long as reading so many bytes.
_OPEN_BYTES = 1 << 20
_PLACE_BYTES = 4096


@dataclass(frozen=True)
class Pack(InputPartition):
    """Parts that one task reads, one after the other.

    Attributes:
        ranges: The parts.
    """

    ranges: tuple[LogRange | StructurePart, ...]


def pack(ranges: Sequence[LogRange | StructurePart], options: ReadOptions) -> list[InputPartition]:
    """Puts neighbours together to about ``splitBytes``, and not below ``minPartitions``.

    Args:
        ranges: The parts, in the order in which their rows come.
        options: The options.
    """
    most = options.split_bytes
    if options.min_partitions > 1:
        total = sum(map(_cost, ranges))
        most = min(most, total // options.min_partitions)
    groups: list[list[LogRange | StructurePart]] = []
    room = 0
    for one in ranges:
        if not groups or _cost(one) > room:
            groups.append([])
            room = most
        groups[-1].append(one)
        room -= _cost(one)
    return [group[0] if len(group) == 1 else Pack(tuple(group)) for group in groups]


def plan_name(partitions: Sequence[object], options: ReadOptions) -> str:
    """A name for Spark's plan: access paths, stores, splits, and options that narrow the read.

    Args:
        partitions: The partitions.
        options: The options.
    """
    ranges = [
        one for partition in partitions for one in ranges_of(partition) if isinstance(one, LogRange)
    ]
    narrowing = [name.removesuffix("_ms") for name in options.narrowing]
    words = [
        options.table if options.table != "messages" else "",
        *sorted({_access_path(one) for one in ranges}),
        _counted(len({one.store for one in ranges}), "store") if ranges else "",
        _counted(len(partitions), "split"),
        *(["by", *narrowing] if narrowing else []),
    ]
    return "_".join(["mqstore", *filter(None, words)])


def _counted(count: int, what: str) -> str:
    return f"{count}_{what}{'' if count == 1 else 's'}"


def _access_path(one: LogRange) -> str:
    if one.places is not None:
        return "index"
    return "consumequeue" if one.queue_parts is not None or one.by_tags else "scan"


def ranges_of(partition: object) -> Iterable[Any]:
    """The parts of a partition; none of one that Spark made where there is nothing to read."""
    if isinstance(partition, Pack):
        return partition.ranges
    return (partition,) if hasattr(partition, "size") else ()


def size_of(partitions: Sequence[object], options: ReadOptions) -> int:
    """Bytes of the stores that partitions read, about: the size that Spark plans with.

    Args:
        partitions: The partitions.
        options: The options.
    """
    sizes = 0
    for one in (one for partition in partitions for one in ranges_of(partition)):
        most = one.size
        if isinstance(one, LogRange) and one.queue_parts is not None:
            most = options.split_bytes
        elif isinstance(one, LogRange) and one.places is not None:
            most = _PLACE_BYTES * len(one.places)
        sizes += min(one.size, most)
    return sizes


def _cost(one: LogRange | StructurePart) -> int:
    return _OPEN_BYTES + one.size
