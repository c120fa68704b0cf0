"""Batches, transactions, delayed messages and several queues: what a message says of itself."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mqstore
from helpers.golden import Case

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TINY = {"mapped_file_size_commit_log": 65536, "mapper_file_size_batch_consume_queue": 230}


def items(bodies: Sequence[bytes]) -> bytes:
    """The body of a batch as a producer sends it."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"
        for body in bodies
    )


def batch(bodies: Sequence[bytes], *, topic: str = "T", number: object = None) -> mqstore.Message:
    number = len(bodies) if number is None else number
    return mqstore.Message(
        topic, items(bodies), sys_flag=0xC0, properties={"INNER_NUM": str(number)}
    )


def open_batches(root: Path, mode: str = "a", **more: object) -> mqstore.Store:
    """A store whose topic ``T`` keeps batches together."""
    config = root / "config"
    if not config.exists():
        config.mkdir(parents=True)
        table = {"T": {"topicName": "T", "attributes": {"queue.type": "BatchCQ"}}}
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return mqstore.open(root, mode, config={**TINY, **more})


def test_batch_takes_as_many_queue_offsets_as_it_has_messages(tmp_path: Path) -> None:
    with open_batches(tmp_path / "s") as store:
        put = [batch([b"x"] * n) for n in (3, 1, 5)] + [mqstore.Message("T", b"alone")] * 3
        assert [r.queue_offset for r in store.append_many(put)] == [0, 3, 4, 9, 10, 11]
        (info,) = store.queues("T")
        assert (info.kind, info.min_offset, info.max_offset) == ("BatchCQ", 0, 12)
        for offset, base, after in [(0, 0, 3), (2, 0, 3), (3, 3, 4), (8, 4, 9), (11, 11, 12)]:
            result = store.read("T", 0, offset, max_messages=1)
            assert [message.queue_offset for message in result.messages] == [base]
            assert result.next_queue_offset == after
        assert len(store.read("T", 0, 0, max_messages=4).messages) == 2
    with open_batches(tmp_path / "s", "r+") as store:
        (more,) = store.append_many([batch([b"y", b"z"])])
        assert more.queue_offset == 12
    with open_batches(tmp_path / "s", "r") as store:
        assert store.queues("T")[0].max_offset == 14
        assert mqstore.verify(tmp_path / "s", config=TINY).ok


@pytest.mark.parametrize("crashed", [False, True])
def test_lost_batch_queue_is_made_again(tmp_path: Path, crashed: bool) -> None:
    root = tmp_path / "s"
    with open_batches(root) as store:
        store.append_many([batch([b"x"] * (1 + n % 4)) for n in range(12)])
        wanted = store.queues("T")
    folder = root / "batchconsumequeue" / "T" / "0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if crashed:
        (root / "abort").write_text("1")
    first, *others = sorted(folder.iterdir())
    for path in others:
        path.unlink()
    first.write_bytes(bytes(first.stat().st_size))
    with open_batches(root, "r") as store:
        assert store.queues("T") == wanted
    with open_batches(root, "r+") as store:
        assert store.recovery is not None
        assert store.recovery.rebuilt == ("batchconsumequeue/T/0",)
        assert store.queues("T") == wanted
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_queue_offset_by_time_is_that_of_a_batch(tmp_path: Path) -> None:
    with open_batches(tmp_path / "s") as store:
        for time, count in [(10, 2), (20, 3), (20, 1), (30, 4)]:
            message = batch([b"x"] * count)
            store.append_many(
                [
                    mqstore.Message(
                        "T",
                        message.body,
                        sys_flag=0xC0,
                        properties=message.properties,
                        store_timestamp_ms=time,
                    )
                ]
            )
        found = {
            time: tuple(store.offset_at("T", 0, time, boundary=b) for b in ("lower", "upper"))
            for time in (5, 10, 15, 20, 25, 30, 35)
        }
    assert found == {
        5: (0, 0), 10: (0, 0), 15: (2, 0), 20: (2, 5), 25: (6, 5), 30: (6, 6), 35: (6, 6)
    }  # fmt: skip


def test_batches_and_topics_must_agree(tmp_path: Path) -> None:
    with open_batches(tmp_path / "s") as store:
        refused = [
            batch([b"x"], topic="plain"),
            *(batch([b"x"], number=n) for n in (0, -1, 32768, "x")),
            mqstore.Message("T", items([b"x"]), sys_flag=0xC0),
            mqstore.Message("T", b"x", properties=b"INNER_NUM\x012\x02"),
        ]
        for message in refused:
            with pytest.raises(mqstore.InvalidMessageError) as error:
                store.append_many([message])
            assert error.value.status == mqstore.PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0


def test_queues_of_the_wrong_kind_are_refused_by_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_batches(root) as store:
        store.append("T", b"x")
    (root / "batchconsumequeue" / "T").rename(root / "consumequeue" / "T")
    with pytest.raises(mqstore.ConfigError, match=r'BatchCQ for topic "T".*consumequeue/T'):
        open_batches(root, "r+")
    with open_batches(root, "r") as store:
        assert any("consumequeue/T" in warning for warning in store.warnings)
        assert [message.body for message in store.read("T", 0, 0).messages] == [b"x"]


def test_members_are_messages(tmp_path: Path) -> None:
    with open_batches(tmp_path / "s") as store:
        (put,) = store.append_many([batch([b"one", b"two"])])
        record = store.get(put.physical_offset)
    assert record.batch is not None
    assert [(m.body, m.queue_offset, m.batch) for m in record.batch] == [
        (b"one", 0, None),
        (b"two", 1, None),
    ]
    assert {m.physical_offset for m in record.batch} == {put.physical_offset}


def test_members_of_the_golden_batches(tmp_path: Path) -> None:
    case = Case("batch")
    with case.open(case.unpack(tmp_path)) as store:
        found = {message.physical_offset: message for message in store.scan()}
    for row in case.expected("message"):
        members = found[row["phyOffset"]].batch
        if "unwrapped" not in row:
            assert members is None
            continue
        assert members is not None
        # Java's client adds what its message class says of waiting.
        expected = [
            (m["queueOffset"], m["body"], {k: v for k, v in m["properties"].items() if k != "WAIT"})
            for m in row["unwrapped"]
        ]
        assert expected == [
            (m.queue_offset, base64.b64encode(m.body).decode(), m.properties) for m in members
        ]


@pytest.mark.parametrize("change", [b"", b"\0", b"\xff\xff\xff\xff"])
def test_a_batch_that_does_not_add_up_keeps_the_rest_readable(
    tmp_path: Path, change: bytes
) -> None:
    good = batch([b"one", b"two"])
    body = change + good.body[len(change) :] if change != b"\0" else good.body + change
    body = body if change else body[:-1]
    bad = mqstore.Message("T", body, sys_flag=0xC0, properties={"INNER_NUM": "2"})
    with open_batches(tmp_path / "s") as store:
        store.append_many([good, bad, good])
        messages = store.read("T", 0, 0).messages
    assert [message.queue_offset for message in messages] == [0, 2, 4]
    with pytest.raises(mqstore.CorruptionError) as error:
        _ = messages[1].batch
    assert error.value.kind == "batch"
    assert messages[1].raw_body == body
    for index in (0, 2):
        assert messages[index].batch is not None


def test_counts_that_are_no_numbers_stop_nothing(tmp_path: Path) -> None:
    """HC14: what no store would write, put into the log."""
    root = tmp_path / "s"
    with open_batches(root) as store:
        store.append_many([batch([b"one", b"two"])] * 3)
    log = root / "commitlog" / ("0" * 20)
    data = log.read_bytes()
    at = data.index(b"INNER_NUM\x012", data.index(b"INNER_NUM\x012") + 1)
    log.write_bytes(data[: at + 10] + b"x" + data[at + 11 :])
    (root / "abort").write_text("1")
    for path in (root / "batchconsumequeue" / "T" / "0").iterdir():
        path.write_bytes(bytes(230))
    with open_batches(root, "r+") as store:
        messages = store.read("T", 0, 0).messages
        assert [message.queue_offset for message in messages] == [0, 2, 4]
        with pytest.raises(mqstore.CorruptionError) as error:
            _ = messages[1].batch
        assert error.value.kind == "batch"
        assert messages[2].batch is not None


def test_append_batch_is_all_or_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", "a", config={"mapped_file_size_commit_log": 4096}) as store:
        results = store.append_batch([mqstore.Message("T", bytes(300))] * 5)
        assert len({result.store_timestamp_ms for result in results}) == 1
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        assert store.append_batch([]) == []
        end = store.max_physical_offset
        for bad in (
            [mqstore.Message("T", b"x"), mqstore.Message("U", b"x")],
            [mqstore.Message("T", b"x"), mqstore.Message("T", b"x", delay_level=1)],
            [mqstore.Message("T", b"x"), mqstore.Message("T", b"x", sys_flag=0x8)],
            [mqstore.Message("T", bytes(300))] * 20,
        ):
            with pytest.raises(mqstore.InvalidMessageError):
                store.append_batch(bad)
        assert store.max_physical_offset == end


def test_a_waiting_message_says_for_what(tmp_path: Path) -> None:
    case = Case("broker")
    with case.open(case.unpack(tmp_path)) as store:
        for message in store.scan():
            expected = {
                "RMQ_SYS_TRANS_HALF_TOPIC": "half",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC": "transaction-op",
                "SCHEDULE_TOPIC_XXXX": "delayed",
            }.get(message.topic, "retry" if message.topic.startswith("%RETRY%") else "normal")
            assert message.purpose == expected
            assert message.half == (expected == "half")
            assert message.real_topic == message.properties.get("REAL_TOPIC")
            assert str(message.real_queue_id) == message.properties.get("REAL_QID", "None")
            assert (message.deliver_timestamp_ms is not None) == (expected == "delayed")
            if expected == "delayed":
                delay = {1: 1_000, 2: 5_000, 3: 10_000}[message.delay_level]
                assert message.deliver_timestamp_ms == message.store_timestamp_ms + delay


def test_delay_levels_are_a_setting(tmp_path: Path) -> None:
    config = {"message_delay_level": "7s 1m"}
    with mqstore.open(tmp_path / "s", "a", config=config) as store:
        for level in (1, 2, 9):
            message = mqstore.Message(
                "SCHEDULE_TOPIC_XXXX", b"", delay_level=level, store_timestamp_ms=1_000
            )
            store.append_many([message])
    queue = mqstore.ConsumeQueue(tmp_path / "s" / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0")
    assert [entry.tags_code for entry in queue.entries()] == [8_000, 61_000, 61_000]


def test_message_in_several_queues_says_which(tmp_path: Path) -> None:
    case = Case("lmq")
    with case.open(case.unpack(tmp_path)) as store:
        for message in store.scan():
            names = message.properties.get("INNER_MULTI_DISPATCH", "")
            numbers = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "")
            wanted = zip(
                filter(None, names.split(",")), filter(None, numbers.split(",")), strict=True
            )
            assert message.multi_dispatch == tuple((n, int(o)) for n, o in wanted)
            for name, number in message.multi_dispatch:
                (found,) = store.read(name, 0, number, max_messages=1).messages
                assert found == message


def test_light_queues_are_numbered_on_after_reopening(tmp_path: Path) -> None:
    config = {"enable_lmq": True, "enable_multi_dispatch": True}
    message = mqstore.Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    for round_ in range(3):
        with mqstore.open(tmp_path / "s", "a", config=config) as store:
            (put,) = store.append_many([message])
            stored = store.get(put.physical_offset)
            assert stored.multi_dispatch == (("%LMQ%a", round_), ("%LMQ%b", round_))


def test_an_address_beyond_the_extension_lets_every_filter_pass(tmp_path: Path) -> None:
    """HQ07: with the extension the address is checked, without it the code is a plain one."""
    config = {"enable_consume_queue_ext": True}
    root = tmp_path / "s"
    with mqstore.open(root, "a", config=config) as store:
        store.append_many([mqstore.Message("T", b"x", tags=tag) for tag in "abab"])
    file = root / "consumequeue" / "T" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    assert data[12:20] == struct.pack(">q", -(2**63))
    data[32:40] = struct.pack(">q", -(2**63) + 10_000)
    file.write_bytes(data)

    def found(tags: str) -> list[int]:
        with mqstore.open(root, config=config) as store:
            return [m.queue_offset for m in store.read("T", 0, 0, tags=tags).messages]

    # The second entry's code cannot be read: the tag itself decides.
    assert (found("a"), found("b")) == ([0, 2], [1, 3])
    for path in (root / "consumequeue_ext" / "T" / "0").iterdir():
        path.unlink()
    (root / "consumequeue_ext" / "T" / "0").rmdir()
    config = {}
    assert found("*") == [0, 1, 2, 3]
    # An address is no code of any tag: what it would leave out is held against the message itself.
    assert found("b") == [1, 3]


# Sizes that the bytes claim mean nothing; 64 MiB is what a body may become.
BOMB_BYTES = (64 << 20) + 1
PACKINGS = {
    "zlib": (0x301, zlib.compress),
    "zlib-of-old-clients": (0x001, zlib.compress),
    "lz4": (0x101, lambda body: pa.Codec("lz4").compress(body, asbytes=True)),
    "zstd": (0x201, lambda body: pa.Codec("zstd").compress(body, asbytes=True)),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("harm", ["bomb", "truncated", "changed", "not packed at all"])
def test_hb02_a_body_that_cannot_be_decompressed_is_lost_to_nobody(
    tmp_path: Path, packing: str, harm: str
) -> None:
    flag, pack = PACKINGS[packing]
    good = pack(b"as the producer sent it" * 9)
    bad = {
        "bomb": lambda: pack(bytes(BOMB_BYTES)),
        "truncated": lambda: good[:-6],
        "changed": lambda: b"\xff\xff\xff\xff" + good[4:],
        "not packed at all": lambda: b"plain",
    }[harm]()
    assert len(bad) < BOMB_BYTES // 100
    with mqstore.open(tmp_path / "s", "a") as store:
        store.append_many(
            mqstore.Message("T", body, sys_flag=flag, keys=f"k{n}", tags="a")
            for n, body in enumerate((good, bad, good))
        )
    with mqstore.open(tmp_path / "s") as store:
        messages = list(store.scan())
        assert list(store.read("T", 0, 0, tags="a").messages) == messages
        assert list(store.query("T", "k1")) == messages[1:2]
        assert [m.body for m in (messages[0], messages[2])] == [b"as the producer sent it" * 9] * 2
        with pytest.raises(mqstore.CorruptionError) as error:
            _ = messages[1].body
        assert error.value.kind == "body"
        assert messages[1].raw_body == bad
        assert messages[1].keys == ("k1",)
    assert mqstore.verify(tmp_path / "s").ok


def test_a_body_of_just_the_bound_is_handed_out(tmp_path: Path) -> None:
    flag, pack = PACKINGS["zstd"]
    with mqstore.open(tmp_path / "s", "a") as store:
        store.append_many([mqstore.Message("T", pack(bytes(BOMB_BYTES - 1)), sys_flag=flag)])
        (message,) = store.scan()
        assert len(message.body) == BOMB_BYTES - 1


def test_messages_that_are_not_read_are_named_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with mqstore.open(root, "a") as store:
        store.append("T", b"x")
    assert mqstore.inventory(root) == []
    (root / "timerlog").mkdir()
    unit = struct.pack(">i", 52).ljust(52, b"\0")
    (root / "timerlog" / ("0" * 20)).write_bytes(unit * 3 + bytes(100))
    (root / "dledger-n0" / "data").mkdir(parents=True)
    found = {row["structure"]: row for row in mqstore.inventory(root)}
    assert set(found) == {"timer-log", "dledger"}
    assert found["timer-log"]["counts"] == {"units": 3}
    assert (found["dledger"]["path"], found["dledger"]["files"]) == ("dledger-n0", 0)
