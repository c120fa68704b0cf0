"""Messages as RocketMQ's consumers see them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mqstore

Row = dict[str, Any]
# A client takes the bit away with the compression.
COMPRESSED = 0x1


def consumed(message: mqstore.StoredMessage) -> Row:
    """A stored message as a consumer sees it."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.physical_offset,
        "storeSize": message.store_size,
        "uniqKey": message.unique_key,
        "offsetMsgId": message.message_id,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "flag": message.flag,
        "sysFlag": message.sys_flag & ~COMPRESSED,
        "bodyCrc": message.body_crc,
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": base64.b64encode(message.body).decode(),
        "properties": message.properties,
    }


def by_place(rows: list[Row]) -> list[Row]:
    """Rows in the order of the queues, without what the broker adds on the way."""
    for row in rows:
        for added in ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"):
            row["properties"].pop(added, None)
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def offset_table(groups: dict[str, list[mqstore.GroupOffset]]) -> dict[str, dict[str, int]]:
    """Groups' offsets in the shape of ``consumerOffset.json``."""
    table: dict[str, dict[str, int]] = {}
    for name, offsets in groups.items():
        for of in offsets:
            table.setdefault(f"{of.topic}@{name}", {})[str(of.queue_id)] = of.queue_offset
    return table
