"""Scripts of puts out of a seed, in the shape of the golden cases' ``script.jsonl``.

They mix what the format distinguishes: both record versions, both kinds of host, tags and keys
whose hashes are equal, transaction types, empty bodies, odd property blocks; and they aim at the
end of a commit log file, where one byte decides whether a record still fits.
"""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

LOG_FILE = 8192


@dataclass(frozen=True)
class Flavour:
    """A kind of store: what its settings and its messages have beside the common."""

    name: str
    settings: Row = field(default_factory=dict)
    batch_topics: tuple[str, ...] = ()

    @property
    def params(self) -> Row:
        """Commands for RocketMQ."""
        common = {
            "mappedFileSizeCommitLog": LOG_FILE,
            "mappedFileSizeConsumeQueue": 100,
            "maxHashSlotNum": 50,
            "maxIndexNum": 200,
        }
        settings = {**common, **self.settings}
        return {"storeConfig": settings, "batchTopics": list(self.batch_topics)}


PLAIN = Flavour("plain")
CHECKSUMS = Flavour("checksums", {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"})
EXTENDED = Flavour(
    "extended", {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 130}
)
LIGHT = Flavour("light", {"enableLmq": "true", "enableMultiDispatch": "true"})
BATCHES = Flavour("batches", {"mapperFileSizeBatchConsumeQueue": 230}, ("kept-1", "kept-2"))
FLAVOURS = (PLAIN, CHECKSUMS, EXTENDED, LIGHT, BATCHES)
PARAMS = PLAIN.params

TOPICS = ("orders", "pay-ment_1", "%RETRY%billing", "%DLQ%billing", "%RETRY%" + "x" * 150, "a|b")
# AaAa, BBBB, AaBB and BBAa have one hash; so have Ea#... and FB#... behind a topic.
TAGS = (None, None, "TagA", "TagB", "AaAa", "BBBB", "AaBB", "标签", "😀x", "a b")
KEYS = ("k0", "k1", "k2", "Ea#20231001123456", "FB#20231001123456", "AaAa", "BBBB", "ключ", "鍵😀")
HOSTS = ("10.1.2.3:40000", "192.168.7.3:10911", "[2001:db8::7]:9876", "[fe80::1]:0")
SEPARATORS = ("\x01", "\x02")


class Script:
    """A growing script: knows where the next record will lie."""

    def __init__(self, seed: int, flavour: Flavour = PLAIN) -> None:
        self._random = random.Random(seed)
        self._flavour = flavour
        self._position = 0
        self._time = 1_696_161_296_000
        self.lines: list[Row] = []

    def add(self, count: int) -> list[Row]:
        """Adds lines and gives them."""
        added = [self._line() for _ in range(count)]
        self.lines += added
        return added

    def _line(self) -> Row:
        choose = self._random
        self._time += choose.choice((0, 0, 1, 7, 250, 999, 1000, 1001, 60_000))
        line: Row = {
            "topic": choose.choice(TOPICS),
            "queueId": choose.randrange(3),
            "bornTimestamp": self._time - choose.randrange(2000),
            "storeTimestamp": self._time,
            "bornHost": choose.choice(HOSTS),
            "storeHost": choose.choice(HOSTS[1:3]),
            "flag": choose.choice((0, 0, 1, -1, 2**31 - 1)),
            "reconsumeTimes": choose.choice((0, 0, 3)),
        }
        transaction = choose.choice((None,) * 12 + ("prepared", "commit", "rollback"))
        if transaction is not None:
            line["transaction"] = transaction
            line["preparedTransactionOffset"] = choose.choice((0, 4096))
        self._add_properties(line)
        if self._flavour.batch_topics and choose.random() < 0.4:
            line["topic"] = choose.choice(self._flavour.batch_topics)
            if "transaction" not in line and choose.random() < 0.8:
                return self._batch(line)
        line["body"] = base64.b64encode(choose.randbytes(self._body_length(line))).decode()
        return line

    def _batch(self, line: Row) -> Row:
        """Messages that are kept together as one record."""
        choose = self._random
        line.pop("propertiesString", None)
        line.pop("flag")
        line["batchKind"] = "inner"
        line["batch"] = [
            {
                "body": base64.b64encode(choose.randbytes(choose.randrange(40))).decode(),
                "keys": choose.choice(KEYS),
                "flag": choose.randrange(3),
            }
            for _ in range(choose.randint(1, 6))
        ]
        return line

    def _add_properties(self, line: Row) -> None:
        choose = self._random
        if choose.random() < 0.1:
            line["propertiesString"] = choose.choice(
                (
                    "",
                    "TAGS\x01t",
                    "x\x01y\x02KEYS\x01k1",
                    "KEYS\x01  k1   k2 \x02",
                    "KEYS\x01k1\x02KEYS\x01k2\x02",
                    "UNIQ_KEY\x01U1\x02novalue\x02",
                    "\x01b\x02KEYS\x01k\x01with\x02",
                )
            )
            return
        tags = choose.choice(TAGS)
        if tags is not None:
            line["tags"] = tags
        if choose.random() < 0.7:
            line["keys"] = " ".join(choose.choices(KEYS, k=choose.randint(1, 4)))
        if choose.random() < 0.5:
            line["uniqKey"] = choose.randbytes(16).hex().upper()
        if choose.random() < 0.4:
            line["properties"] = {
                name: choose.choice(("0", "true", "значение", "v" * 40))
                for name in choose.sample(("WAIT", "a", "CLUSTER", "имя"), k=choose.randint(1, 4))
            }
        if "enableLmq" in self._flavour.settings and choose.random() < 0.5:
            names = choose.sample(("%LMQ%a", "%LMQ%b", "%LMQ%c%z"), k=choose.randint(1, 3))
            light = {"INNER_MULTI_DISPATCH": ",".join(names)}
            # RocketMQ counts a light queue on for what is never entered there, and enters all
            # that follows too low.
            line.pop("transaction", None)
            line["properties"] = {**line.get("properties", {}), **light}

    def _body_length(self, line: Row) -> int:
        """Mostly any length; near the end of a file often one that just fits, or just does not."""
        rest = record_length(line, 0) + (20 if self._flavour is CHECKSUMS else 0)
        room = LOG_FILE - self._position % LOG_FILE
        length = self._random.choice((0, 1, 17, 100, self._random.randrange(900)))
        least = room - 8 - rest
        if 2 <= least < 1500 and self._random.random() < 0.6:
            length = least + self._random.choice((-9, -8, -2, -1, 0, 1, 2))
        length = max(0, length)
        if rest + length + 8 > room:
            self._position += room
        self._position += rest + length
        return length


def record_length(line: Row, body: int) -> int:
    """Bytes of the record that a line becomes."""
    v6 = sum(12 for name in ("bornHost", "storeHost") if line[name].startswith("["))
    topic = len(line["topic"].encode())
    version = 92 if len(line["topic"]) > 127 else 91
    return version + v6 + topic + body + len(property_block(line).encode())


def property_block(line: Row) -> str:
    """The properties as they are stored."""
    if "propertiesString" in line:
        return line["propertiesString"]
    named = {"TAGS": line.get("tags"), "KEYS": line.get("keys"), "UNIQ_KEY": line.get("uniqKey")}
    pairs = {**{n: v for n, v in named.items() if v is not None}, **line.get("properties", {})}
    return "".join(f"{n}{SEPARATORS[0]}{v}{SEPARATORS[1]}" for n, v in pairs.items())


def queries(dump: list[Row], seed: int) -> list[Row]:
    """Questions about every message, queue, key and store time of a dump, and about none."""
    choose = random.Random(seed)
    messages = [row for row in dump if row["type"] == "message"]
    asked: list[Row] = []
    for queue in (row for row in dump if row["type"] == "queue"):
        of = {"topic": queue["topic"], "queueId": queue["queueId"]}
        low, high = queue["minOffset"], queue["maxOffset"]
        starts = {low - 1, low, (low + high) // 2, high - 1, high, high + 3}
        for start in sorted(starts):
            asked += [{"op": "cq", **of, "from": start, "max": n} for n in (1, 5, 32, 100)]
        for tags in ("TagA", "TagA || AaAa", "标签||TagB|| ", "nope", "*", ""):
            asked.append({"op": "cq", **of, "from": low, "max": 32, "tags": tags})
        mine = [m for m in messages if (m["topic"], m["queueId"]) == (of["topic"], of["queueId"])]
        times = {m["storeTimestamp"] + d for m in mine for d in (-1, 0, 1)} | {0, 2**40, 2**62}
        if queue["cqType"] == "BatchCQ":
            # RocketMQ answers some of these wrongly; the golden case `batch` says which.
            times = set()
        for time in sorted(times):
            asked += [
                {"op": "time", **of, "timestamp": time, "boundary": boundary}
                for boundary in ("lower", "upper")
            ]
    for topic in sorted({m["topic"] for m in messages}):
        mine = [m for m in messages if m["topic"] == topic]
        keys = {k for m in mine for k in (m["keys"] or "").split(" ")} | {"nope"}
        for key in sorted(keys - {""}):
            asked += [{"op": "key", "topic": topic, "key": key, "max": n} for n in (1, 32, 64, 100)]
            first = choose.choice(mine)["storeTimestamp"]
            for begin, end in ((first, first), (0, first), (first, first + 60_000)):
                bounds = {"begin": begin, "end": end}
                asked.append({"op": "key", "topic": topic, "key": key, "max": 32, **bounds})
        for message in choose.sample(mine, k=min(5, len(mine))):
            if message["uniqKey"]:
                key = message["uniqKey"]
                asked.append({"op": "uniq", "topic": topic, "key": key, "max": 32})
    for message in messages:
        asked.append({"op": "phy", "topic": "", "phyOffset": message["phyOffset"]})
    asked.append({"op": "cq", "topic": "NoSuchTopic", "queueId": 0, "from": 0, "max": 32})
    for row in asked:
        if row["op"] == "cq":
            row.setdefault("tags", None)
    return asked
