"""The golden cases: stores that RocketMQ wrote, what it read from them and how it answered.

``tests/golden/manifest.toml`` says of each case how it was made and which checks it takes part in.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import json
import struct
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent / "golden"

Row = dict[str, Any]

READING = ("messages", "queues", "entries", "index_names")
ANSWERS = ("cq", "time", "key", "uniq", "phy")
WRITING = ("put", "commitlog", "consumequeue", "index")
CHECKS = (*READING, *ANSWERS, *WRITING)


@functools.cache
def manifest() -> Row:
    """The manifest as it is written."""
    return tomllib.loads((ROOT / "manifest.toml").read_text(encoding="utf-8"))


def case_names(check: str | None = None, **having: str) -> list[str]:
    """The cases that take part in ``check``, and whose manifest has these values."""
    return [
        name
        for name, entry in manifest()["cases"].items()
        if (check is None or check not in entry.get("left_out", {}))
        and all(entry.get(field) == value for field, value in having.items())
    ]


def read_rows(path: Path) -> list[Row]:
    """The JSON objects of a file, one on each line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


@dataclass(frozen=True)
class Case:
    """One case: its folder and what the manifest says."""

    name: str

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def entry(self) -> Row:
        return manifest()["cases"][self.name]

    @functools.cached_property
    def params(self) -> Row:
        return json.loads((self.folder / "params.json").read_text(encoding="utf-8"))

    @property
    def settings(self) -> Row:
        """RocketMQ's settings that a store has a use for."""
        unknown_to_a_store = {
            "mappedFileSizeTimerLog",
            "storeType",
            "rocksdbCQDoubleWriteEnable",
            "useSeparateStorePathForRocksdbCQ",
            "indexRocksDBEnable",
            "indexFileWriteEnable",
        }
        given: Row = self.params["storeConfig"]
        return {name: value for name, value in given.items() if name not in unknown_to_a_store}

    @property
    def release(self) -> str:
        """The release of RocketMQ that wrote it, as a setting names it."""
        return ".".join(self.entry.get("rocketmq", manifest()["rocketmq"]).split(".")[:2])

    def rows(self, name: str) -> list[Row]:
        """The rows of one of the case's files: ``script``, ``expected``, ``queries``, ..."""
        return read_rows(self.folder / f"{name}.jsonl")

    def expected(self, kind: str) -> list[Row]:
        """RocketMQ's rows of a ``type``, without the type."""
        rows = (row for row in self.rows("expected") if row["type"] == kind)
        return [{name: value for name, value in row.items() if name != "type"} for row in rows]

    def queries(self, op: str) -> list[tuple[Row, Row]]:
        """The queries of an operation with RocketMQ's answers."""
        rows = (row for row in self.rows("queries") if row["query"]["op"] == op)
        return [(row["query"], row["result"]) for row in rows]

    def unpack(self, folder: Path) -> Path:
        """The store as RocketMQ left it, in ``folder``; holes stay holes."""
        with tarfile.open(self.folder / "store.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        return folder / "store"

    def open(self, folder: Path, mode: str = "r", **more: Any) -> mqstore.Store:
        """The unpacked store, opened with the case's settings."""
        return mqstore.open(folder, mode, config={**self.settings, **more})

    def bring_to_order(self, root: Path) -> None:
        """Recovers a store that RocketMQ did not close; what it lost with a file is given up."""
        if (root / "abort").exists():
            lost = self.entry["state"] == "truncated"
            mqstore.recover(root, dry_run=False, drop_beyond=lost, config=self.settings)

    def script(self) -> Iterator[tuple[Row, list[mqstore.Message]]]:
        """Each put of the script, and the records that it becomes."""
        for line in self.rows("script"):
            yield line, messages_of(line, with_batch_properties=self.release == "5.3")


def make_batch_topics(root: Path, names: Sequence[str]) -> None:
    """A new store that knows which topics keep batches together, as a broker would tell it."""
    table = {
        name: {"topicName": name, "attributes": {"queue.type": "BatchCQ"}, "perm": 6}
        for name in names
    }
    if table:
        (root / "config").mkdir(parents=True)
        text = json.dumps({"topicConfigTable": table})
        (root / "config" / "topics.json").write_text(text, encoding="utf-8")


# --- the script, as messages ------------------------------------------------------------------

INNER_BATCH = 0xC0
_TRANSACTION = {None: 0, "prepared": 0x4, "commit": 0x8, "rollback": 0xC}


def messages_of(line: Row, *, with_batch_properties: bool = True) -> list[mqstore.Message]:
    """The records that one line of a script becomes: one, or one for each item of a batch.

    Up to 5.3 an item has the properties of its batch too.
    """
    common = {
        "queue_id": line["queueId"],
        "born_timestamp_ms": line["bornTimestamp"],
        "born_host": line["bornHost"],
        "store_timestamp_ms": line["storeTimestamp"],
        "store_host": line["storeHost"],
        "reconsume_times": line.get("reconsumeTimes", 0),
        "sys_flag": line.get("sysFlag", 0) | _TRANSACTION[line.get("transaction")],
    }
    if line.get("batchKind") == "inner":
        number = {"INNER_NUM": str(len(line["batch"]))}
        common["sys_flag"] |= INNER_BATCH
        return [
            mqstore.Message(
                line["topic"],
                b"".join(_item(item) for item in line["batch"]),
                properties=_block({**line, "properties": {**line.get("properties", {}), **number}}),
                **common,
            )
        ]
    if "batch" in line:
        shared = _block(line) if with_batch_properties else b""
        return [
            mqstore.Message(
                line["topic"],
                _body(item),
                flag=item.get("flag", 0),
                properties=_joined(_block(item), shared),
                **common,
            )
            for item in line["batch"]
        ]
    return [
        mqstore.Message(
            line["topic"],
            _body(line),
            flag=line.get("flag", 0),
            prepared_transaction_offset=line.get("preparedTransactionOffset", 0),
            **common,
            **_properties(line),
        )
    ]


def _item(item: Row) -> bytes:
    """One message of a batch that is kept together, as its client encodes it."""
    body, block = _body(item), _block(item)
    head = struct.pack(">5i", 22 + len(body) + len(block), 0, 0, item.get("flag", 0), len(body))
    return head + body + struct.pack(">h", len(block)) + block


def _body(line: Row) -> bytes:
    return line["bodyText"].encode() if "bodyText" in line else base64.b64decode(line["body"])


def _properties(line: Row) -> Row:
    """Properties by name where ours are written the same way, else the block itself."""
    if "propertiesString" in line:
        return {"properties": line["propertiesString"].encode()}
    tags, keys, unique, own = (line.get(n) for n in ("tags", "keys", "uniqKey", "properties"))
    pieces = [] if keys is None else keys.split(" ")
    level = line.get("delayLevel")
    plain = tags != "" and all(pieces) and unique != "" and level != 0
    if not plain or any(not isinstance(v, str) or v == "" for v in (own or {}).values()):
        return {"properties": _block(line)}
    return {
        "tags": tags,
        "keys": pieces,
        "unique_key": unique,
        "delay_level": level or 0,
        "properties": own,
    }


def _block(line: Row) -> bytes:
    """TAGS, KEYS, UNIQ_KEY, DELAY and then the rest, each ``name 0x01 value 0x02``."""
    named = {
        "TAGS": line.get("tags"),
        "KEYS": line.get("keys"),
        "UNIQ_KEY": line.get("uniqKey"),
        "DELAY": line.get("delayLevel"),
    }
    pairs = {**{n: v for n, v in named.items() if v is not None}, **(line.get("properties") or {})}
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


def _joined(own: bytes, shared: bytes) -> bytes:
    """An item's properties and its batch's."""
    separator = b"\x02" if own and shared and not own.endswith(b"\x02") else b""
    return own + separator + shared


# --- our messages, in RocketMQ's words --------------------------------------------------------


def message_row(message: mqstore.StoredMessage) -> Row:
    """A message's row in ``expected.jsonl``, as far as a record tells it."""
    return {
        "totalSize": message.store_size,
        "layoutSize": len(message.record),
        "magic": "0x" + message.record[4:8].hex(),
        "bodyCrc": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "phyOffset": message.physical_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": host(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": base64.b64encode(message.raw_body).decode(),
        "topic": message.topic,
        "propertiesRaw": base64.b64encode(message.raw_properties).decode(),
        "msgId": message.message_id,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "uniqKey": message.unique_key,
        "properties": message.properties,
    }


def expected_message_row(row: Row) -> Row:
    """The same of a row of ``expected.jsonl``; what dispatch made of the record is left out."""
    of_dispatch = {"tagsCode", "batchSize", "msgBaseOffset", "unwrapped"}
    kept = {name: value for name, value in row.items() if name not in of_dispatch}
    return {**kept, "bornHost": host(row["bornHost"]), "storeHost": host(row["storeHost"])}


def summary(message: mqstore.StoredMessage) -> Row:
    """A message's row in ``queries.jsonl``."""
    return {
        "phyOffset": message.physical_offset,
        "queueOffset": message.queue_offset,
        "totalSize": message.store_size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "storeTimestamp": message.store_timestamp_ms,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "uniqKey": message.unique_key,
        "msgId": message.message_id,
    }


def summary_of_row(row: Mapping[str, Any]) -> Row:
    """The same of a row of ``expected.jsonl``, or of an answer of a queue."""
    names = ("phyOffset", "queueOffset", "totalSize", "topic", "queueId", "storeTimestamp")
    return {name: row[name] for name in (*names, "tags", "keys", "uniqKey", "msgId")}


def host(text: str) -> str:
    """An address in one spelling: RocketMQ writes out the zeros of an IPv6 address."""
    address, _, port = text.rpartition(":")
    return f"{ipaddress.ip_address(address.strip('[]'))} {port}"


def count_of(message: mqstore.StoredMessage) -> int:
    """How many messages a record stands for."""
    if message.sys_flag & INNER_BATCH:
        return int(message.properties["INNER_NUM"])
    return 1


def keys_of(row: Row) -> set[str]:
    """Index keys of a message: its unique key and each of its keys."""
    pieces = (row["keys"] or "").split(" ")
    return {key for key in (row["uniqKey"], *pieces) if key}


def matches_tags(tags: str | None, expression: str | None) -> bool:
    """Whether a tag satisfies an expression, by its text."""
    if expression in (None, "", "*"):
        return True
    assert expression is not None
    wanted = {piece.strip() for piece in expression.split("||")} - {""}
    return tags in wanted
