"""``why``: where a message is, and why a group has or has not got it."""

import json
import shutil

import pytest

import mqstore
from helpers.golden import Case
from helpers.running import BEGIN_MS, SETTINGS


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A store that a broker wrote: transactions, delays, redeliveries, five groups."""
    return Case("broker").unpack(tmp_path_factory.mktemp("broker"))


SCHEDULED = "SCHEDULE_TOPIC_XXXX"


def answers(path, **asked):
    return list(mqstore.why(path, **asked).answers)


def set_offsets(path, **offsets):
    """Puts the group's places into the table of a broker."""
    table = {name.replace("__", "@"): {"0": at} for name, at in offsets.items()}
    (path / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


@pytest.mark.parametrize(
    ("group", "key", "codes"),
    [
        ("group-pull-all", "order8", ["no-offset", "taken", "taken"]),
        ("group-pull-some", "order8", ["waiting", "no-offset", "taken"]),
        ("group-pull-some", "tx-rollback-1", ["rolled-back"]),
        ("group-pull-some", "tx-unknown-1", ["half"]),
        ("group-pull-all", "tx-commit-1", ["taken"]),
        ("group-pull-all", "order0", ["no-offset", "no-offset"]),
        ("group-push-retry", "order7", ["taken", "taken"]),
    ],
)
def test_the_groups_of_a_real_broker(broker, group, key, codes):
    found = answers(broker, group=group, key=key)
    assert sorted(answer.code for answer in found) == sorted(codes)


def test_a_committed_place_says_how_many_come_before(broker):
    (answer,) = answers(
        broker, group="group-pull-some", topic="OrderTopic", queue_id=2, queue_offset=5
    )
    assert (answer.code, answer.group_offset, answer.before) == ("waiting", 0, 5)
    assert "the group's place is 0: 5 messages before it" in answer.text
    (by_id,) = answers(broker, group="group-pull-some", id=answer.places[0].message_id)
    assert by_id == answer
    # A batch of four, which have one unique key.
    by_unique_key = answers(broker, group="group-pull-some", id=answer.unique_key)
    assert [one.before for one in by_unique_key] == [4, 5, 6, 7]
    assert by_unique_key[1] == answer
    beyond = answers(
        broker, group="group-pull-some", topic="OrderTopic", queue_id=2, queue_offset=8
    )
    assert beyond[0].code == "beyond-queue"


def test_every_copy_that_the_broker_made_is_named(broker):
    (answer,) = answers(
        broker, group="group-push-retry", topic="Topic_s-x", queue_id=2, queue_offset=0
    )
    assert [(place.topic, place.purpose) for place in answer.places] == [
        ("Topic_s-x", "normal"),
        ("SCHEDULE_TOPIC_XXXX", "delayed"),
        ("%RETRY%group-push-retry", "retry"),
    ]
    assert "took redelivery 1 from %RETRY%group-push-retry" in answer.text
    # Another group took the same message the first time.
    assert answers(broker, group="group-pull-tag", key="order7")[0].text.startswith("the group's")


def test_a_copy_leads_to_the_message_that_was_delivered(broker):
    with mqstore.open(broker) as store:
        (delayed, *_) = [one for one in store.scan() if one.purpose == "delayed"]
    (answer,) = answers(broker, group="group-pull-tag", id=delayed.message_id)
    assert (answer.topic, answer.queue_offset, answer.code) == ("Topic_s-x", 3, "taken")


def test_without_an_index_the_log_is_read_once(broker, tmp_path):
    asked = {"group": "group-push-retry", "key": "order7"}
    found = answers(broker, **asked)
    path = tmp_path / "store"
    shutil.copytree(broker, path)
    config = {"max_hash_slot_num": 13, "max_index_num": 20}
    assert not mqstore.open(path, config=config).index_usable
    assert answers(path, config=config, **asked) == found


def test_tags_that_the_group_does_not_take(broker, tmp_path):
    (answer, *_) = answers(broker, group="group-pull-tag", key="order4", tags="TagA || TagC")
    assert (answer.tags, answer.code, answer.subscription) == ("TagC", "taken", "TagA || TagC")
    (answer, *_) = answers(broker, group="group-pull-tag", key="order4", tags="TagA||TagB")
    assert answer.code == "filtered"
    path = tmp_path / "store"
    shutil.copytree(broker, path)
    kept = {"topic": "Topic_s-x", "expression": "TagA", "expressionType": "TAG"}
    table = {"group-pull-tag": {"subscriptionDataSet": [kept], "consumeEnable": False}}
    (path / "config/subscriptionGroup.json").write_text(
        json.dumps({"subscriptionGroupTable": table})
    )
    (answer, *_) = answers(path, group="group-pull-tag", key="order4")
    assert (answer.code, answer.subscription) == ("filtered", "TagA")
    (answer, *_) = answers(path, group="group-pull-tag", key="order8", topic="OrderTopic")
    assert answer.code == "disabled"


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        ({"OrderTopic": {"readQueueNums": 2}}, "readQueueNums is 2"),
        ({"OrderTopic": {"perm": 2}}, "perm is 2"),
        ({"OrderTopic": {"readQueueNums": 3, "perm": 6}}, None),
        ({"OrderTopic": {"readQueueNums": "two", "perm": None}}, None),
        ({"another": {}}, "topics.json has no topic OrderTopic"),
        ({}, "topics.json has no topic OrderTopic"),
        (None, None),
    ],
)
@pytest.mark.parametrize("main", [None, "{", ""])
def test_o8_a_queue_that_no_consumer_gets(broker, tmp_path, topics, text, main):
    path = tmp_path / "store"
    shutil.copytree(broker, path)
    for file in (path / "config").glob("topics.json*"):
        file.unlink()
    if main is not None:
        (path / "config/topics.json").write_text(main)
    if topics is not None:
        name = "topics.json" if main is None else "topics.json.bak"
        (path / "config" / name).write_text(json.dumps({"topicConfigTable": topics}))
    asked = {"group": "group-pull-some", "topic": "OrderTopic", "queue_id": 2, "queue_offset": 5}
    (answer,) = answers(path, **asked)
    assert answer.code == ("waiting" if text is None else "not-served")
    assert text is None or text in answer.text


def test_a_redelivery_that_the_group_has_not_taken(broker, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(broker, path)
    offsets = {"Topic_s-x@g": {"2": 3}, "%RETRY%group-push-retry@group-push-retry": {"0": 1}}
    offsets["Topic_s-x@group-push-retry"] = {"2": 3}
    (path / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    taken, waits = answers(path, group="group-push-retry", key="order7")
    assert (taken.code, waits.code) == ("taken", "retry")
    assert "redelivery 1 waits in %RETRY%group-push-retry at 1, the group's place" in waits.text


@pytest.fixture
def made(tmp_path):
    """A store with a failed and with delayed messages, whose first messages are deleted."""
    path = tmp_path / "made"
    waiting = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
    retry = {"REAL_TOPIC": "%RETRY%billing", "REAL_QID": "0", "RETRY_TOPIC": "orders"}
    dead = {"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "orders"}
    rows = [
        *({"topic": "orders", "body": bytes(300), "unique_key": f"OLD{n}"} for n in range(20)),
        *({"topic": "orders", "unique_key": name} for name in ("A", "B", "C")),
        {"topic": SCHEDULED, "unique_key": "D", "delay_level": 5, "properties": waiting},
        {"topic": SCHEDULED, "unique_key": "B", "delay_level": 3, "properties": retry}
        | {"queue_id": 2, "reconsume_times": 1},
        {"topic": "%DLQ%billing", "unique_key": "C", "properties": dead, "reconsume_times": 16},
        {"topic": "%DLQ%other", "unique_key": "E", "properties": dead, "reconsume_times": 16},
    ]
    rows = [
        mqstore.Message(**({"body": b""} | row), store_timestamp_ms=BEGIN_MS + 1000 * number)
        for number, row in enumerate(rows)
    ]
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(rows)
    set_offsets(path, orders__billing=21)
    return path


def test_delayed_failed_and_dead_messages(made):
    def one(**asked):
        (answer,) = answers(made, group="billing", now_ms=BEGIN_MS + 60_000, **asked)
        return answer.code, answer.text

    code, text = one(key="D")
    assert (code, "its delivery to orders is due at 2023-11-14T22:1" in text) == ("delayed", True)
    assert "the time has passed" not in text
    assert "the time has passed" in mqstore.why(made, group="billing", key="D").answers[0].text
    code, text = one(key="B")
    assert (code, "its redelivery 1 to %RETRY%billing is due at" in text) == ("retry", True)
    code, text = one(key="C")
    assert (code, "failed it 16 times" in text) == ("dead-letter", True)
    assert one(key="A")[0] == "taken"
    assert one(key="E")[0] == "other-group"


def test_deleted_messages(made):
    mqstore.clean(made, dry_run=False, config=SETTINGS | {"keep_bytes": 4096})
    with mqstore.open(made) as store:
        first = store.queues("orders")[0].min_offset
    assert first > 2
    place = {"topic": "orders", "queue_id": 0, "queue_offset": 1}
    set_offsets(made, orders__billing=2, orders__stock=1)
    assert answers(made, group="billing", **place)[0].code == "below-log"
    (unread,) = answers(made, group="stock", **place)
    assert (unread.code, f"begins at {first}" in unread.text) == ("deleted-unread", True)


def test_names_that_are_not_there_are_refused_with_near_ones(broker):
    for asked, near in (
        ({"group": "group-pull-sme", "key": "order1"}, "did you mean 'group-pull-some'"),
        ({"group": "group-pull-some", "key": "ordr1"}, "did you mean 'order1'"),
        ({"group": "group-pull-some", "key": "order1", "topic": "OrderTopi"}, "'OrderTopic'"),
    ):
        with pytest.raises(mqstore.MessageNotFoundError, match=near):
            mqstore.why(broker, **asked)
    place = {"topic": "OrderTopic", "queue_id": 9, "queue_offset": 0}
    with pytest.raises(mqstore.MessageNotFoundError, match="there are 0, 1, 2"):
        mqstore.why(broker, group="group-pull-some", **place)
    for asked in ({}, {"key": "a", "id": "b"}, {"topic": "OrderTopic", "queue_id": 0}):
        with pytest.raises(ValueError, match="expected key, id, or topic"):
            mqstore.why(broker, group="group-pull-some", **asked)


def test_a_log_of_which_no_topic_is_left_is_named_as_not_read(tmp_path):
    with mqstore.open(tmp_path, "a", config=SETTINGS) as store:
        store.append_many(mqstore.Message("orders", b"p" * 100, keys="A") for _ in range(5))
        with store.group("billing") as group:
            group.poll("orders")
            group.commit()
    shutil.rmtree(tmp_path / "consumequeue")
    (log,) = (path for path in (tmp_path / "commitlog").iterdir() if any(path.read_bytes()))
    log.write_bytes(b"\xff" * 2000 + log.read_bytes()[2000:])
    (index,) = (tmp_path / "index").iterdir()
    index.write_bytes(b"\xff" * 1000)
    with mqstore.open(tmp_path, config=SETTINGS) as store:
        assert (store.topics(), store.index_usable) == ([], False)
    with pytest.raises(mqstore.MessageNotFoundError, match="; not read: physical offsets 0 to"):
        mqstore.why(tmp_path, group="billing", key="A", config=SETTINGS)
