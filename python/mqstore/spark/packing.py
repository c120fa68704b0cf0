"""Packs small parts of stores into one task: a task costs more than a small store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqstore.spark.compat import InputPartition
from mqstore.spark.plan import LogRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mqstore.spark.options import ReadOptions

__all__ = ["Pack", "pack", "ranges_of"]

# Opening a store takes about as long as reading so many bytes.
_OPEN_BYTES = 4 << 20


@dataclass(frozen=True)
class Pack(InputPartition):
    """Parts that one task reads, one after the other.

    Attributes:
        ranges: The parts.
    """

    ranges: tuple[LogRange, ...]


def pack(ranges: Sequence[LogRange], options: ReadOptions) -> list[InputPartition]:
    """Puts neighbours together to about ``splitBytes``, and not below ``minPartitions``.

    Args:
        ranges: The parts, in the order in which their rows come.
        options: The options.
    """
    most = options.split_bytes
    if options.min_partitions > 1:
        total = sum(map(_cost, ranges))
        most = min(most, total // options.min_partitions)
    packs: list[InputPartition] = []
    group: list[LogRange] = []
    size = 0
    for one in ranges:
        if group and size + _cost(one) > most:
            packs.append(_packed(group))
            group, size = [], 0
        group.append(one)
        size += _cost(one)
    if group:
        packs.append(_packed(group))
    return packs


def ranges_of(partition: object) -> Iterable[LogRange]:
    """The parts of a partition; none of one that Spark made where there is nothing to read."""
    match partition:
        case LogRange():
            return (partition,)
        case Pack():
            return partition.ranges
    return ()


def _packed(group: Sequence[LogRange]) -> InputPartition:
    return group[0] if len(group) == 1 else Pack(tuple(group))


def _cost(one: LogRange) -> int:
    return _OPEN_BYTES + one.end - one.begin
