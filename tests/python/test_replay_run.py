"""A replay's run without a cluster: what it notes, where it stops, what it refuses."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import os
import signal
import struct
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import mqstore
from helpers.replay_client import Client
from mqstore.cli import main
from mqstore.replaying import replay, run
from mqstore.replaying.report import read_failures, write_failures
from mqstore.replaying.selection import Chosen
from mqstore.replaying.sender import Failed, Sender, Sent, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = run.window_of(32)
BUSY = 1, "create mapped file failed, server is busy or broken."
NO_QUEUE = -2, "orders has 2 queues, none is 9"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    monkeypatch.setattr(replay, "Sender", Client)
    monkeypatch.setattr(Client, "fails", {})
    monkeypatch.setattr(Client, "got", [])
    monkeypatch.setattr(Client, "slow", b"")
    return Client


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "broker-a/store"
    with mqstore.open(folder, "a", config=mqstore.StoreConfig.embedded()) as store:
        store.append_many({"topic": "orders", "body": b"%d" % n} for n in range(40))
    return folder


class Holding(Client):
    """Holds one message, as of a queue with few of them, until it is asked for what it has."""

    sent_before: ClassVar[list[int]] = []

    def answers(self, _timeout_s: float) -> Iterator[Sent | Failed]:
        while self.waiting:
            yield self.waiting.pop(0)

    def flush(self) -> None:
        if self.late:
            self.sent_before.append(len(self.got))
        self.waiting, self.late = self.waiting + self.late, []


def test_a_message_of_a_quiet_queue_does_not_wait_for_a_full_request(
    monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay, "Sender", Holding)
    monkeypatch.setattr(Holding, "sent_before", [])
    monkeypatch.setattr(Holding, "got", [])
    monkeypatch.setattr(Holding, "slow", b"quiet")
    # Messages that come slowly are sent at once.
    monkeypatch.setattr(run, "_SLOW_S", 1e9)
    with mqstore.open(root, "a") as store:
        store.append("orders", b"quiet")
        store.append_many({"topic": "orders", "body": b"%d" % n} for n in range(8 * WINDOW))
    report = mqstore.replay(root, "x:1", apply=True, journal=tmp_path / "journal")
    assert report.sent == 41 + 8 * WINDOW
    assert len(Holding.sent_before) == 1
    assert Holding.sent_before[0] < 40 + 6 * WINDOW


def test_messages_that_come_slowly_are_sent_and_noted_at_once(
    client: type[Client], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SLOW_S", 0)
    journal, lines = tmp_path / "journal", []

    def transform(message: mqstore.StoredMessage) -> mqstore.StoredMessage:
        lines.append((len(client.got), journal.read_bytes().count(b"\n")))
        return message

    mqstore.replay(root, "a:1", apply=True, journal=journal, transform=transform)
    sent, noted = zip(*lines, strict=True)
    assert sent == (*range(40),)
    assert len({*noted}) == 40


def test_what_may_pass_is_sent_by_the_next_run(client: type[Client], root: Path) -> None:
    client.fails = {b"3": BUSY, b"5": NO_QUEUE, b"7": (13, "the message is illegal")}
    first = mqstore.replay(root, "a:1", apply=True)
    kinds = [failure.kind for failure in first.failures]
    assert (first.sent, kinds) == (37, ["broker-error", "no-queue", "refused"])
    client.fails = {}
    second = mqstore.replay(root, "a:1", apply=True)
    assert (second.sent, client.got[-2:]) == (2, [b"3", b"5"])
    assert [failure.kind for failure in second.failures] == ["refused"]


def test_the_order_is_kept_behind_a_failure(client: type[Client], root: Path) -> None:
    client.fails = {b"2": NO_QUEUE}
    given: dict[str, Any] = {"apply": True, "ordered": True, "on_failure": "skip"}
    report = mqstore.replay(root, "a:1", **given)
    assert "must not overtake" in (report.stopped or "")
    assert [failure.kind for failure in report.failures] == ["no-queue"]


def test_bodies_that_are_too_large_are_reported(
    client: type[Client], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "most_body", 1)
    with mqstore.open(root, "a") as store:
        store.append_many([mqstore.Message("orders", b"broken", sys_flag=0x301)])
    report = mqstore.replay(root, "a:1", apply=True, include="damaged", on_failure="skip")
    assert (report.sent, report.stopped) == (10, None)
    assert [failure.kind for failure in report.failures] == ["refused"] * 31
    assert "more than 33554432 bytes" in report.failures[-1].answer


def test_an_error_of_one_message_ends_the_run_and_keeps_what_was_sent(
    client: type[Client], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Client.send

    def refuse(self: Client, number: int, *rest: Any) -> int:
        if number == 5:
            raise UnicodeEncodeError("utf-8", "?", 0, 1, "surrogates not allowed")
        return send(self, number, *rest)

    monkeypatch.setattr(Client, "send", refuse)
    with pytest.raises(UnicodeEncodeError):
        mqstore.replay(root, "a:1", apply=True)
    monkeypatch.setattr(Client, "send", send)
    assert mqstore.replay(root, "a:1", apply=True).sent == 36
    assert client.got == [b"%d" % number for number in range(40)]


def test_messages_that_become_dead_letters_end_a_run(client: type[Client], root: Path) -> None:
    client.fails = {b"2": (-3, "the broker put it into %DLQ%ord")}
    report = mqstore.replay(root, "a:1", apply=True, on_failure="skip", rate=1e6)
    assert (report.stopped or "").startswith("dead-letter: ")


def test_a_waiting_message_goes_to_its_own_queue(
    client: type[Client], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        for queue in (3, 2):
            real = {"REAL_TOPIC": "orders", "REAL_QID": str(queue)}
            store.append("SCHEDULE_TOPIC_XXXX", b"late", queue_id=17, properties=real)
    rest: list[tuple[Any, ...]] = []
    send = Client.send
    monkeypatch.setattr(Client, "send", lambda *all_: rest.append(all_) or send(*all_))
    given: dict[str, Any] = {"topics": "SCHEDULE_TOPIC_XXXX", "include": "system"}
    assert mqstore.replay(root, "a:1", **given).topics[0].highest_queue_id == 3
    mqstore.replay(root, "a:1", apply=True, **given)
    assert [one[4:6] for one in rest] == [("orders", 3), ("orders", 2)]
    rest.clear()
    given |= {"queue_ids": 2, "transform": lambda one: one.to_message(body=b"new")}
    mqstore.replay(root, "a:1", apply=True, **given)
    assert [(one[5], one[3].body) for one in rest] == [(2, b"new")]


def test_copies_and_other_text_are_refused(client: type[Client], root: Path) -> None:
    origins = [
        "broker-a/0",
        "broker-b/0",
        "broker-a/999999",
        "broker-a/x",
        "broker-a/" + "9" * 5000,
    ]
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        for origin in origins:
            store.append("copies", origin.encode(), properties={"MQSTORE_ORIGIN": origin})
        store.append("copies", b"text", properties=b"a\1caf\xe9\2")
        dead = {"MQSTORE_ORIGIN": "broker-a/0", "RETRY_TOPIC": "orders"}
        store.append("%DLQ%billing", b"dead", properties=dead)
    report = mqstore.replay(root, "a:1", topics="copies", apply=True)
    assert [(row.reason, row.messages) for row in report.refusals] == [("copy", 1), ("not-utf8", 1)]
    assert client.got == [origin.encode() for origin in origins[1:]]
    given: dict[str, Any] = {"topics": "copies", "include": ("copy", "not-utf8")}
    assert mqstore.replay(root, "a:1", apply=True, **given).sent == 6
    assert mqstore.resend(root, "billing", "a:1", apply=True).sent == 1


def test_one_slow_message_holds_up_few_and_no_interrupt(
    client: type[Client], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.replaying.run._MOST_UNCOUNTED", 8)
    idle: list[int] = []

    def interrupt(_client: Client) -> None:
        idle.append(len(client.got))
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Client, "idle", interrupt, raising=False)
    client.slow = b"3"
    with pytest.raises(KeyboardInterrupt):
        mqstore.replay(root, "a:1", apply=True)
    assert idle == [len(client.got)]
    assert idle[0] < 15
    client.slow = b"39"
    with pytest.raises(KeyboardInterrupt):
        mqstore.replay(root, "a:1", apply=True)
    assert len(idle) == 2
    client.slow = b""
    assert mqstore.replay(root, "a:1", apply=True).sent == 1
    # Those without an answer came twice, and no other.
    wanted = Counter({b"%d" % n: 1 + (n in (3, 39)) for n in range(40)})
    assert Counter(client.got) == wanted


def test_a_report_is_sent_once(client: type[Client], root: Path, tmp_path: Path) -> None:
    client.fails = {b"3": (13, "illegal"), b"4": (13, "illegal")}
    report = tmp_path / "failed.jsonl"
    write_failures(report, mqstore.replay(root, "a:1", apply=True).failures)
    client.fails = {}
    # With another journal, too, that knows nothing of them.
    given: dict[str, Any] = {"apply": True, "journal": tmp_path / "journal"}
    assert mqstore.replay(root, "a:1", retry_failed=report, **given).sent == 2
    assert mqstore.replay(root, "a:1", retry_failed=report, **given).sent == 0
    assert mqstore.replay(root, "a:1", **given).sent == 38
    # Messages of another selection, or of another store, are named and stay.
    given["journal"] = tmp_path / "another"
    with pytest.raises(mqstore.MessageNotFoundError):
        mqstore.resend(root, "billing", "a:1", retry_failed=report, **given)
    other = mqstore.replay(root, "a:1", grep="^4$", retry_failed=report, **given)
    assert (other.sent, [row.reason for row in other.refusals]) == (1, ["not-selected"])
    report.write_text(report.read_text().replace(read_failures(report).popitem()[1], "AB"))
    other = mqstore.replay(root, "a:1", retry_failed=report, apply=True, journal=tmp_path / "third")
    assert (other.sent, [row.reason for row in other.refusals]) == (1, ["another-message"])


def test_nothing_is_sent_that_cannot_be_noted(
    client: type[Client], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fill = os.write, 1
    full: list[bool] = [False]
    flushed: list[bool] = []

    def write(file: int, data: bytes) -> int:
        if b'"done"' not in data[:10] and b"journal" in data[:10]:
            return real(file, data)
        if fill:
            full[0] = True
            real(file, data[:5])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr("mqstore.replaying.journal.os.write", write)
    monkeypatch.setattr(Client, "flush", lambda _: flushed.append(full[0]))
    path = tmp_path / "journal"
    with pytest.raises(mqstore.StoreIOError, match=f"{path}: No space left.*start it again"):
        mqstore.replay(root, "a:1", apply=True, journal=path, rate=1000, limit=20)
    assert path.read_bytes().count(b"\n") == 1
    assert path.read_bytes().endswith(b"\n")
    assert len(client.got) < 20
    assert not any(flushed)
    fill = 0
    assert mqstore.replay(root, "a:1", apply=True, journal=path).sent == 40


def test_another_log_is_known_by_a_message(client: type[Client], root: Path) -> None:
    journal = Path(mqstore.replay(root, "a:1", apply=True, limit=10).journal)
    with mqstore.open(root) as store:
        tenth = list(store.scan())[9]
    anchor = f'"anchor":[{tenth.physical_offset},{tenth.store_timestamp_ms}]'
    assert anchor in journal.read_text()
    # Damage there does not say that it is another log; another time does.
    (log,) = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(b"9", tenth.physical_offset + 80)] ^= 0xFF
    log.write_bytes(data)
    assert mqstore.replay(root, "a:1", apply=True, limit=10).sent == 10
    journal.write_text(journal.read_text().replace(anchor, '"anchor":[0,7]'))
    lines = journal.read_text().splitlines()[:3]
    journal.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(mqstore.ConfigError, match="another one at physical offset 0"):
        mqstore.replay(root, "a:1", apply=True)
    assert len(client.got) == 20


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"on_failure": "Stop"}, "on_failure: expected stop or skip, got 'Stop'"),
        ({"queue": "all"}, "queue: expected keep or any"),
        ({"limit": -1}, "limit: expected a count, got -1"),
        ({"limit": "1"}, "limit: expected a count, got '1'"),
        ({"rate": float("nan")}, "rate: expected more than 0, got nan"),
        ({"bytes_rate": 0}, "bytes_rate: expected more than 0"),
        ({"properties": {"a\1b": "c"}}, "properties: expected UTF-8 text without the bytes 1"),
        ({"properties": {"a": "b\2"}}, "properties: expected UTF-8 text"),
        ({"to_topic": "\ud800"}, r"to_topic: expected UTF-8 text, got '\\ud800'"),
        ({"topics": "\ud800", "allow_empty": True}, "topics: expected UTF-8 text"),
        ({"tags": "\ud800"}, r"tags: expected UTF-8 text, got '\\ud800'"),
        ({"keys": ["a", "\ud800"]}, "keys: expected UTF-8 text"),
        ({"ids": [0, "\ud800"]}, "ids: expected UTF-8 text and numbers"),
        ({"grep": "\ud800"}, "grep: expected a regular expression in UTF-8"),
        ({"grep": "("}, r"grep: expected a regular expression in UTF-8, got '\('"),
        ({"grep": r"(a)\1"}, "backreferences are not supported"),
        ({"properties": 5}, "properties: expected UTF-8 text"),
        ({"batch": 0}, "batch: expected 1 to 1024"),
        ({"include": "halves"}, "include: expected half or"),
        ({"ids": 0, "topics": "orders"}, "topics: expected none, got .*; ids go alone"),
        ({"group": "a", "missed_by": "b"}, "missed_by: expected none, got 'b'"),
        ({"missed_by": "b", "to_topic": "c"}, "to_topic: expected none, got 'c'"),
        ({"transform": lambda _: 1 / 0}, "physical offset 0: expected no error, got ZeroDiv"),
        ({"transform": lambda _: "x"}, "physical offset 0: expected a message or None, got str"),
    ],
)
def test_wrong_arguments_are_named(
    client: type[Client], root: Path, given: dict[str, Any], text: str
) -> None:
    send = mqstore.resend if "group" in given else mqstore.replay
    with pytest.raises(mqstore.ConfigError, match=text):
        send(root, to="a:1", apply=True, **given)
    assert not client.got


def test_one_value_is_one_value_and_unknown_names_are_refused(
    client: type[Client], root: Path
) -> None:
    assert mqstore.replay(root, "a:1", topics="orders").messages == 40
    assert mqstore.replay(root, "a:1", ids=0).messages == 1
    assert mqstore.replay(root, "a:1", topics="orders", grep="").messages == 40
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        mqstore.resend(root, "billing", "a:1", topic="orders")


def test_a_client_that_breaks_its_stream_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho garbage; echo why >&2; exec cat >/dev/null\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("mqstore.replaying.sender.JAR", java)
    with pytest.raises(mqstore.StoreIOError, match="why; start it again to go on"):
        Sender(Target(to="a:1", classpath="x"), dropped=())
    # An empty class path would be the current folder.
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(mqstore.ConfigError, match="rocketmq_home"):
        Target(to="a:1", classpath="").class_path()


def test_a_transform_of_this_folder_shadows_nothing(
    client: type[Client],
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "colorsys.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "ours.py").write_text("import colorsys\ndef keep(message): return message\n")
    (tmp_path / "bad.py").write_text("def")
    arguments = ["replay", str(root), "--to", "a:1", "--report", "failed.csv"]
    main([*arguments, "--transform", "ours:keep", "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["messages"] == 40
    assert "failed.csv is not written without --apply" in err
    assert main([*arguments, "--transform", "bad:keep"]) == 2
    assert "invalid syntax" in capsys.readouterr().err


def test_one_selection_has_one_journal(client: type[Client], root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    given: dict[str, Any] = {"apply": True, "allow_empty": True}
    assert mqstore.replay(root, "a:1", topics=["orders", "a"], **given).sent == 40
    for path in (f"{root}/", link, os.path.relpath(root)):
        report = mqstore.replay(path, "a:1", topics=["a", "orders", "orders"], **given)
        assert (report.sent, report.sent_before) == (0, 40)


def test_what_could_not_be_read_is_named_until_it_is_mended(
    client: type[Client], tmp_path: Path
) -> None:
    root = tmp_path / "broker-a/store"
    with mqstore.open(root, "a", config={"mapped_file_size_commit_log": 4096}) as store:
        store.append_many({"topic": "orders", "body": b"body-%03d" % n} for n in range(200))
    files = sorted((root / "commitlog").iterdir())
    whole = {file: file.read_bytes() for file in files}
    with mqstore.open(root) as store:
        count = Counter(one.physical_offset // 4096 for one in store.scan())
    files[0].unlink()
    files[2].unlink()
    files[1].write_bytes(whole[files[1]].replace(b"body-050", b"bodY-050"))
    given: dict[str, Any] = {"apply": True, "journal": tmp_path / "journal"}
    assert mqstore.replay(root, "a:1", limit=100, **given).sent == 100
    for sent in (200 - 100 - count[0] - count[2] - 1, 0):
        report = mqstore.replay(root, "a:1", **given)
        rows = [(row.reason, row.messages) for row in report.refusals]
        assert (report.sent, rows) == (sent, [("damaged", 2)])
    # Mended messages are sent, and once, also by runs that end early.
    for file, content in whole.items():
        file.write_bytes(content)
    with mqstore.open(root) as store:
        wanted = [one.body for one in store.scan()]
    assert mqstore.replay(root, "a:1", journal=tmp_path / "journal").messages == 200 - len(
        client.got
    )
    mqstore.replay(root, "a:1", limit=count[0] + 5, **given)
    report = mqstore.replay(root, "a:1", **given)
    assert not report.refusals
    assert Counter(client.got) == Counter(wanted)
    assert mqstore.replay(root, "a:1", **given).sent == 0
    # Files that a broker deletes before they were read are named, and sent if they come back.
    given["journal"] = tmp_path / "second"
    mqstore.replay(root, "a:1", limit=5, **given)
    files[0].unlink()
    (text,) = mqstore.replay(root, "a:1", **given).warnings
    assert "to 4096 are gone" in text
    files[0].write_bytes(whole[files[0]])
    report = mqstore.replay(root, "a:1", **given)
    assert (report.sent, report.sent_before) == (count[0] - 5, 200 - count[0] + 5)
    assert not report.warnings


def test_records_by_offset_are_sent_once_beside_a_damaged_one(
    client: type[Client], root: Path, tmp_path: Path
) -> None:
    (log,) = (root / "commitlog").iterdir()
    with mqstore.open(root) as store:
        places = [one.physical_offset for one in store.scan()]
    content = bytearray(log.read_bytes())
    content[places[3] + 88] ^= 1  # its body
    log.write_bytes(content)
    given: dict[str, Any] = {"apply": True, "journal": tmp_path / "journal"}
    chosen = [places[3], places[7]]
    for sent in (1, 0, 0):
        report = mqstore.replay(root, "a:1", ids=chosen, **given)
        assert (report.sent, [row.reason for row in report.refusals]) == (sent, ["damaged"])
    assert client.got == [b"7"]


def test_keys_that_lead_to_damage_send_the_other_messages(
    client: type[Client], tmp_path: Path
) -> None:
    root = tmp_path / "broker-b/store"
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        store.append_many({"topic": "pay", "body": b"pay-%d" % n, "keys": "k"} for n in range(3))
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"pay-1", b"paY-1"))
    report = mqstore.replay(root, "a:1", keys="k", apply=True, journal=tmp_path / "keys")
    assert (report.sent, client.got) == (2, [b"pay-0", b"pay-2"])
    assert [(row.reason, row.messages) for row in report.refusals] == [("damaged", 1)]


def test_what_waits_for_a_queue_in_trouble_keeps_no_bodies(
    client: type[Client], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(Chosen, gc=True):
        """As the collector knows it."""

    monkeypatch.setattr("mqstore.replaying.selection.Chosen", Counted)
    client.slow = b"0"
    held = waiting = 0

    def idle(self: Client) -> None:
        nonlocal held, waiting
        found = [one for one in gc.get_objects() if isinstance(one, Counted)]
        held, waiting = sum(bool(one.messages) for one in found), len(found)
        self.waiting, self.late = self.late, []

    monkeypatch.setattr(Client, "idle", idle, raising=False)
    assert mqstore.replay(root, "a:1", apply=True).sent == 40
    assert held <= 2
    assert waiting >= 40


def test_old_failures_hold_no_new_messages_back(client: type[Client], root: Path) -> None:
    client.fails = {b"%d" % n: NO_QUEUE for n in range(30)}
    given: dict[str, Any] = {"apply": True, "on_failure": "skip"}
    assert mqstore.replay(root, "a:1", limit=30, **given).sent == 0
    for sent in (4, 6, 0):
        report = mqstore.replay(root, "a:1", apply=True, limit=4 if sent == 4 else None)
        assert (report.sent, report.failed, report.stopped) == (sent, 30, None)
    client.fails = {}
    assert mqstore.replay(root, "a:1", limit=1, **given).sent == 30


def test_each_message_of_a_batch_counts_and_fails_alone(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.replaying.run._MOST_FAILURES", 2)
    root, report = tmp_path / "broker-a/store", tmp_path / "failed.csv"
    (root / "config").mkdir(parents=True)
    row = {"topicName": "T", "attributes": {"queue.type": "BatchCQ"}}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": {"T": row}}))
    batches = [[b"m%d" % n for n in range(10)], [b"n0", b"busy", b"n2", b"bad"]]
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        for bodies in batches:
            items = (
                struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"
                for body in bodies
            )
            properties = {"INNER_NUM": str(len(bodies))}
            one = mqstore.Message("T", b"".join(items), sys_flag=0xC0, properties=properties)
            store.append_many([one])
    client.fails = {b"busy": BUSY, b"bad": (13, "illegal"), b"m3": (13, "illegal")}
    given: dict[str, Any] = {"apply": True, "journal": tmp_path / "journal"}
    first = mqstore.replay(root, "a:1", **given)
    assert (first.sent, [one.batch_index for one in first.failures]) == (11, [3, 1, 3])
    # Failures of earlier runs, or of messages that no run tries again, end no run.
    assert (first.stopped, mqstore.replay(root, "a:1", **given).stopped) == (None, None)
    write_failures(report, first.failures)
    del client.fails[b"busy"]
    second = mqstore.replay(root, "a:1", **given)
    assert (second.sent, second.failed, client.got[-1]) == (1, 2, b"busy")
    client.fails = {}
    assert mqstore.replay(root, "a:1", retry_failed=report, **given).sent == 2
    assert sorted(client.got) == sorted(itertools.chain(*batches))
    given["journal"] = tmp_path / "other"
    with pytest.raises(mqstore.ConfigError, match="name the journal of their run"):
        mqstore.replay(root, "a:1", retry_failed=report, **given)
    # A failure of an older journal is of the whole batch.
    place = first.failures[1].physical_offset
    old = (tmp_path / "journal").read_text().splitlines()[0]
    row = json.loads(first.failures[1].to_json())
    del row["batch_index"]
    line = {"done": place, "failures": [row]}
    (tmp_path / "journal").write_text(f"{old}\n{json.dumps(line)}\n")
    given["journal"] = tmp_path / "journal"
    for sent in (4, 0):
        report_again = mqstore.replay(root, "a:1", **given)
        assert (report_again.sent, report_again.failed) == (sent, 0)


def test_offsets_of_a_group_that_moved_back_are_named(
    client: type[Client], root: Path, tmp_path: Path
) -> None:
    with mqstore.open(root, "a", config=mqstore.StoreConfig.embedded()) as store:
        store.append("invoices", b"first")
    given: dict[str, Any] = {"missed_by": "late", "apply": True}

    def send(**offsets: int) -> mqstore.ReplayReport:
        table = {f"{topic}@late": {"0": offset} for topic, offset in offsets.items()}
        (root / "config").mkdir(exist_ok=True)
        (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
        return mqstore.replay(root, "a:1", **given)

    assert (send(orders=20).sent, send(orders=30).sent) == (20, 0)
    with pytest.raises(
        mqstore.ConfigError, match=r"got 29 \(before 30\) in queue 0 of orders; name"
    ):
        send(orders=29)
    with pytest.raises(mqstore.ConfigError, match="got invoices; name"):
        send(orders=30, invoices=0)
    # As the advice says: that topic and these offsets alone.
    given |= {"topics": "orders", "first_queue_offset": 10, "last_queue_offset": 19}
    assert send(orders=10).sent == 10
    given = {"missed_by": "late", "apply": True, "topics": "invoices"}
    assert send(orders=30, invoices=0).sent == 1
    assert len(set(client.got)) == len(client.got) == 31
