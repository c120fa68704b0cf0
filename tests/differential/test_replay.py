"""Messages of a store in a live cluster: sent by its own client, seen by its own consumers."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.clusters import QUICK_JAVA, Cluster, running_cluster
from helpers.java import QUICK, RocketMQ
from helpers.running import children, command_line, environment
from mqstore.cli import main
from mqstore.replaying.report import write_failures

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = mqstore.StoreConfig.embedded()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA["JAVA_TOOL_OPTIONS"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def cluster(_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    rocketmq = RocketMQ(folder / "process")
    with running_cluster(rocketmq, folder / "store") as cluster:
        cluster.topics("orders", "invoices", "odd%name-_|", "few", "hostile")
        yield cluster
    rocketmq.close()


def source(path: Path, count: int = 100) -> Path:
    """A store of a broker `broker-a`."""
    root = path / "broker-a/store"
    with mqstore.open(root, "a", config=SMALL) as store:
        for number in range(count):
            store.append(
                "invoices" if number % 10 == 9 else "orders",
                f"body {number}".encode(),
                queue_id=number % 4,
                tags="paid" if number % 2 else "open",
                keys=[f"key-{number}", "all"],
                unique_key=f"{number:032X}",
                properties={"user": f"u {number}", "-opt": "--apply"},
                flag=number,
            )
    return root


def options(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return {"to": cluster.to, "classpath": cluster.client, **more}


def as_sent(message: mqstore.StoredMessage) -> tuple[object, ...]:
    """The parts of a message that must arrive."""
    kept = dict(message.properties)
    kept["MQSTORE_ORIGIN"] = f"broker-a/{message.physical_offset}"
    body = base64.b64encode(message.body).decode()
    return message.topic, message.queue_id, message.flag, body, tuple(sorted(kept.items()))


def as_got(row: dict[str, Any]) -> tuple[object, ...]:
    of_brokers = ("CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET")
    kept = {name: value for name, value in row["properties"].items() if name not in of_brokers}
    kept.pop("CONSUME_START_TIME", None)
    return row["topic"], row["queueId"], row["flag"], row["body"], tuple(sorted(kept.items()))


def test_the_plan_sends_nothing_and_says_what_would_be(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topics("read")
    cluster.rocketmq.produce([{"topic": "read", "queueId": 0, "bodyText": "first"}])
    cluster.rocketmq.consume(["read"], "audit", mode="push", count=1)
    root = source(tmp_path)
    given = options(cluster, topics=["orders"], to_topic="read")
    report = mqstore.replay(root, rate=10, **given)
    assert (report.applied, report.sent, report.messages) == (False, 0, 90)
    (topic,) = report.topics
    assert (topic.topic, topic.messages, topic.queues) == ("read", 90, 4)
    assert topic.groups == ("audit",)
    assert report.seconds == 9
    assert report.first[0].physical_offset == 0
    assert any("redelivery" in text for text in report.differences)
    assert any("new id" in text for text in report.warnings)
    assert len(cluster.messages("read")) == 1
    assert not Path(report.journal).exists()
    missing = mqstore.replay(root, topics=["orders"], to_topic="nowhere", **options(cluster))
    assert missing.topics[0].queues == 0
    assert any("no such topic" in text for text in missing.warnings)


def test_each_message_arrives_once_as_it_was(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = source(tmp_path)
    arguments = ["replay", str(root), "--to", cluster.to, "--classpath", cluster.client]
    assert main([*arguments, "-t", "invoices", "--apply", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 10
    assert main([*arguments, "-t", "invoices", "--apply", "--batch", "1", "--ordered"]) == 0
    assert "earlier runs sent 10" in capsys.readouterr().out
    cluster.topics("singly")
    singly = ["--batch", "1", "--ordered", "--to-topic", "singly", "--apply", "--json"]
    assert main([*arguments, "-t", "invoices", *singly]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 10
    assert len(cluster.messages("singly", count=10)) == 10
    with mqstore.open(root) as store:
        wanted = Counter(as_sent(message) for message in store.scan(topics=["invoices"]))
    assert Counter(map(as_got, cluster.messages("invoices", count=10))) == wanted
    # New messages of the same selection, and nothing else.
    with mqstore.open(root, "r+", config=SMALL) as store:
        store.append("invoices", b"one more", unique_key="F" * 32)
    assert mqstore.replay(root, topics=["invoices"], apply=True, **options(cluster)).sent == 1


def test_dead_letters_come_back_to_their_group_and_to_no_other(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rocketmq = cluster.rocketmq
    cluster.topics("work")
    rows = [
        {"topic": "work", "queueId": 0, "bodyText": str(n), "keys": [f"w-{n}"]} for n in range(5)
    ]
    rocketmq.produce(rows)
    rocketmq.consume(["work"], "other", mode="push", count=5)
    rocketmq.consume(["work"], "billing", mode="push", count=5, fail=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        dead = [row for row in mqstore.pending(cluster.store).dead_letters if row.messages == 5]
        if dead:
            break
    assert [(row.group, row.origin_topic) for row in dead] == [("billing", "work")]
    assert main(["pending", str(cluster.store)]) == 0
    command = f"mqstore resend {cluster.store} -g billing --to NAMESRV"
    assert command in capsys.readouterr().out
    # The folder of the live broker itself.
    report = mqstore.resend(cluster.store, "billing", apply=True, **options(cluster))
    assert (report.sent, report.failed, report.skipped) == (5, 0, 0)
    again = rocketmq.consume(["work"], "billing", mode="push", count=5)
    assert sorted(row["keys"] for row in again) == [f"w-{n}" for n in range(5)]
    assert {row["topic"] for row in again} == {"work"}
    assert all("MQSTORE_ORIGIN" in row["properties"] for row in again)
    # To the topic: all its groups get them, the other one these five and none before.
    plan = mqstore.resend(cluster.store, "billing", to_origin=True, **options(cluster))
    assert {"other", "billing"} <= set(plan.topics[0].groups)
    report = mqstore.resend(
        cluster.store, "billing", to_origin=True, apply=True, **options(cluster)
    )
    assert report.sent == 5
    seen = rocketmq.consume(["work"], "other", mode="push", count=5)
    assert sorted(row["keys"] for row in seen) == [f"w-{n}" for n in range(5)]
    assert not any("RETRY_TOPIC" in row["properties"] for row in seen)


def test_a_group_in_order_gets_no_second_dead_letters(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "broker-a/store"
    with mqstore.open(root, "a", config=SMALL) as store:
        for _ in range(60):
            store.append("%DLQ%inorder", b"dead", properties={"RETRY_TOPIC": "elsewhere"})
    cluster.topics("elsewhere")
    cluster.rocketmq.consume(["elsewhere"], "inorder", mode="push", count=0)
    assert mqstore.resend(root, "inorder", apply=True, limit=10, **options(cluster)).sent == 10
    cluster.rocketmq.produce([{"op": "lock", "group": "inorder", "topic": "elsewhere"}])
    given = options(cluster, apply=True, on_failure="skip")
    report = mqstore.resend(root, "inorder", **given)
    assert (report.sent, [failure.kind for failure in report.failures]) == (0, ["dead-letter"])
    assert "--origin-topic" in (report.stopped or "")
    assert (cluster.stored("%RETRY%inorder"), cluster.stored("%DLQ%inorder")) == (10, 1)


def test_a_broker_that_is_away_is_waited_for_in_order(cluster: Cluster, tmp_path: Path) -> None:
    root = source(tmp_path)
    config = tmp_path / "second/config"
    config.mkdir(parents=True)
    names = {"topicName": "alone", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table = {name: {**names, "topicName": name} for name in ("alone", "two")}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    cluster.topics("two", queues=2)
    running: list[RocketMQ] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        ports: dict[str, int] = {"namePort": free.getsockname()[1]}

    def start() -> None:
        running.append(RocketMQ(tmp_path / f"process-{len(running)}"))
        servers = f"{cluster.to};127.0.0.1:{ports['namePort']}"
        broker = {"namesrvAddr": servers, "brokerName": "second"}
        context = running_cluster(running[-1], config.parent, brokerConfig=broker, **ports)
        ports["brokerPort"] = context.__enter__().port
        contexts.append(context)

    contexts: list[Any] = []
    again = threading.Thread(target=start)

    def restart(message: mqstore.StoredMessage) -> mqstore.Message:
        if message.flag == 60 and not again.ident:
            running[0].kill()
            again.start()
        topic = "alone" if message.topic == "invoices" else "two"
        return message.to_message(topic=topic)

    def is_known() -> bool:
        """Whether the first name server knows the second broker."""
        plan = mqstore.replay(root, to_topic="alone", **options(cluster))
        return plan.topics[0].queues == 4

    given = options(cluster, transform=restart, apply=True, tries=30)
    try:
        start()
        assert any(is_known() for _ in range(60))
        report = mqstore.replay(root, ordered=True, rate=50, **given)
        assert again.ident, report
        again.join()
        assert (report.sent, report.failed, report.stopped) == (100, 0, None)
        got = sorted(
            cluster.messages("two", "alone", count=100), key=lambda row: row["queueOffset"]
        )
    finally:
        if again.ident:
            again.join()
        for one in running:
            one.kill()
    places: dict[tuple[object, ...], list[int]] = {}
    for row in got:
        places.setdefault((row["topic"], row["storeHost"], row["queueId"]), []).append(row["flag"])
    # A broker that is killed may have stored messages without an answer: they come twice.
    first = [[*dict.fromkeys(flags)] for flags in places.values()]
    assert sum(map(len, first)) == 100
    assert all(flags == sorted(flags) for flags in first)


def test_a_read_only_broker_has_the_topic(cluster: Cluster, tmp_path: Path) -> None:
    given = options(cluster, topics=["orders"], apply=True)
    cluster.configure(brokerPermission="4")
    try:
        report = mqstore.replay(source(tmp_path), **given)
    finally:
        cluster.configure(brokerPermission="6")
    assert [failure.kind for failure in report.failures] == ["no-permission"]
    assert "read-only" in (report.stopped or "")


def test_a_group_gets_what_it_missed(cluster: Cluster, tmp_path: Path) -> None:
    root = source(tmp_path)
    offsets = '{"offsetTable":{"orders@late":{"0":20,"1":20,"2":20,"3":20}}}'
    (root / "config/consumerOffset.json").write_text(offsets)
    cluster.topics("elsewhere")
    # A group has its retry topic from its first consumer on.
    cluster.rocketmq.consume(["elsewhere"], "late", mode="push", count=0)
    report = mqstore.replay(root, missed_by="late", apply=True, **options(cluster))
    with mqstore.open(root) as store:
        missed = [one for one in store.scan(topics=["orders"]) if one.queue_offset >= 20]
    assert report.sent == len(missed) > 5
    got = cluster.rocketmq.consume(["elsewhere"], "late", mode="push", count=len(missed))
    assert sorted(row["uniqKey"] for row in got) == sorted(one.unique_key or "" for one in missed)
    assert {row["topic"] for row in got} == {"orders"}


def test_hostile_content_arrives_or_is_named(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "broker-a/store"
    big = mqstore.StoreConfig(mapped_file_size_commit_log=16 << 20, max_message_size=5 << 20)
    text = "x" * 32_600
    with mqstore.open(root, "a", config=big) as store:
        store.append("odd%name-_|", b"odd", unique_key="1" * 32, keys="--to")
        store.append("hostile", bytes(range(256)) * (16 << 10), unique_key="2" * 32)
        store.append("hostile", b"", unique_key="3" * 32)
        store.append("hostile", b"full", properties={"big": text}, unique_key="4" * 32)
        store.append("hostile", b"queue", queue_id=9, unique_key="5" * 32)
        store.append("hostile", b"-rf", keys=["--apply", "é"], unique_key="6" * 32)
        store.append("RMQ_SYS_TRACE_TOPIC", b"trace")
        store.append("%RETRY%billing", b"retry")
        store.append("nowhere", b"nowhere", unique_key="7" * 32)
    report_file = tmp_path / "failed.csv"
    topics = ["odd%name-_|", "hostile", "RMQ_SYS_TRACE_TOPIC", "%RETRY%billing"]
    given = options(cluster, topics=topics, journal=tmp_path / "journal")
    report = mqstore.replay(root, apply=True, **given)
    kinds = {(failure.unique_key or "")[:1]: failure.kind for failure in report.failures}
    assert kinds == {"3": "empty-body", "5": "no-queue"}
    assert [(row.reason, row.messages) for row in report.refusals] == [("system", 2)]
    got = {row["uniqKey"][:1]: row for row in cluster.messages("odd%name-_|", "hostile", count=4)}
    assert set(got) == {"1", "2", "4", "6"}
    assert base64.b64decode(got["2"]["body"]) == bytes(range(256)) * (16 << 10)
    assert got["4"]["properties"]["big"] == text
    assert "MQSTORE_ORIGIN" not in got["4"]["properties"]
    assert got["6"]["keys"] == "--apply é"
    # The failures alone, once their cause is gone.
    arguments = ["replay", str(root), "--to", cluster.to, "--classpath", cluster.client, "--apply"]
    arguments += ["--journal", str(tmp_path / "journal"), "--report", str(report_file)]
    arguments += [word for topic in topics for word in ("-t", topic)]
    assert main(arguments) == 1
    assert report_file.read_text().count("\n") == 3
    assert main([*arguments, "--retry-failed", str(report_file), "--queue", "any"]) == 1
    rows = cluster.messages("hostile", count=4)
    assert Counter(row["uniqKey"][:1] for row in rows) == Counter("2456")
    stopped = mqstore.replay(root, topics=["nowhere"], apply=True, **options(cluster))
    assert [failure.kind for failure in stopped.failures] == ["no-topic"]
    assert (stopped.stopped or "").startswith("no-topic: ")


def test_batches_of_messages_without_keys_and_with_long_properties(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "broker-a/store"
    cluster.topics("keyless", queues=1)
    with mqstore.open(root, "a") as store:
        for number in range(8):
            store.append("keyless", b"%d" % number)
            # A broker adds properties of its own.
            long = {"long": "x" * 32_712}
            store.append("keyless", b"long", properties=long, unique_key=f"{number:032X}")
            store.append("keyless", b"keyed", unique_key=f"{number:032X}", properties={"own": "x"})
    report = mqstore.replay(root, apply=True, **options(cluster))
    assert (report.sent, [failure.kind for failure in report.failures]) == (16, ["refused"] * 8)
    rows = cluster.messages("keyless", count=16)
    keyed = [row for row in rows if row["properties"].get("own") == "x"]
    assert {row["uniqKey"] for row in keyed} == {f"{number:032X}" for number in range(8)}
    assert len({row["uniqKey"] for row in rows}) == 16
    assert {base64.b64decode(row["body"]) for row in rows} == {
        *map(b"%d".__mod__, range(8)),
        b"keyed",
    }


def reroute(message: mqstore.StoredMessage) -> mqstore.Message | mqstore.StoredMessage | None:
    """A transform: one message is dropped, one goes elsewhere, the others are as they were."""
    if "key-1" in message.keys:
        return None
    return message.to_message(topic="few", body=b"new") if "key-2" in message.keys else message


def test_ordered_changed_and_limited(cluster: Cluster, tmp_path: Path) -> None:
    root = source(tmp_path, 40)
    cluster.topics("ordered", queues=2)
    given = options(
        cluster,
        topics=["orders"],
        to_topic="ordered",
        queue="any",
        ordered=True,
        new_id=True,
        properties={"lab": "yes"},
        transform=reroute,
        apply=True,
    )
    first = mqstore.replay(root, limit=10, **given)
    second = mqstore.replay(root, **given)
    assert (first.sent + first.skipped, second.sent_before) == (11, 10)
    assert first.sent + second.sent == 35
    assert [row["body"] for row in cluster.messages("few", count=1)] == [
        base64.b64encode(b"new").decode()
    ]
    places: dict[tuple[int, int], list[int]] = {}
    for row in sorted(cluster.messages("ordered", count=34), key=lambda row: row["queueOffset"]):
        assert row["properties"]["lab"] == "yes"
        number = int(row["properties"]["user"].split()[1])
        assert row["uniqKey"] != f"{number:032X}"
        places.setdefault((row["queueId"], number % 4), []).append(number)
    assert all(numbers == sorted(numbers) for numbers in places.values())
    assert sum(map(len, places.values())) == 34


def test_an_error_that_passes_is_tried_again_in_order(cluster: Cluster, tmp_path: Path) -> None:
    root = source(tmp_path, 40)
    cluster.topics("busy")
    given = options(cluster, topics=["orders"], to_topic="busy", on_failure="skip", apply=True)
    # A broker that waits for a slave that is not there.
    busy = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "enableSlaveActingMaster": "true"}
    cluster.configure(**busy)
    try:
        report = mqstore.replay(root, ordered=True, tries=2, **given)
    finally:
        cluster.configure(brokerRole="ASYNC_MASTER", enableSlaveActingMaster="false")
    # At most one of each queue: those behind it stay where they are.
    assert (report.sent, 1 <= report.failed <= 4) == (0, True), report
    assert {(one.kind, one.code, one.tries) for one in report.failures} <= {
        ("broker-error", 1, 1),
        ("broker-error", 1, 2),
    }
    assert max(one.tries for one in report.failures) == 2
    assert "in-sync replicas" in report.failures[0].answer
    assert mqstore.replay(root, ordered=True, **given).sent == 36
    places: dict[int, list[int]] = {}
    for row in sorted(cluster.messages("busy", count=36), key=lambda row: row["queueOffset"]):
        places.setdefault(row["queueId"], []).append(row["flag"])
    assert all(flags == sorted(flags) for flags in places.values())
    assert sum(map(len, places.values())) == 36


def test_ctrl_c_ends_between_messages(cluster: Cluster, tmp_path: Path) -> None:
    root = source(tmp_path, 400)
    cluster.topics("slow")
    command = [*command_line(), "replay", str(root), "-t", "orders", "--to", cluster.to]
    command += ["--to-topic", "slow", "--classpath", cluster.client, "--apply"]
    command += ["--journal", str(tmp_path / "journal")]
    process = subprocess.Popen(
        [*command, "--rate", "50/s"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**QUICK_JAVA),
    )
    deadline = time.monotonic() + 60
    while not cluster.stored("slow") and time.monotonic() < deadline:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "start it again to go on" in said
    assert 0 < cluster.stored("slow") < 360
    done = subprocess.run(command, check=False, env=environment(**QUICK_JAVA))
    assert done.returncode == 0
    got = cluster.messages("slow", count=360)
    assert Counter(row["uniqKey"] for row in got).total() == len({row["uniqKey"] for row in got})
    assert len(got) == 360


@pytest.mark.usefixtures("_java")
def test_keys_and_tls_stay_out_of_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = source(tmp_path, 20)
    rocketmq = RocketMQ(
        tmp_path / "process", options=(*QUICK, "-Dtls.server.mode=enforcing", "-Dtls.enable=true")
    )
    auth = {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": (
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "initAuthenticationUser": json.dumps({"username": "lab", "password": "secret-7"}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "lab", "secretKey": "secret-7"}
        ),
    }
    store = tmp_path / "target/store"
    (store / "config").mkdir(parents=True)
    topics = {
        "topicConfigTable": {"orders": {"topicName": "orders", "readQueueNums": 4, "perm": 6}}
    }
    topics["topicConfigTable"]["orders"]["writeQueueNums"] = 4
    (store / "config/topics.json").write_text(json.dumps(topics))
    seen: set[bytes] = set()

    def look(message: mqstore.StoredMessage) -> mqstore.StoredMessage:
        """Reads what everyone on this machine can read of the client."""
        for child in children(os.getpid()):
            for name in ("cmdline", "environ"):
                seen.add(Path(f"/proc/{child}/{name}").read_bytes())
        return message

    try:
        with running_cluster(rocketmq, store, authConfig=auth) as cluster:
            given = options(cluster, topics=["orders"], transform=look, apply=True)
            refused = mqstore.replay(root, journal=tmp_path / "1", tls=True, **given)
            assert [failure.kind for failure in refused.failures] == ["no-permission"]
            write_failures(tmp_path / "report", refused.failures)
            plain = mqstore.replay(root, journal=tmp_path / "2", tries=1, **given)
            assert plain.sent == 0
            credentials = tmp_path / "tools.yml"
            credentials.write_text("accessKey: lab\nsecretKey: secret-7\n")
            sent = mqstore.replay(
                root, journal=tmp_path / "1", tls=True, credentials=credentials, **given
            )
            assert (sent.sent, sent.failed) == (18, 0)
            monkeypatch.setenv("MQSTORE_ACCESS_KEY", "lab")
            monkeypatch.setenv("MQSTORE_SECRET_KEY", "secret-7")
            assert not mqstore.replay(root, journal=tmp_path / "3", tls=True, **given).failed
    finally:
        rocketmq.kill()
    assert any(b"mqstore.Sender" in text for text in seen)
    written = [(tmp_path / name).read_bytes() for name in ("1", "2", "3", "report")]
    assert not [text for text in (*seen, *written) if b"secret-7" in text]
