"""Which messages a replay chooses, its journal and its failures: all that needs no broker."""

from __future__ import annotations

import json
import random
import shutil
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.golden import Case, case_names
from mqstore._native import _Pattern, _Requests
from mqstore.files.pace import Pace
from mqstore.replaying.journal import Journal, Line
from mqstore.replaying.report import ACTIONS, ReplayFailure, read_failures, write_failures
from mqstore.replaying.run import kind_of
from mqstore.replaying.selection import Chosen, NotSent, Selection, Selector
from mqstore.replaying.sender import Failed, Target

if TYPE_CHECKING:
    from pathlib import Path

SMALL = mqstore.StoreConfig.embedded()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "broker-a/store"
    with mqstore.open(folder, "a", config=SMALL) as store:
        for n in range(30):
            store.append(
                "orders" if n % 3 else "invoices",
                b"body %d" % n,
                queue_id=n % 2,
                tags="paid" if n % 2 else "open",
                keys=f"key-{n}",
                unique_key=f"U{n}",
            )
        store.append("%DLQ%billing", b"dead", properties={"RETRY_TOPIC": "orders"})
        store.append("%DLQ%billing", b"no origin")
        store.append("%RETRY%billing", b"again", properties={"RETRY_TOPIC": "invoices"})
        store.append("orders", b"", properties={"MQSTORE_LEFT_OUT": "1"})
        half = mqstore.Message("orders", b"rolled", sys_flag=0xC)
        store.append_many([half])
    offsets = {"orders@billing": {"0": 8, "1": -1}, "%RETRY%billing@billing": {"0": 0}}
    (folder / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return folder


def chosen(root: Path, begin: int = 0, **what: Any) -> tuple[list[Chosen], list[NotSent]]:
    with mqstore.open(root) as store:
        found = list(Selector(store, Selection(**what)).chosen([(begin, None)]))
    return (
        [one for one in found if isinstance(one, Chosen)],
        [one for one in found if isinstance(one, NotSent)],
    )


def bodies(found: list[Chosen]) -> list[bytes]:
    return [one.messages[None].body for one in found]


def test_everything_but_what_must_not_be_sent(root: Path) -> None:
    sent, refused = chosen(root)
    assert bodies(sent) == [b"body %d" % n for n in range(30)]
    assert [one.reason for one in refused] == ["system"] * 3 + ["stand-in", "rolled-back"]
    sent, refused = chosen(root, include=("system", "rolled-back"))
    assert [one.reason for one in refused] == ["stand-in"]
    assert [one.topic for one in sent][-4:] == ["%DLQ%billing"] * 2 + ["%RETRY%billing", "orders"]


@pytest.mark.parametrize(
    ("what", "numbers"),
    [
        ({"topics": ("invoices",)}, range(0, 30, 3)),
        ({"topics": ("orders",), "queue_ids": (1,)}, [n for n in range(30) if n % 3 and n % 2]),
        ({"tags": "paid", "topics": ("invoices",)}, range(3, 30, 6)),
        ({"keys": ("key-7", "U3")}, [3, 7]),
        ({"keys": ("key-7", "key-4"), "tags": "paid"}, [7]),
        ({"topics": ("invoices",), "first_queue_offset": 4}, [24, 27]),
        ({"topics": ("invoices",), "last_queue_offset": 0}, [0, 3]),
        ({"keys": ("key-7",), "topics": ("invoices",)}, []),
    ],
)
def test_each_bound(root: Path, what: dict[str, Any], numbers: list[int]) -> None:
    assert bodies(chosen(root, **what)[0]) == [b"body %d" % n for n in numbers]


def test_ids_pattern_and_time(root: Path) -> None:

    with mqstore.open(root) as store:
        third, fifth = (list(store.scan())[n] for n in (2, 4))
    ids = (fifth.message_id, third.physical_offset, third.message_id)
    assert bodies(chosen(root, ids=ids)[0]) == [b"body 2", b"body 4"]
    assert bodies(chosen(root, grep=_Pattern("y [12]2"))[0]) == [b"body 12", b"body 22"]
    assert not chosen(root, begin_ms=third.store_timestamp_ms + 100_000)[0]
    assert bodies(chosen(root, third.physical_offset, topics=("invoices",))[0])[0] == b"body 3"


def test_dead_letters_go_to_their_group_or_to_their_topic(root: Path) -> None:
    (one,), (lost,) = chosen(root, dead_letters="billing")
    assert (one.topic, dict(one.added)) == ("%RETRY%billing", {"RETRY_TOPIC": "orders"})
    assert lost.reason == "no-origin"
    (one,), _ = chosen(root, dead_letters="billing", to_origin=True, topics=("orders",))
    assert (one.topic, dict(one.added)) == ("orders", {})
    assert chosen(root, dead_letters="billing", topics=("invoices",)) == ([], [])
    with pytest.raises(mqstore.MessageNotFoundError, match="%DLQ%nobody"):
        chosen(root, dead_letters="nobody")


def test_the_selection_holds_for_ids_and_for_origins(root: Path) -> None:
    with mqstore.open(root, "a", config=SMALL) as store:
        traced = {"RETRY_TOPIC": "RMQ_SYS_TRACE_TOPIC"}
        store.append("%DLQ%billing", b"trace", properties=traced)
        place = {one.body: one.physical_offset for one in store.scan()}
    ids = (place[b"body 1"], place[b"dead"])
    (one,), (other,) = chosen(root, dead_letters="billing", ids=ids)
    assert (one.messages[None].body, other.reason, other.place) == (b"dead", "not-selected", ids[0])
    # A dead letter names its topic itself: it leads to no topic of a broker.
    sent, refused = chosen(root, dead_letters="billing", to_origin=True)
    assert bodies(sent) == [b"dead"]
    assert [one.reason for one in refused] == ["no-origin", "system"]
    sent, _ = chosen(root, dead_letters="billing", to_origin=True, include=("system",))
    assert [one.topic for one in sent] == ["orders", "RMQ_SYS_TRACE_TOPIC"]


def test_what_waits_is_sent_unless_it_was_delivered_or_ended(root: Path) -> None:
    half, op = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    with mqstore.open(root, "a", config=SMALL) as store:
        for name, real in (("old", "orders"), ("x", "orders"), ("y", "%RETRY%billing"), ("z", "q")):
            given = {"REAL_TOPIC": real, "RETRY_TOPIC": "orders"}
            store.append("SCHEDULE_TOPIC_XXXX", name.encode(), queue_id=2, properties=given)
        for name in ("committed", "open"):
            real = {"REAL_TOPIC": "orders"}
            store.append(half, name.encode(), properties=real, unique_key=name)
        store.append(op, b"0,", tags="d")
    (root / "config/delayOffset.json").write_text('{"offsetTable":{"3":1}}')
    sent, _ = chosen(root, missed_by="billing")
    assert bodies(sent)[-2:] == [b"x", b"y"]
    assert {(one.topic, one.added["RETRY_TOPIC"]) for one in sent[-2:]} == {
        ("%RETRY%billing", "orders")
    }
    sent, refused = chosen(root, topics=("SCHEDULE_TOPIC_XXXX", half), include=("half", "system"))
    assert [(one.messages[None].body, one.topic) for one in sent] == [
        (b"x", "orders"),
        (b"y", "%RETRY%billing"),
        (b"z", "q"),
        (b"open", "orders"),
    ]
    assert [one.reason for one in refused] == ["ended", "ended"]


def test_what_a_group_missed_goes_to_it_alone(root: Path) -> None:
    sent, refused = chosen(root, missed_by="billing")
    with mqstore.open(root) as store:
        wanted = [
            message.body
            for message in store.scan(topics=["orders", "%RETRY%billing"])
            if message.body not in (b"", b"rolled")
            if message.topic != "orders" or message.queue_offset >= (0 if message.queue_id else 8)
        ]
    assert bodies(sent) == wanted
    assert len(wanted) > 10
    assert {one.topic for one in sent} == {"%RETRY%billing"}
    assert {one.added["RETRY_TOPIC"] for one in sent} == {"orders", "invoices"}
    assert {one.reason for one in refused} <= {"stand-in", "rolled-back"}
    with pytest.raises(mqstore.MessageNotFoundError, match="no offsets of group 'nobody'"):
        chosen(root, missed_by="nobody")


@pytest.mark.parametrize("harm", ["removed", "zeroed", "shortened"])
def test_lost_queue_entries_hide_nothing(root: Path, harm: str) -> None:
    ways: list[dict[str, Any]] = [{"missed_by": "billing"}, {"dead_letters": "billing"}]
    before = [bodies(chosen(root, **what)[0]) for what in ways]
    assert all(before)
    for topic in ("orders", "%RETRY%billing", "%DLQ%billing"):
        for queue in sorted((root / "consumequeue" / topic).iterdir()):
            file = next(queue.iterdir())
            if harm == "removed":
                shutil.rmtree(queue)
            elif harm == "zeroed":
                file.write_bytes(bytes(file.stat().st_size))
            else:
                content = file.read_bytes()
                file.write_bytes(content[:20] + bytes(len(content) - 20))
    assert [bodies(chosen(root, **what)[0]) for what in ways] == before


def test_bodies_are_sent_decompressed_and_up_to_a_limit(tmp_path: Path) -> None:
    plain, broken, large = b"words " * 100, b"broken", b"words " * 101
    bodies = [zlib.compress(plain), broken, zlib.compress(large)]
    with mqstore.open(tmp_path, "a", config=SMALL) as store:
        store.append_many(mqstore.Message("t", body, sys_flag=0x301) for body in bodies)
        stored = [*store.scan(decompress=False)]
    requests = _Requests([], "b", 1, keeps_queue=True, most_body=len(plain))
    for messages in (stored, [one.to_message(topic="other") for one in stored]):
        sizes = [requests.add(1, 0, one, "t", 0, 0, b"") for one in messages]
        assert sizes == [len(plain) + 1, len(broken) + 1, 0]
        sent = requests.take(all=True)
        assert (sent.count(plain), sent.count(broken), sent.count(large)) == (1, 1, 0)
    # A transform's body is sent as it is: a producer may compress as well.
    new = stored[0].to_message(body=bodies[0])
    assert (new.sys_flag, stored[0].to_message().sys_flag) == (0, 0x301)
    requests.add(1, 0, new, "t", 0, 0, b"")
    assert bodies[0] in requests.take(all=True)


def test_damage_is_named_and_sent_only_if_asked_for(root: Path) -> None:
    with mqstore.open(root) as store:
        places = {one.body: one for one in store.scan()}
    hit = places[b"body 8"]
    (log,) = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    at = data.index(b"body 8")
    data[at] ^= 0xFF
    log.write_bytes(data)
    sent, refused = chosen(root, topics=("orders",))
    assert len(sent) == 19
    (damage,) = (one for one in refused if one.reason == "damaged")
    assert damage.place == hit.physical_offset
    assert "body" in damage.detail
    sent, refused = chosen(root, topics=("orders",), include=("damaged",))
    assert len(sent) == 20
    assert not [one for one in refused if one.reason == "damaged"]


def note_random(journal: Journal, chance: random.Random) -> tuple[set[int], int]:
    """Handles places of a window out of order, as answers come; what was handled, and how far."""
    waiting, answered, done = list(range(10, 3010, 10)), set(), -1
    handled: set[int] = set()
    while waiting:
        for _ in range(chance.randint(1, 8)):
            if waiting:
                answered.add(waiting.pop(chance.randrange(min(len(waiting), 32))))
        low = min(waiting, default=4000)
        new = [place for place in answered if place not in handled]
        handled |= answered
        done = max((place for place in handled if place < low), default=-1)
        journal.note(
            Line(
                done=done if done > journal.done else None,
                beyond=[place for place in new if place > done],
                sent=len(new),
            )
        )
        if chance.random() < 0.02:
            break
    return handled, len(waiting)


@pytest.mark.parametrize("seed", range(20))
def test_a_journal_knows_after_a_kill_what_was_handled(tmp_path: Path, seed: int) -> None:
    path, chance = tmp_path / "journal", random.Random(seed)
    journal = Journal(path, {"to": "a"})
    journal.open()
    handled, _ = note_random(journal, chance)
    whole = path.read_bytes()
    journal.close()
    # A torn last line is as if it had not been written.
    path.write_bytes(whole + whole.splitlines()[-1][: chance.randint(1, 5)])
    again = Journal(path, {"to": "a"})
    again.open()
    assert {place for place in range(10, 3010, 10) if again.is_handled(place)} == handled
    assert again.sent == len(handled)
    assert path.read_bytes() == whole
    again.close()


def failure(place: int, kind: Any = "broker-error") -> ReplayFailure:
    return ReplayFailure(place, "orders", kind, 'said "no", once', 1, 2, "AB", "U1", ("a", "b"))


def test_a_journal_is_bound_locked_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "below/journal"
    journal = Journal(path, {"to": "a", "topics": ("x",)})
    journal.open()
    with pytest.raises(mqstore.StoreLockedError, match="another run"):
        Journal(path, {"to": "a", "topics": ("x",)}).open()
    journal.note(Line(done=0, sent=1))
    assert journal.is_handled(0)
    journal.note(Line(done=5, failures=[failure(4), failure(5)], sent=2))
    journal.note(Line(resolved=[(4, None)], sent=1))
    journal.close()
    again = Journal(path, {"to": "a", "topics": ("x",)})
    again.read()
    assert b'"done":0' in path.read_bytes()
    assert (again.done, again.sent, list(again.failures)) == (5, 4, [(5, None)])
    assert again.failures[5, None] == failure(5)
    with pytest.raises(mqstore.ConfigError, match=r"to='b'.*to='a'"):
        Journal(path, {"to": "b", "topics": ("x",)}).read()
    path.write_bytes(path.read_bytes() + b"[1]\n")
    with pytest.raises(mqstore.CorruptionError, match=r"byte \d+: journal"):
        Journal(path, {"to": "a", "topics": ("x",)}).read()
    missing = Journal(tmp_path / "none", {})
    missing.read()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["failed.csv", "failed.jsonl"])
def test_reports_of_failures_are_read_again(tmp_path: Path, name: str) -> None:
    write_failures(tmp_path / name, [failure(70), failure(5)])
    assert read_failures(tmp_path / name) == {(70, None): "AB", (5, None): "AB"}
    (tmp_path / name).write_text("nonsense\n1\n")
    with pytest.raises(mqstore.ConfigError, match="retry_failed: expected a report of failures"):
        read_failures(tmp_path / name)


@pytest.mark.parametrize(
    ("code", "kind", "text", "wanted"),
    [
        (2, "MQBrokerException", "[REJECTREQUEST]system busy", "flow-control"),
        (17, "NoTopic", "no route", "no-topic"),
        (16, "MQBrokerException", "the broker sending message is forbidden", "no-permission"),
        (1, "MQBrokerException", "AclException: no", "no-permission"),
        (14, "MQBrokerException", "the broker's disk is full [CL:  0.95 CQ:  0.95]", "disk-full"),
        (14, "MQBrokerException", "the broker's disk is full [CL:  0.50], slave", "not-writable"),
        (13, "MQClientException", "the message body length is zero", "empty-body"),
        (13, "MQBrokerException", "the message is illegal, maybe msg body too long", "refused"),
        (-1, "RemotingTimeoutException", "wait response", "unreachable"),
        (26, "MQBrokerException", "subscription group not exist", "no-group"),
        (-2, "NoQueue", "orders has 4 queues", "no-queue"),
        (1, "MQBrokerException", "UNKNOWN_ERROR", "broker-error"),
        (17, "MQClientException", "No route info of this topic: Authentications", "no-topic"),
        (26, "MQBrokerException", "no group AclExceptions", "no-group"),
        (-1, "RemotingException", "The broker[zero] not exist", "unreachable"),
    ],
)
def test_failures_are_told_apart(code: int, kind: str, text: str, wanted: str) -> None:
    assert kind_of(Failed(1, kind, text, code, 1)) == wanted
    assert wanted in ACTIONS


def test_the_pace_is_even() -> None:
    pace = Pace(100, 1 << 20)
    for _ in range(50):
        pace.take(0)
    assert 0.3 < pace.wait_s() <= 0.5
    pace.take(1 << 20)
    assert 1.3 < pace.wait_s() <= 1.51
    reads, began_s = Pace(None, 1 << 20), time.monotonic()
    for _ in range(3):
        reads.wait(1 << 18)
    assert time.monotonic() - began_s > 0.3
    free = Pace(None, None)
    free.wait(1 << 30)
    assert free.wait_s() <= 0


def test_what_is_missing_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    jar = tmp_path / "sender.jar"
    monkeypatch.setattr("mqstore.replaying.sender.JAR", jar)
    with pytest.raises(mqstore.ConfigError, match="built without a JDK"):
        Target(to="a:1").class_path()
    jar.write_bytes(b"")
    with pytest.raises(mqstore.ConfigError, match="rocketmq_home: expected a folder"):
        Target(to="a:1").class_path()
    with pytest.raises(mqstore.ConfigError, match="rocketmq-client"):
        Target(to="a:1", rocketmq_home=tmp_path).class_path()
    # The plan comes without a target too, and says so.
    report = mqstore.replay(root, "a:1", topics=["orders"])
    assert (report.messages, report.topics[0].queues) == (20, None)
    assert any("was not asked" in text for text in report.warnings)
    with pytest.raises(mqstore.ConfigError, match="rocketmq_home"):
        mqstore.replay(root, "a:1", apply=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(mqstore.ConfigError, match="java: expected"):
        mqstore.replay(root, "a:1", apply=True)
    with pytest.raises(mqstore.ConfigError, match="to_topic"):
        mqstore.resend(root, "billing", "a:1", to_topic="x")


def test_credentials_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("# ours\naccessKey: me\nsecretKey: 'a:b=c'\n")
    assert Target(to="a:1", credentials=file).secrets() == ("me", "a:b=c")
    file.write_text("accessKey=me\nsecretKey=x:y\n")
    assert Target(to="a:1", credentials=file).secrets() == ("me", "x:y")
    file.write_text("accessKey=me\n")
    with pytest.raises(mqstore.ConfigError, match="secretKey"):
        Target(to="a:1", credentials=file).secrets()
    monkeypatch.setenv("MQSTORE_ACCESS_KEY", "env")
    with pytest.raises(mqstore.ConfigError, match="MQSTORE_SECRET_KEY, got only one"):
        Target(to="a:1").secrets()
    monkeypatch.setenv("MQSTORE_SECRET_KEY", "b")
    assert Target(to="a:1").secrets() == ("env", "b")


@pytest.mark.parametrize("name", case_names("messages"))
def test_usual_messages_are_judged_as_all_others(name: str, tmp_path: Path) -> None:
    case = Case(name)
    root = case.unpack(tmp_path)
    include: Any = ("system", "half", "rolled-back")
    for what in (Selection(), Selection(queue_ids=(0, 2)), Selection(include=include)):
        with case.open(root) as store:
            selector = Selector(store, what)
            for message in store.scan(on_error="skip", decompress=False):
                assert selector._judged(message) == selector._judged_closely(message), message
