"""The dry run: what would be sent, to which topics of the target, and who would receive it."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mqstore.errors import StoreError
from mqstore.replaying.report import FirstMessage, ReplayTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mqstore.replaying.sender import Sender
    from mqstore.replaying.work import Work

_FIRST = 5


def differences(*, new_id: bool, keeps_queue: bool) -> tuple[str, ...]:
    """How the sent messages differ from the stored ones."""
    found = [
        "store and born times are those of this run; hosts, ids and queue offsets are the target's",
        "delays, transactions and counts of redelivery are not carried: messages come at once",
    ]
    if new_id:
        found.append("each message gets a new unique key")
    if not keeps_queue:
        found.append("messages go to all queues in turn")
    return tuple(found)


def plan(
    work: Work, connect: Callable[[], Sender], *, group: str | None, keeps_queue: bool
) -> dict[str, Any]:
    """Fields of the report about the messages of a run and the topics of the target."""
    counts: dict[str, list[int]] = {}
    first: list[FirstMessage] = []
    for one in itertools.chain.from_iterable(found for found, _ in work.streams()):
        for index, message in one.messages.items():
            topic, queue_id = one.goes_to(index)
            row = counts.setdefault(topic, [0, 0, 0])
            row[0] += 1
            row[1] += len(message.raw_body) + len(message.raw_properties)
            row[2] = max(row[2], queue_id)
            if len(first) < _FIRST:
                key, keys = message.unique_key, tuple(message.keys)
                time_ms = message.store_timestamp_ms
                first.append(FirstMessage(topic, one.place, time_ms, keys, message.tags, key))
    topics, warnings = _topics(counts, connect, group, keeps_queue=keeps_queue)
    return {
        "messages": sum(row.messages for row in topics),
        "topics": topics,
        "first": tuple(first),
        "warnings": warnings,
    }


def _topics(
    counts: Mapping[str, list[int]],
    connect: Callable[[], Sender],
    group: str | None,
    *,
    keeps_queue: bool,
) -> tuple[tuple[ReplayTopic, ...], list[str]]:
    """The topics of the target, as far as it can be asked."""
    rows, warnings = [], []
    try:
        with closing(connect()) as sender:
            known = {topic: sender.topic(topic) for topic in counts}
    except StoreError as error:
        known = {}
        warnings.append(f"the target was not asked: {error}")
    for topic, (messages, size, highest) in sorted(counts.items()):
        queues: int | None
        queues, groups, trouble = known.get(topic, (None, (), ""))
        is_retry = topic.startswith("%RETRY%")
        if trouble:
            queues = None
            warnings.append(f"{topic}: the target was not asked: {trouble}")
        elif queues == 0:
            warnings.append(f"{topic}: the target has no such topic; make it first")
        elif queues is not None and queues <= highest and keeps_queue and not is_retry:
            warnings.append(
                f"{topic}: the target has {queues} queues, and messages are of queue {highest}; "
                "spread them over any queue"
            )
        if group is not None and is_retry:
            groups = (group,)
        rows.append(ReplayTopic(topic, messages, size, queues, groups, highest))
    return tuple(rows), warnings
