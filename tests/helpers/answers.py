"""Our answers in RocketMQ's words, and when the two count as the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqstore
from helpers.files import index_files
from helpers.golden import count_of, matches_tags, summary, summary_of_row

Row = dict[str, Any]
NEVER = 2**63 - 1


def ask(store: mqstore.Store, query: Row) -> Row:
    """A query put to us. The store must have been opened with ``emulate_transfer_limits``."""
    match query["op"]:
        case "cq":
            result = store.read(
                query["topic"],
                query["queueId"],
                query["from"],
                max_messages=query["max"],
                tags=query["tags"],
            )
            return {
                "status": result.status.value,
                "nextBeginOffset": result.next_queue_offset,
                "minOffset": result.min_queue_offset,
                "maxOffset": result.max_queue_offset,
                "bufferTotalSize": sum(message.store_size for message in result.messages),
                "messageCount": sum(count_of(message) for message in result.messages),
                "messages": [summary(message) for message in result.messages],
            }
        case "time":
            where = (query["topic"], query["queueId"], query["timestamp"])
            return {"offset": store.offset_at(*where, boundary=query["boundary"])}
        case "key" | "uniq":
            found = store.query(
                query["topic"],
                query["key"],
                begin_ms=query.get("begin"),
                end_ms=query.get("end"),
                max_messages=query["max"],
                exact=False,
            )
            return {
                "phyOffsets": select(store, query),
                "messages": [summary(message) for message in found],
            }
        case "phy":
            try:
                message = store.get(query["phyOffset"])
            except (mqstore.OffsetOutOfRangeError, mqstore.MessageNotFoundError):
                return {"found": False, "message": None}
            return {"found": True, "message": summary(message)}
    raise ValueError(query["op"])


def select(store: mqstore.Store, query: Row) -> list[int]:
    """Offsets under a key, newest first, out of the index files (``IndexService#queryOffset``)."""
    config = store.config
    begin, end = query.get("begin", 0), query.get("end", NEVER)
    most = min(query["max"], config.max_msgs_num_batch or 64)
    offsets: list[int] = []
    for path in reversed(index_files(Path(store.path))):
        with mqstore.IndexFile(
            path,
            slots=config.max_hash_slot_num or 5_000_000,
            entries=config.max_index_num or 20_000_000,
        ) as index:
            first, last = index.header.begin_timestamp_ms, index.header.end_timestamp_ms
            around = begin < first and end > last
            if around or first <= begin <= last or first <= end <= last:
                offsets += index.select(
                    f"{query['topic']}#{query['key']}",
                    begin_ms=begin,
                    end_ms=end,
                    max_entries=most - len(offsets),
                )
        if first < begin or len(offsets) >= most:
            break
    return offsets


def is_same(query: Row, found: Row, answer: Row) -> bool:
    """Whether our answer is RocketMQ's.

    RocketMQ's store goes by the hash of a tag alone and leaves the text to its client, so it may
    give other tags' messages, which also count against its limits.
    """
    match query["op"]:
        case "cq":
            right = [row for row in answer["messages"] if matches_tags(row["tags"], query["tags"])]
            kept = [summary_of_row(row) for row in right]
            if len(right) == len(answer["messages"]):
                return found == {**answer, "messages": kept}
            return (
                found["messages"][: len(kept)] == kept
                and found["nextBeginOffset"] >= answer["nextBeginOffset"]
                and found["minOffset"] == answer["minOffset"]
                and found["maxOffset"] == answer["maxOffset"]
            )
        case "key" | "uniq":
            messages = [summary_of_row(row) for row in answer["messages"]]
            return found == {"phyOffsets": answer["phyOffsets"], "messages": messages}
        case "phy" if answer["found"]:
            return found == {"found": True, "message": summary_of_row(answer["message"])}
        case _:
            return found == answer
