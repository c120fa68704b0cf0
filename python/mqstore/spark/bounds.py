"""Bounds of queue offsets, and the names of topics and queues that no store has."""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING

import mqstore
from mqstore._names import nearest
from mqstore.errors import ConfigError
from mqstore.spark.values import EARLIEST, LATEST, topics_matching

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from mqstore.spark.options import ReadOptions
    from mqstore.spark.stores import Queue, Summary
    from mqstore.spark.values import QueueOffset

_log = logging.getLogger("mqstore.spark")

INT64_MAX = 2**63 - 1
QueuePart = tuple[str, int, int, int]
"""Topic, queue, and a half-open range of queue offsets."""


def check_topics(
    topics: Sequence[str] | None, known: AbstractSet[str], options: ReadOptions
) -> None:
    """Warns of topics that no store has, which is an error with ``strict``.

    Args:
        topics: The topics that the caller named.
        known: The topics of all stores.
        options: The options.

    Raises:
        ConfigError: ``strict`` is on.
    """
    complaints = [
        (f"option topics: no store has topic {name!r}{nearest(name, known)}", "topics")
        for name in sorted(set(topics or ()) - known)
    ]
    pattern = options.topic_pattern
    if pattern is not None and not topics_matching(pattern, known):
        complaints.append(
            (f"option topicPattern: no topic of a store matches {pattern!r}", "topicPattern")
        )
    for text, option in complaints:
        if options.strict:
            raise ConfigError(text, option)
        _log.warning("%s; nothing is read of it (strict=true makes this an error)", text)


def bounds_of(store: Summary, options: ReadOptions) -> tuple[QueuePart, ...]:
    """The bounds of queue offsets that the options set in a store, words resolved."""
    known = {(queue.topic, queue.queue_id): queue for queue in store.queues or ()}
    bounds: dict[tuple[str, int], list[int]] = {}
    for topic, ids in options.queues or ():
        for queue_id in ids:
            bounds[topic, queue_id] = [0, INT64_MAX]
    for side, option, given in (
        (0, "startingOffsets", options.starts),
        (1, "endingOffsets", options.ending_offsets),
    ):
        for one in given:
            for named, queue in known.items():
                if not one.names(*named) or (options.queues is not None and named not in bounds):
                    continue
                pair = bounds.setdefault(named, [0, INT64_MAX])
                pair[side] = _resolve(store, option, queue, one, options)
    for (topic, queue_id), (begin, end) in bounds.items():
        if begin > end:
            raise ConfigError(
                f"{store.store.path}: topic {topic}, queue {queue_id}: startingOffsets ({begin}) "
                f"lies behind endingOffsets ({end})",
                "startingOffsets",
            )
    return tuple((*named, begin, end) for named, (begin, end) in bounds.items())


def _resolve(
    store: Summary, option: str, queue: Queue, given: QueueOffset, options: ReadOptions
) -> int:
    if given.timestamp_ms is not None:
        with mqstore.open(options.root(store.store.path), config=options.config) as opened:
            return opened.offset_at(queue.topic, queue.queue_id, given.timestamp_ms)
    queue_offset = given.queue_offset
    if queue_offset == EARLIEST:
        return queue.min_offset
    if queue_offset == LATEST:
        return queue.max_offset
    inside = queue.min_offset <= queue_offset <= queue.max_offset
    if not inside and options.fail_on_data_loss:
        raise ConfigError(
            f"option {option}: {store.store.path}: topic {queue.topic}, queue {queue.queue_id} "
            f"holds offsets {queue.min_offset} to {queue.max_offset}, not {queue_offset}; "
            "failOnDataLoss=false takes what is there",
            option,
        )
    return queue_offset


def check_queues_known(stores: Sequence[Summary], options: ReadOptions) -> None:
    """Refuses offsets of queues that are in no store: they are misspelt."""
    known = {(one.topic, one.queue_id) for store in stores for one in store.queues or ()}
    for option, given in (
        ("startingOffsets", options.starts),
        ("endingOffsets", options.ending_offsets),
    ):
        for one in given:
            if any(one.names(*queue) for queue in known):
                continue
            topics = sorted({topic for topic, _ in known})
            if one.topic in topics:
                ids = sorted(queue_id for topic, queue_id in known if topic == one.topic)
                there = f"its queues are {', '.join(map(str, ids))}"
            else:
                near = difflib.get_close_matches(one.topic, topics, n=3)
                there = f"did you mean {' or '.join(near)}?" if near else "no store has the topic"
            raise ConfigError(
                f"option {option}: no store has topic {one.topic}"
                + (f", queue {one.queue_id}; " if one.queue_id >= 0 else "; ")
                + there,
                option,
            )
