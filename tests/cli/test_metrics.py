"""``metrics``: what Prometheus reads of a store."""

import shutil
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

import mqstore
from helpers.running import BEGIN_MS, SETTINGS
from mqstore.metrics import StoreCollector

HOSTILE = 'a"b\\c\nd\x1b[31m\u202e{}<script>'


def parsed(text):
    """Samples by name and labels, of what Prometheus' own parser makes of the text."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples, name, **labels):
    (found,) = [
        sample for key, sample in samples.items() if key[0] == name and labels.items() <= {*key[1:]}
    ]
    return found


@pytest.fixture
def consumed(store):
    """The forty messages, and two groups that took some of them."""
    with mqstore.open(store, "r+", config=SETTINGS) as opened:
        with opened.group("eager") as group:
            group.seek("orders", 0, 20)
            group.seek("orders", 1, 4)
            group.commit()
        with opened.group("CID_RMQ_SYS_TRANS") as group:
            group.seek("audit", 0, 10)
            group.commit()
    return store


def test_names_and_values_are_those_of_a_broker(mq, consumed, conf):
    samples = parsed(mq("metrics", consumed, "--config", conf).out)
    storage = {"storage_type": "local", "storage_medium": "disk"}
    assert value(samples, "rocketmq_storage_size", **storage) > 0
    assert value(samples, "rocketmq_storage_flush_behind_bytes", **storage) == 0
    assert value(samples, "rocketmq_storage_dispatch_behind_bytes", **storage) == 0
    assert value(samples, "rocketmq_messages_in_total", topic="orders", is_system="false") == 30
    assert value(samples, "rocketmq_messages_in_total", topic="audit") == 10
    eager = {"consumer_group": "eager", "topic": "orders", "is_retry": "false"}
    assert value(samples, "rocketmq_consumer_lag_messages", **eager, is_system="false") == 6
    system = {"consumer_group": "CID_RMQ_SYS_TRANS", "is_system": "true"}
    assert value(samples, "rocketmq_consumer_lag_messages", **system) == 0
    assert value(samples, "rocketmq_consumer_lag_latency", **system) == 0


def test_times_are_counted_from_now(consumed):
    collector = StoreCollector(consumed, now_ms=lambda: BEGIN_MS + 100_000, labels={"cluster": "c"})
    found = {
        (sample.name, sample.labels.get("consumer_group")): sample
        for metric in collector.collect()
        for sample in metric.samples
    }
    assert found["rocketmq_storage_message_reserve_time", None].value == 100_000
    with mqstore.open(consumed) as store:
        oldest = store.read("orders", 1, 4).messages[0].store_timestamp_ms
    assert found["rocketmq_consumer_lag_latency", "eager"].value == BEGIN_MS + 100_000 - oldest
    assert all(sample.labels["cluster"] == "c" for sample in found.values())


def test_a_group_that_is_behind_counts(mq, store, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(store / "commitlog", copied / "commitlog")
    (copied / "abort").touch()
    samples = parsed(mq("metrics", copied).out)
    with mqstore.open(copied) as opened:
        end = opened.max_physical_offset
        assert end - opened.flushed_offset > 0
        behind = end - opened.dispatched_offset, end - opened.flushed_offset
    assert behind == (
        value(samples, "rocketmq_storage_dispatch_behind_bytes"),
        value(samples, "rocketmq_storage_flush_behind_bytes"),
    )


def test_an_empty_store_has_no_oldest_message(mq, tmp_path):
    mqstore.open(tmp_path / "store", "a", config=SETTINGS).close()
    samples = parsed(mq("metrics", tmp_path / "store").out)
    assert {name for name, *_ in samples} == {
        "rocketmq_storage_size",
        "rocketmq_storage_flush_behind_bytes",
        "rocketmq_storage_dispatch_behind_bytes",
        "mqstore_deleted_bytes_total",
        "mqstore_half_messages",
        "mqstore_overdue_messages",
        "mqstore_pending_unread_queues",
    }


def test_hostile_names_stay_inside_of_their_labels(mq, consumed):
    folder = consumed / "config" / "consumerOffset.json"
    folder.write_text(folder.read_text().replace("eager", r"a\"b\\c\nd\u001b[31m\u202e{}<script>"))
    with mqstore.open(consumed) as store:
        assert HOSTILE in store.groups()
    ran = mq("metrics", consumed)
    assert {c for c in ran.out if not c.isprintable()} == {"\n"}
    spelt = r'a"b\c\nd\x1b[31m\u202e{}<script>'
    assert value(parsed(ran.out), "rocketmq_consumer_lag_messages", consumer_group=spelt) == 6
    rows = mq("metrics", consumed, "--json").json
    assert HOSTILE in {row["labels"].get("consumer_group") for row in rows}


def test_labels_of_ones_own(mq, store):
    samples = parsed(mq("metrics", store, "--label", "cluster=a=b", "--label", 'node_id="x').out)
    assert value(samples, "rocketmq_storage_size", cluster="a=b", node_id='"x') > 0
    for label in ("cluster", "=x", "a b=c", "__name=x"):
        assert "NAME=VALUE" in mq("metrics", store, "--label", label, code=2).err


def test_without_the_extra_it_says_how_to_get_it(store):
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from mqstore.cli import main\n"
        f"sys.exit(main(['metrics', {str(store)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert b"pip install 'mqstore[metrics]'" in done.stderr
    assert done.stdout == b""
