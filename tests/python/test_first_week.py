"""Issue 40: what a Python developer meets in the first week."""

from __future__ import annotations

import gc
import json
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

FAST: dict[str, Any] = {**TINY, "message_delay_level": "0s 0s 0s 0s 0s"}


def bodies(messages: list[mqstore.StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def fill(store: mqstore.Store, count: int, topic: str = "orders") -> None:
    store.append_many((topic, b"%d" % number) for number in range(count))


# ------------------------------------------------------------------------------ acknowledgement

KILLED = """
import os, signal, sys, mqstore, mqstore.groups.in_flight
# On a busy machine a commit by time would come between.
mqstore.groups.in_flight._COMMIT_S = 3600.0
with mqstore.open(sys.argv[1], sys.argv[2]) as store, store.group("g") as group:
    messages = group.poll("orders", max_messages=int(sys.argv[3]))
    group.ack(messages[0])
    group.ack([messages[2], messages[3]])
    group.ack(messages[1:2])
    group.ack(messages[5])
    print(len(messages), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("mode", ["r+", "r"])
def test_an_acknowledgement_survives_a_kill(tmp_path: Path, mode: str) -> None:
    writer = mqstore.open(tmp_path, "a", config=TINY)
    fill(writer, 8)
    if mode == "r+":
        writer.close()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), mode, "7"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"7\n"), done.stderr.decode()
    if mode == "r+":
        writer = mqstore.open(tmp_path, "r+", config=TINY)
    assert [at.queue_offset for at in writer.groups()["g"]] == [0]
    with writer, writer.group("g") as group:
        assert bodies(group.poll("orders")) == [b"4", b"6", b"7"]
        # The offset in the broker's file follows, though nothing was acknowledged here.
        wait_until(lambda: [at.queue_offset for at in writer.groups()["g"]] == [4])
    assert list((tmp_path / "mqstore.acks").iterdir()) == []
    assert mqstore.verify(tmp_path).ok


def test_acknowledgements_of_lost_messages_do_not_count(tmp_path: Path) -> None:
    """After a power cut other messages have the numbers of those that were acknowledged."""
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 6)
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "r+", "6"], capture_output=True, check=False
    )
    (acks,) = (tmp_path / "mqstore.acks").iterdir()
    rows = acks.read_bytes()
    other = tmp_path / "other"
    with mqstore.open(other, "a", config=TINY) as store:
        time.sleep(0.002)  # another store time
        fill(store, 6)
        with store.group("g") as group:
            group.poll("orders", max_messages=1)
    (other / "mqstore.acks").mkdir(exist_ok=True)
    (other / "mqstore.acks" / acks.name).write_bytes(rows)
    with mqstore.open(other, "r+", config=TINY) as store, store.group("g") as group:
        assert len(group.poll("orders")) == 6


@pytest.mark.parametrize("cut", [0, 1, 27, 29, 55, 57])
def test_torn_acknowledgements(tmp_path: Path, cut: int) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 6)
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "r+", "6"], capture_output=True, check=False
    )
    (acks,) = (tmp_path / "mqstore.acks").iterdir()
    acks.write_bytes(acks.read_bytes()[:cut] + b"\xff" * 5)
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        with store.group("g") as group:
            messages = group.poll("orders")
            assert len(messages) == (5 if cut >= 56 else 6)
            assert group.ack(messages)
        with store.group("g") as group:
            assert group.poll("orders") == []


def test_a_group_that_was_set_back_has_its_messages_again(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 8)
        with store.group("g") as group:
            assert group.ack(group.poll("orders", max_messages=2))
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "r+", "6"], capture_output=True, check=False
    )
    table = tmp_path / "config" / "consumerOffset.json"
    text = re.sub(r'(\b0"?:\s*)2\b', r"\g<1>0", table.read_text())
    (tmp_path / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    assert text != table.read_text()
    table.write_text(text)
    with mqstore.open(tmp_path, "r+", config=TINY) as store, store.group("g") as group:
        assert len(group.poll("orders")) == 8


def test_acknowledgements_are_quick(tmp_path: Path) -> None:
    """20,000 a second on an idle machine; a tenth here, beside others."""
    with mqstore.open(tmp_path, "a") as store, store.group("g") as group:
        fill(store, 5000)
        messages = group.poll("orders", max_messages=5000)
        began = time.process_time()
        for message in messages:
            assert group.ack(message)
        assert time.process_time() - began < 2.5


def test_something_else_is_no_message(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store, store.group("g") as group:
        for wrong in ("x", None, [None], [b"x"]):
            for call in (group.ack, group.nack):
                with pytest.raises(TypeError, match="message: expected a StoredMessage, got"):
                    call(wrong)  # type: ignore[operator]


# ------------------------------------------------------------------------------------- process


def test_process_goes_on_beside_polled_messages(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 6)
        with store.group("g") as group:
            held = group.poll("orders", max_messages=2)
            seen: list[bytes] = []
            done = group.process("orders", lambda one: seen.append(one.body), idle_s=0)
            assert (done.handled, seen) == (4, [b"2", b"3", b"4", b"5"])
            assert [at.queue_offset for at in store.groups()["g"] if at.topic == "orders"] == [0]
            assert group.ack(held)
        assert [at.queue_offset for at in store.groups()["g"] if at.topic == "orders"] == [6]


def test_each_handler_gets_the_retries_of_its_topic(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {"a": [], "b": []}
    stop = threading.Event()
    with mqstore.open(tmp_path, "a", config=FAST) as store:
        for topic in seen:
            fill(store, 10, topic)
        with store.group("g") as group:

            def work(topic: str) -> None:
                def handle(message: mqstore.StoredMessage) -> None:
                    seen[topic].append(message.properties.get("RETRY_TOPIC", message.topic))
                    if message.reconsume_times == 0:
                        raise RuntimeError("the first attempt fails")
                    if sum(map(len, seen.values())) == 40:
                        stop.set()

                group.process(topic, handle, stop=stop, max_messages=3)

            threads = [threading.Thread(target=work, args=(topic,)) for topic in seen]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert stop.is_set()
    assert seen == {"a": ["a"] * 20, "b": ["b"] * 20}


def test_retries_of_a_topic_without_a_handler_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()

    def fail(_: mqstore.StoredMessage) -> None:
        # The retry is for the other handler, however soon it comes.
        stop.set()
        raise RuntimeError

    with mqstore.open(tmp_path, "a", config=FAST) as store, store.group("g") as group:
        fill(store, 1, "a")
        group.process("a", fail, stop=stop)
        wait_until(lambda: bool(store.queues("%RETRY%g")))
        assert group.process("b", print, idle_s=0).handled == 1
    assert "topic b gets retries of topic a" in caplog.text
    assert "one group, one subscription" in caplog.text


def test_threads_share_one_queue_where_order_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(4)

    def handle(_: mqstore.StoredMessage) -> None:
        together.wait(30)

    with mqstore.open(tmp_path, "a", config=TINY) as store, store.group("g") as group:
        fill(store, 8)
        done = group.process("orders", handle, concurrency=4, ordered=False, idle_s=0.5)
        assert done.handled == 8
        assert sum(at.lag for at in group.lag()) == 0
        assert "concurrency" not in caplog.text
        fill(store, 8)
        group.process("orders", lambda _: None, concurrency=4, idle_s=0)
    assert "concurrency=4: topic orders has messages in 1 queues" in caplog.text


# ------------------------------------------------------------------------------------ delivery


def test_retries_and_delays_work_without_a_setting(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", "a", config=FAST) as store:
        store.append("mail", b"now", delay=0)
        assert not store._delivers
        assert store.append("mail", b"later", delay=timedelta(0)).topic == "mail"
        with store.group("g") as group:
            assert store._delivers
            first, _ = group.poll("mail")
            assert group.nack(first)
            (again,) = group.poll(group.retry_topic, timeout_s=60)
            assert again.body == b"now"
    with mqstore.open(tmp_path / "s", "r+") as store:
        assert not store._delivers


def test_a_broker_s_store_asks_for_delivery(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 1)
    (tmp_path / "config" / "mqstore.json").unlink()
    with mqstore.open(tmp_path, "r+", config=TINY) as store, store.group("g") as group:
        assert not store._delivers
        with pytest.raises(mqstore.ConfigError, match=r"StoreConfig\(delivery=True\)"):
            store.append("mail", b"", delay=1)
        with pytest.raises(mqstore.ConfigError, match=r"StoreConfig\(delivery=True\)"):
            group.process("orders", print)


# ------------------------------------------------------------------------- losses and beginnings


def overtaken(root: Path) -> int:
    """A store of which retention deleted messages that group g had not read; how many."""
    config = {**TINY, "retention": "off"}
    with mqstore.open(root, "a", config=config) as store:
        fill(store, 10)
        with store.group("g") as group:
            assert group.ack(group.poll("orders", max_messages=3))
        while len(list((root / "commitlog").iterdir())) < 4:
            fill(store, 100)
    first = min((root / "commitlog").iterdir())
    first.unlink()
    with mqstore.open(root, "r") as store:
        return store.queues("orders")[0].min_offset - 3


def test_a_group_that_retention_has_overtaken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = overtaken(tmp_path)
    with mqstore.open(tmp_path, "r+") as store, store.group("g") as group:
        with pytest.raises(mqstore.OffsetOutOfRangeError, match=f"deleted {lost} messages"):
            group.poll("orders", on_loss="error")
        with pytest.raises(mqstore.OffsetOutOfRangeError, match=f"deleted {lost} messages"):
            group.process("orders", print, on_loss="error", idle_s=0)
        assert "deleted" not in caplog.text
        assert group.poll("orders", max_messages=1)[0].queue_offset == lost + 3
        assert caplog.text.count(f"retention deleted {lost} messages") == 1
        group.poll("orders", max_messages=1)
        assert caplog.text.count("retention deleted") == 1


def test_where_a_new_group_begins(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append("orders", b"old", queue_id=1)
        time.sleep(0.005)
        now = datetime.now(UTC)
        store.append("orders", b"new", queue_id=1)
        with store.group("early") as group:
            assert bodies(group.poll("orders")) == [b"old", b"new"]
        with store.group("since", begin=now) as group:
            assert bodies(group.poll("orders")) == [b"new"]
        with store.group("late", begin="latest") as group:
            store.append("orders", b"next", queue_id=1)
            store.append("orders", b"other", queue_id=0)
            assert sorted(bodies(group.poll("orders"))) == [b"next", b"other"]
            assert group.ack(group.poll("orders")) is True
        with store.group("late", begin="latest") as group:
            assert sorted(bodies(group.poll("orders"))) == [b"next", b"other"]
        for bad in ("first", 1_700_000_000):
            with pytest.raises(ValueError, match="begin: expected"):
                store.group("bad", begin=bad)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ times and values


@pytest.mark.parametrize(
    ("factor", "unit"), [(1, "seconds"), (10**6, "microseconds"), (10**9, "nanoseconds")]
)
def test_times_in_another_unit_are_refused(tmp_path: Path, factor: int, unit: str) -> None:
    pa = pytest.importorskip("pyarrow")
    wrong = 1_795_000_000 * factor
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        calls = [
            lambda: store.append("t", b"", born_timestamp_ms=wrong),
            lambda: mqstore.Message("t", b"", store_timestamp_ms=wrong),
            lambda: store.append_many([{"topic": "t", "body": b"", "born_timestamp_ms": wrong}]),
            lambda: list(store.scan(begin_ms=wrong)),
            lambda: store.offset_at("t", 0, wrong),
            lambda: store.append_arrow(
                pa.table({"topic": ["t"], "body": [b""], "born_timestamp_ms": [wrong]})
            ),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=f"expected milliseconds.*{unit}"):
                call()
        assert store.max_physical_offset == 0


def test_arrow_times_without_a_zone(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    local = datetime(2026, 7, 1, 12)  # noqa: DTZ001 - without a zone, that is the point
    table = pa.table({"topic": ["t"], "body": [b""], "born_timestamp": [local]})
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(mqstore.InvalidMessageError, match="assume_timezone"):
            store.append_arrow(table)
        store.append_arrow(table, assume_timezone="Europe/Berlin")
        (message,) = store.scan()
        assert message.born_timestamp_ms == datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp() * 1000
        with pytest.raises(ValueError, match="assume_timezone: expected a time zone"):
            store.append_arrow(table, assume_timezone="Mars/Olympus")


def test_copied_times_stay(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with mqstore.open(record, "a", config=TINY) as store:
        from mqstore.text import Milliseconds

        odd = Milliseconds(1_700_000_000)
        store.append("t", b"", born_timestamp_ms=odd)
        (message,) = store.scan()
        assert message.to_message().born_timestamp_ms == odd
    mqstore.export_store(record, tmp_path / "out")
    mqstore.import_store(tmp_path / "out", tmp_path / "in")
    with mqstore.open(tmp_path / "in") as store:
        assert [one.born_timestamp_ms for one in store.scan()] == [odd]


def test_results_name_their_queue(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        one = store.append("a", b"", queue_id=2)
        two, three = store.append_many([("a", b"", 1), ("b", b"", None)])
        assert [(r.topic, r.queue_id) for r in (one, two)] == [("a", 2), ("a", 1)]
        assert (three.topic, three.queue_id) == ("b", store.get(three.physical_offset).queue_id)
        with pytest.raises(mqstore.InvalidMessageError, match=r"^message 1: "):
            store.append_many([("a", b""), ("a", b"x" * 100_000)])
        with pytest.raises(TypeError, match=r"^message 2: "):
            store.append_many([("a", b""), ("a", b""), 3])  # type: ignore[list-item]


def test_table_of_offsets_is_a_broker_s(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        fill(store, 4)
        with store.group("g") as group:
            group.ack(group.poll("orders"))
    table = json.loads(mqstore.read_config_json(tmp_path / "config" / "consumerOffset.json"))
    assert table["offsetTable"]["orders@g"] == {"0": 4}
    assert list((tmp_path / "mqstore.acks").iterdir()) == []


def test_names_of_nothing_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store, store.group("g") as group:
        store.append("orders", b"")
        assert list(store.scan(topics=["ordres"])) == []
        assert "no topic 'ordres'" in caplog.text
        assert caplog.text.count("did you mean 'orders'?") == 1
        assert group.poll("oders") == group.poll("oders") == []
        assert caplog.text.count("did you mean 'orders'?") == 2
        store.read("orders", 0, 0, tags="paid && new")
        store.read("orders", 0, 0, tags="paid && new")
        assert caplog.text.count("give 'paid || new'") == 1
        assert list(store.scan(tags="paid,open")) == []
        assert "a comma is a part of a tag" in caplog.text
        assert caplog.text.count("give 'paid || open'") == 1


def test_a_store_keeps_the_topics_that_it_has(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={**TINY, "validate_topic_names": False}) as store:
        store.append("a.b", b"")
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert store.append("a.b", b"").queue_offset == 1
        with pytest.raises(mqstore.InvalidMessageError, match="expected letters, digits"):
            store.append("a.c", b"")


def test_a_limit_below_a_file_is_named(tmp_path: Path) -> None:
    with pytest.warns(mqstore.ConfigWarning, match="keep_bytes: expected at least"):
        mqstore.open(tmp_path, "a", config={**TINY, "keep_bytes": 1}).close()


def test_results_and_messages_cost_the_collector_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=FAST) as store:
        results = store.append_many(("orders", b"%d" % number) for number in range(5_000))
        results.append(store.append("orders", b""))
        messages = [*store.scan(), *store.read("orders", 0, 0).messages]
        new = [mqstore.Message("orders", b"%d" % number, keys="k") for number in range(1000)]
        assert not any(map(gc.is_tracked, [*results, *messages, *new]))
        # Only objects of such a class may be taken from the collector.
        has_gc = 1 << 14
        assert all(type(one).__flags__ & has_gc for one in (results[0], messages[0], new[0]))
        begun = [one["collections"] for one in gc.get_stats()]
        results += store.append_many(("orders", b"%d" % number) for number in range(100_000))
        messages += store.scan()
        full = gc.get_stats()[2]["collections"] - begun[2]
    # Nothing grows old, so the oldest generation is not visited for it.
    assert full <= 1
