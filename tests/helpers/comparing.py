"""A store of ours and one of RocketMQ, compared byte by byte, dump by dump, answer by answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mqstore
from helpers.answers import ask, is_same
from helpers.files import digest, digests, index_files, used_log_files
from helpers.golden import expected_message_row, make_batch_topics, message_row, messages_of
from helpers.java import RELEASE
from helpers.scripts import PARAMS, PLAIN, Flavour

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Row = dict[str, Any]
SETTINGS = PARAMS["storeConfig"]


def write_ours(
    root: Path,
    script: Sequence[Row],
    mode: str = "a",
    flavour: Flavour = PLAIN,
    release: str = RELEASE,
) -> list[mqstore.AppendResult]:
    if not root.exists():
        make_batch_topics(root, flavour.batch_topics)
    with_batch = release == "5.3"
    messages = [
        message
        for line in script
        for message in messages_of(line, with_batch_properties=with_batch)
    ]
    settings = {**flavour.params["storeConfig"], "rocketmq_version": release}
    with mqstore.open(root, mode, config=settings) as store:
        return store.append_many(messages)


def messages_ours(root: Path) -> list[Row]:
    with mqstore.open(root, config=SETTINGS) as store:
        return [message_row(message) for message in store.scan()]


def dump_ours(root: Path) -> dict[str, list[Row]]:
    """Our messages and queues, in the shape of RocketMQ's dump."""
    messages = messages_ours(root)
    with mqstore.open(root, config=SETTINGS) as store:
        queues = [
            {
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "cqType": queue.kind,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
            }
            for queue in store.queues()
        ]
    entries = [
        {
            "topic": queue["topic"],
            "queueId": queue["queueId"],
            "offset": entry.queue_offset,
            "phyOffset": entry.physical_offset,
            "size": entry.store_size,
            "tagsCode": entry.tags_code,
        }
        for queue in queues
        if queue["cqType"] == "SimpleCQ"
        for entry in mqstore.ConsumeQueue(
            root / "consumequeue" / queue["topic"] / str(queue["queueId"])
        ).entries(start=queue["minOffset"])
    ]
    return {"messages": messages, "queues": queues, "entries": entries}


def dump_as_ours(dump: list[Row]) -> dict[str, list[Row]]:
    """RocketMQ's dump in the same words."""

    def of(kind: str, left_out: set[str]) -> Iterator[Row]:
        for row in dump:
            if row["type"] == kind:
                yield {name: value for name, value in row.items() if name not in left_out}

    return {
        "messages": [expected_message_row(row) for row in of("message", {"type"})],
        "queues": list(of("queue", {"type", "maxPhysicOffset"})),
        "entries": [row for row in of("cq", {"type"}) if "batchNum" not in row],
    }


def assert_same_bytes(one: Path, other: Path) -> None:
    assert used_log_files(one) == used_log_files(other)
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        assert digests(one, folder) == digests(other, folder)
    one_index, other_index = index_files(one), index_files(other)
    assert [digest(path) for path in one_index] == [digest(path) for path in other_index]


def assert_same_answers(
    root: Path, flavour: Flavour, asked: Sequence[Row], answers: Sequence[Row]
) -> None:
    settings = {**flavour.params["storeConfig"], "emulate_transfer_limits": True}
    with mqstore.open(root, config=settings) as store:
        pairs = zip(asked, answers, strict=True)
        three = ((query, ask(store, query), answer) for query, answer in pairs)
        assert [one for one in three if not is_same(*one)] == []


def assert_same_dump(ours: dict[str, list[Row]], theirs: dict[str, list[Row]]) -> None:
    for row in theirs["entries"]:
        if row.pop("ext", None) is not None:
            # RocketMQ shows what lies at the address, the entry's own bytes hold the address.
            row["tagsCode"] = next(
                mine["tagsCode"]
                for mine in ours["entries"]
                if [mine[n] for n in ("topic", "queueId", "offset")]
                == [row[n] for n in ("topic", "queueId", "offset")]
            )
    assert ours == theirs
