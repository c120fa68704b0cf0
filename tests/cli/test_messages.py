"""``cat``, ``get``, ``query``, ``at``: the messages, by place, by key, by time."""

import base64
import json
import re

import pytest

import mqstore
from helpers.running import BEGIN_MS, SETTINGS, messages
from mqstore.cli.keys import Sought, query

ALL = messages()
BODY_FIELDS = {"body", "body_base64", "body_hex", "body_json", "body_error", "raw_body_base64"}


def numbers(ran):
    """Which of the forty messages a JSON answer holds, in order."""
    rows = ran.json if isinstance(ran.json, list) else ran.json["messages"]
    return [json.loads(row["body"])["number"] for row in rows]


def test_cat_prints_every_message_in_order(mq, store):
    assert numbers(mq("cat", store, "--json")) == list(range(40))
    assert [row["unique_key"] for row in mq("cat", store, "--jsonl").jsonl] == [
        message.unique_key for message in ALL
    ]
    lines = mq("cat", store).lines
    assert len(lines) == 40
    assert lines[5].split() == [
        *(str(mq("cat", store, "--json").json[5]["physical_offset"]), "2023-11-14T22:13:25.000Z"),
        *("orders/1@1", "tags=refunded", "keys=order-2", "all", '{"number":', "5}"),
    ]


def test_cat_gives_programs_every_field(mq, store):
    row = mq("cat", store, "-n", 1, "--json").json[0]
    with mqstore.open(store) as opened:
        message = opened.get(0)
    assert row == {
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 0,
        "store_size": message.store_size,
        "message_id": message.message_id,
        "store_timestamp_ms": BEGIN_MS,
        "store_host": "10.9.8.7:10911",
        "born_timestamp_ms": BEGIN_MS - 5,
        "born_host": "10.1.2.3:4567",
        "tags": "created",
        "keys": ["order-0", "all"],
        "unique_key": "U000",
        "properties": {
            "TAGS": "created",
            "KEYS": "order-0 all",
            "UNIQ_KEY": "U000",
            "source": "s0",
        },
        "purpose": "normal",
        "transaction": "none",
        "delay_level": 0,
        "real_topic": None,
        "real_queue_id": None,
        "deliver_timestamp_ms": None,
        "lite_topic": None,
        "priority": None,
        "multi_dispatch": [],
        "batch": None,
        "flag": 0,
        "sys_flag": 0,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body_crc": message.body_crc,
        "body": '{"number": 0}',
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-n", 3], [0, 1, 2]),
        (["--reverse"], list(range(39, -1, -1))),
        (["--reverse", "-n", 3], [39, 38, 37]),
        (["-t", "audit"], list(range(3, 40, 4))),
        (["-t", "audit", "--reverse", "-n", 2], [39, 35]),
        (["-t", "orders", "-q", 0], list(range(0, 40, 2))),
        (["-t", "orders", "-q", 0, "-o", 15], [30, 32, 34, 36, 38]),
        (["-t", "orders", "-q", 0, "-o", 15, "--reverse", "-n", 2], [38, 36]),
        (["-t", "orders", "-q", 1, "--tags", "paid"], [1, 13, 25, 37]),
        (["--tags", "paid || refunded", "-n", 4], [1, 2, 4, 5]),
        (["--from", BEGIN_MS + 37_000], [37, 38, 39]),
        (["--to", "2023-11-14T22:13:22Z"], [0, 1, 2]),
        (["-t", "orders", "-q", 0, "--from", BEGIN_MS + 33_500], [34, 36, 38]),
        (["-t", "orders", "-q", 0, "--to", BEGIN_MS + 3_999], [0, 2]),
        (["-t", "orders", "--key", "order-5"], [10]),
        (["-t", "orders", "--key", "all", "-n", 3], [0, 1, 2]),
        (["-t", "orders", "--key", "all", "-n", 3, "--reverse"], [38, 37, 36]),
        (["-t", "orders", "--key", "all", "--from", BEGIN_MS + 36_500], [37, 38]),
        (["--grep", r"number.: 1\d"], list(range(10, 20))),
        (["--grep", r"[37]\}", "-t", "audit"], [3, 7, 23, 27]),
        (["-t", "nothing", "--allow-empty"], []),
        (["-t", "orders", "-q", 9, "--allow-empty"], []),
        (["--from", "-2h", "--allow-empty"], []),
    ],
)
def test_cat_takes_what_is_asked_for(mq, store, conf, options, expected):
    assert numbers(mq("cat", store, "--config", conf, "--json", *options)) == expected


@pytest.mark.parametrize("pattern", ["^(x+)+$", "(x*)*y", "(x|xx)+$"])
def test_a7_a_pattern_takes_no_longer_than_its_bodies(mq, tmp_path, pattern):
    with mqstore.open(tmp_path, "a", config=SETTINGS) as store:
        store.append("t", b"x" * 3000 + b"!")
        store.append("t", b"xxy\nx")
    found = mq("cat", tmp_path, "--grep", pattern, "--allow-empty").lines
    assert len(found) == (pattern != "^(x+)+$")


def test_cat_begins_at_a_physical_offset(mq, store):
    rows = mq("cat", store, "--json").json
    begin = rows[30]["physical_offset"]
    assert numbers(mq("cat", store, "--json", "-o", begin)) == list(range(30, 40))
    assert numbers(mq("cat", store, "--json", "-o", begin + 1)) == list(range(31, 40))
    assert numbers(mq("cat", store, "--json", "-o", begin, "--reverse")) == list(range(39, 29, -1))


def test_cat_shows_bodies_in_each_form(mq, tmp_path):
    bodies = [b"text", b"\xff\x00", b'{"n": 12345678901234567890.10,\n"a": [1]}', b""]
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        for body in bodies:
            store.append("t", body)

    def shown(form):
        rows = mq("cat", path, "--jsonl", "--body", form).jsonl
        return [{k: v for k, v in row.items() if k in BODY_FIELDS} for row in rows]

    texts = [{"body": "text"}, {"body_base64": "/wA="}, {"body": bodies[2].decode()}, {"body": ""}]
    assert shown("text") == texts
    assert shown("hex") == [{"body_hex": body.hex()} for body in bodies]
    numbers = {"n": 12345678901234567890.10, "a": [1]}
    assert shown("json") == [*texts[:2], {"body_json": numbers}, texts[3]]
    packed = mq("cat", path, "--jsonl", "--body", "json").out
    assert '"body_json":{"n":12345678901234567890.10,"a":[1]}' in packed
    assert shown("none") == [{}] * 4
    assert [line.split()[3:] for line in mq("cat", path, "--body", "hex").lines] == [
        ["74657874"],
        ["ff00"],
        [bodies[2].hex()],
        [],
    ]
    assert [line.split()[3:] for line in mq("cat", path, "--body", "none").lines] == [[]] * 4


def test_ho04_what_is_no_text_is_given_exactly(mq, tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append("t", b"\xff\xfe", properties=b"TAGS\x01\xff\x02")
        store.append("t", b"plain", tags="\ufffd")
        store.append_many([mqstore.Message("t", b"no zlib", sys_flag=1)])
        records = [message.record for message in store.scan()]
    rows = mq("cat", path, "--jsonl").jsonl
    assert base64.b64decode(rows[0]["body_base64"]) == b"\xff\xfe"
    assert rows[0]["tags"] == "\ufffd"
    assert base64.b64decode(rows[0]["record_base64"]) == records[0]
    assert (rows[1]["tags"], "record_base64" in rows[1]) == ("\ufffd", False)
    assert base64.b64decode(rows[2]["raw_body_base64"]) == b"no zlib"
    assert "body" in rows[2]["body_error"]


def test_hb04_cat_shows_people_a_preview_of_a_body(mq, tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS | {"mapped_file_size_commit_log": 65536}) as store:
        store.append("t", b"x" * 10_000)
    assert mq("cat", path).out.endswith("x" * 4096 + " ... (9.8 KiB)\n")
    assert mq("cat", path, "--preview", "1k").out.count("x") == 1024
    assert mq("cat", path, "--json").json[0]["body"] == "x" * 10_000


def test_cat_by_a_template(mq, store):
    template = (
        r"{queue_offset}\t{topic}\t{tags}\t{keys}\t{property:source}\t{property:none}|{{{body}}}"
    )
    ran = mq("cat", store, "-n", 2, "--format", template)
    assert ran.lines == [
        '0\torders\tcreated\torder-0 all\ts0\t|{{"number": 0}}',
        '0\torders\tpaid\torder-0 all\ts1\t|{{"number": 1}}',
    ]
    assert mq("cat", store, "-n", 1, "--format", "{store_time} {born_time}").out == (
        "2023-11-14T22:13:20.000Z 2023-11-14T22:13:19.995Z\n"
    )


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{nothing}", "no such field: {nothing}"),
        ("{topic", "'{' stands alone at 0"),
        ("topic}", "'}' stands alone at 5"),
        ("{topic:x}", "no such field: {topic:x}"),
        ("{topic.__class__}", "stands alone"),
    ],
)
def test_cat_refuses_a_template_that_means_nothing(mq, store, template, complaint):
    assert complaint in mq("cat", store, "--format", template, code=2).err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-q", 0], "-q needs -t"),
        (["-t", "a", "-t", "b", "-q", 0, "-o", 1], "-o with -q needs one -t"),
        (["-t", "a", "--key", "a", "-q", 0], "--key goes with"),
        (["--grep", "("], "not a regular expression"),
        (["--grep", r"(a)\1"], "backreferences are not supported"),
        (["--grep", "(?=a)"], "look-around"),
        (["--grep", "[äö]"], "(?u) in front makes it one of characters"),
        (["--grep", '{"a"'], r"a brace itself is \{"),
        (["-n", 0], "0 is not in the range"),
        (["--from", "yesterday"], "is no time"),
        (["--preview", "much"], "expected bytes"),
        (["--json", "--jsonl"], "exclude each other"),
    ],
)
def test_cat_refuses_what_makes_no_sense(mq, store, options, complaint):
    ran = mq("cat", store, *options, code=2)
    assert complaint in ran.err
    assert ran.out == ""


def test_cat_past_damage(mq, store):
    rows = mq("cat", store, "--json").json
    log = store / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        file.seek(rows[5]["physical_offset"] + 4)
        file.write(b"\0\0\0\0")
    broken = mq("cat", store, "--json", code=1)
    assert numbers(broken) == [0, 1, 2, 3, 4]
    assert re.search(r"00000000000000000000: byte \d+: .*expected .*found ", broken.err)
    advice = "mqstore: --skip-damage goes on behind damage; mqstore doctor lists it"
    assert broken.err.splitlines()[-1] == advice
    skipped = mq("cat", store, "--json", "--skip-damage", code=1)
    assert numbers(skipped) == [0, 1, 2, 3, 4, *range(6, 40)]
    assert "skipped 1 damaged ranges" in skipped.err
    backwards = mq("cat", store, "--json", "--skip-damage", "--reverse", code=1)
    assert numbers(backwards) == [*range(39, 5, -1), 4, 3, 2, 1, 0]


def test_get_by_offset_and_by_id(mq, store):
    row = mq("cat", store, "--json").json[7]
    for which in (row["physical_offset"], row["message_id"], row["message_id"].lower()):
        assert mq("get", store, which, "--json").json == row
    shown = mq("get", store, row["message_id"]).lines
    assert shown[0].split() == ["topic", "audit"]
    assert "store_time                   2023-11-14T22:13:27.000Z" in shown
    assert "property                     source = s2" in shown
    assert shown[-2:] == ["body                         13 bytes", '{"number": 7}']


def test_get_the_body_alone(mq, store):
    assert mq("get", store, 0, "--raw").out == '{"number": 0}'
    assert mq("get", store, 0, "--body", "hex").lines[-1] == (
        '00000000  7b 22 6e 75 6d 62 65 72 22 3a 20 30 7d           {"number": 0}'
    )


@pytest.mark.parametrize(
    "which", ["1", "999999999", "0" * 32, "A0" * 16, "A0" * 28, "zz", "1" * 31]
)
def test_get_what_is_not_there(mq, store, which):
    ran = mq("get", store, which, code=None)
    assert ran.code == (2 if which == "1" * 31 else 1), ran
    assert ran.out == ""
    assert ran.err.startswith(("mqstore: ", "Usage: "))


def test_query_by_key(mq, store, conf):
    ran = mq("query", store, "-t", "orders", "-k", "order-5", "--config", conf, "--json")
    assert ran.json["truncated"] is False
    assert numbers(ran) == [10]
    assert numbers(mq("query", store, "-t", "audit", "-k", "order-5", "--json")) == [11]
    assert numbers(mq("query", store, "-t", "audit", "-k", "U011", "--json")) == [11]
    ran = mq("query", store, "-t", "orders", "-k", "all", "-n", 3, "--json")
    assert (numbers(ran), ran.json["truncated"]) == ([38, 37, 36], True)
    assert "there are more" in ran.err
    assert len(mq("query", store, "-t", "orders", "-k", "order-4").lines) == 2


@pytest.mark.parametrize("which", [0, -1])
def test_o3_a_damaged_index_file_leaves_programs_the_answer(mq, tmp_path, which):
    with mqstore.open(tmp_path, "a", config=SETTINGS | {"max_index_num": 10}) as store:
        for number in range(60):
            store.append("orders", b"%d" % number, keys=f"A-{number}")
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) > 2
    files[which].write_bytes(b"")
    for key in ("A-1", "A-58"):
        ran = mq("query", tmp_path, "-t", "orders", "-k", key, "--json")
        assert [row["keys"] for row in ran.json["messages"]] == [[key]]
        index = ran.json["index"]
        assert index["damaged"]
        assert ("begin_timestamp_ms" in index, "end_timestamp_ms" in index) == (
            which != 0,
            not which,
        )
    ran = mq("query", tmp_path, "-t", "orders", "-k", "none", code=1)
    assert "the first or the last index file is damaged" in ran.err


def test_query_within_times(mq, store):
    ran = mq("query", store, "-t", "orders", "-k", "all", "--from", BEGIN_MS + 36_500, "--json")
    assert numbers(ran) == [38, 37]
    ran = mq("query", store, "-t", "orders", "-k", "all", "--to", BEGIN_MS + 1_000, "--json")
    assert numbers(ran) == [1, 0]


def test_query_as_rocketmq_answers(mq, store, conf):
    options = ["-t", "orders", "-k", "all", "-n", 4, "--config", conf]
    assert numbers(mq("query", store, *options, "--rocketmq", "--json")) == [34, 36, 37, 38]


def test_at_a_time(mq, store):
    options = ["-t", "orders", "-q", 0, "--json"]
    for time, lower, upper in [
        (BEGIN_MS - 1, 0, 0),
        (BEGIN_MS, 0, 0),
        (BEGIN_MS + 3_000, 2, 1),
        ("2023-11-14T22:13:24Z", 2, 2),
        ("-1h", 20, 19),
    ]:
        assert mq("at", store, *options, time).json[0]["queue_offset"] == lower
        ran = mq("at", store, *options, time, "--boundary", "upper")
        assert ran.json[0]["queue_offset"] == upper


def test_at_each_queue_of_a_topic(mq, store):
    ran = mq("at", store, "-t", "orders", BEGIN_MS + 3_000)
    assert ran.lines[0].split() == ["TOPIC", "QUEUE", "TIME", "BOUNDARY", "OFFSET", "MIN", "MAX"]
    assert [line.split()[1] for line in ran.lines[1:]] == ["0", "1"]
    assert [line.split()[4] for line in ran.lines[1:]] == ["2", "1"]


def test_at_where_there_is_no_such_queue(mq, store):
    assert "no queue 7 of topic 'orders'" in mq("at", store, "-t", "orders", "-q", 7, 0, code=1).err
    assert "no topic 'none'" in mq("at", store, "-t", "none", 0, code=1).err


class ReadsLittle:
    """A store whose queries by tags read nothing, as of a log longer than a gibibyte."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def query(self, *_given, **_named):
        return mqstore.QueryResult([], complete=False)


def test_a_query_by_tags_reads_on_where_the_store_stops(store):
    with mqstore.open(store) as opened:
        wanted = [one for one in opened.scan() if one.tags == "paid"]
        for topics in ((), ("orders",)):
            found = query(ReadsLittle(opened), Sought(topics=topics, key=None, tags="paid"), 3)
            expected = [one for one in wanted if not topics or one.topic in topics][-3:][::-1]
            places = [one.physical_offset for one in found]
            assert places == [one.physical_offset for one in expected]
            assert (found.complete, found.truncated) == (True, True)
