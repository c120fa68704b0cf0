"""Names that are not in a store are refused with the nearest ones; -t may be repeated."""

import json

import pytest

import mqstore
from helpers.running import SETTINGS


@pytest.mark.parametrize(
    "command",
    [
        ["cat", "-t", "ordres"],
        ["tail", "-t", "ordres"],
        ["query", "-t", "ordres", "-k", "all"],
        ["queues", "-t", "ordres"],
        ["stats", "-t", "ordres"],
        ["at", "-t", "ordres", "0"],
        ["cq", "-t", "ordres", "-q", "0"],
        ["index", "-t", "ordres", "--chain", "all"],
        ["rebuild", "-t", "ordres"],
        ["export", "NEW", "-t", "ordres"],
        ["copy", "NEW", "-t", "ordres"],
    ],
    ids=lambda command: command[0],
)
def test_a_topic_that_is_not_there(run, made_once, tmp_path, command):
    name, *options = (str(tmp_path / "new") if word == "NEW" else word for word in command)
    code, out, err = run(name, made_once, *options)
    assert (code, out) == (1, "")
    assert f"no topic 'ordres' in {made_once}; did you mean 'orders'?" in err
    assert list(tmp_path.iterdir()) == []


def test_a_queue_a_group_and_a_key_that_are_not_there(run, made_once, store):
    for command in ("cat", "tail", "at", "cq"):
        code, out, err = run(command, made_once, "-t", "orders", "-q", 7, *["0"][: command == "at"])
        assert (code, out) == (1, "")
        assert "no queue 7 of topic 'orders'" in err
        assert "there are 0, 1" in err
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{"0":3}}}')
    assert run("groups", store, "-g", "biling")[0] == 1
    assert "no group 'biling'" in run("groups", store, "-g", "biling")[2]
    assert "did you mean 'billing'" in run("groups", store, "-g", "biling")[2]
    assert run("groups", store, "-g", "billing")[0] == 0
    for command in (["query", "-k"], ["cat", "--key"]):
        code, out, err = run(command[0], made_once, command[1], "oder-5")
        assert (code, out) == (1, "")
        assert "no message with key 'oder-5'" in err
        assert "did you mean 'order-5'" in err
    code, _, err = run("index", made_once, "-t", "orders", "--chain", "order-5x")
    assert (code, "no entry of key 'orders#order-5x'" in err) == (1, True)


def test_a_topic_that_only_the_log_or_the_table_has_is_there(run, store):
    (store / "config/topics.json").write_text('{"topicConfigTable":{"empty":{}}}')
    assert run("cat", store, "-t", "empty") == (0, "", "")
    assert run("tail", store, "-t", "soon", "--allow-empty") == (0, "", "")


def test_several_topics_are_repeated_and_commas_mean_nothing(run, made_once):
    both = ["-t", "orders", "-t", "audit"]
    for command, count in (("cat", 40), ("queues", 3), ("stats", 2), ("at", 3)):
        code, out, _ = run(command, made_once, *both, "--json", *["0"][: command == "at"])
        assert (code, len(json.loads(out))) == (0, count), command
    assert len(json.loads(run("tail", made_once, *both, "-n", 9, "--json")[1])) == 9
    rows = json.loads(run("cat", made_once, *both, "-q", "1", "--json")[1])
    assert {(row["topic"], row["queue_id"]) for row in rows} == {("orders", 1)}
    code, _, err = run("cat", made_once, "-t", "orders,audit")
    assert (code, "several topics are -t orders -t audit" in err) == (1, True)


def test_a_key_is_found_in_every_topic_by_unique_key_and_by_message_id(run, made_once):
    def found(*options):
        code, out, _ = run("query", made_once, "--json", *options)
        return code, [json.loads(row["body"])["number"] for row in json.loads(out)["messages"]]

    assert found("-k", "order-5") == (0, [11, 10])
    assert found("-k", "order-5", "-t", "audit", "-t", "orders") == (0, [11, 10])
    assert found("-k", "U011") == (0, [11])
    with mqstore.open(made_once) as opened:
        ids = [message.message_id for message in opened.scan()]
    assert found("-k", ids[7]) == (0, [7])
    assert found("-k", "order-5", "--from", "2030-01-01") == (1, [])
    err = run("query", made_once, "-k", "order-5", "--from", "2030-01-01")[2]
    assert "2 of its messages are outside of --from and --to" in err
    assert "the index reaches from 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:59.000Z" in err


def test_a_key_is_read_from_the_log_where_there_is_no_index(run, store):
    for file in (store / "index").iterdir():
        file.unlink()
    code, out, _ = run("query", store, "-k", "order-5", "--json")
    assert (code, len(json.loads(out)["messages"])) == (0, 2)
    code, _, err = run("query", store, "-k", "order-99")
    assert (code, "the log was read instead" in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--tags", "payed"], "no message in"),
        (["--key", "order-5", "--key", "oder-6"], "no message with key 'oder-6'"),
        (["--redact", "RULES"], "topics: 'oders' matches no topic; did you mean 'orders'?"),
        (["--redact", "RULES"], "properties: 'sorce' is in no message; did you mean 'source'?"),
    ],
)
def test_a_copy_that_matches_nothing_is_refused_before_it_is_written(
    run, made_once, tmp_path, options, text
):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\ntopics = ["oders"]\nbody = "zeros"\n[[rule]]\nproperties = {sorce = "zeros"}\n'
    )
    asked = ["copy", made_once, tmp_path / "new", *options]
    asked = [rules if option == "RULES" else option for option in asked]
    code, out, err = run(*asked)
    assert (code, out) == (1, "")
    assert text in err
    assert "nothing was written, --allow-empty goes on" in err
    assert list(tmp_path.iterdir()) == [rules]
    assert run(*asked, "--allow-empty")[0] == 0


@pytest.mark.parametrize("default", [None, "zeros", "drop"])
def test_a_redacted_copy_lists_what_was_left_as_it_is(run, made_once, tmp_path, default):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\ntopics = ["or*"]\nbody = "hash"\nproperties = {KEYS = "hash"}\n')
    asked = ["copy", made_once, tmp_path / "new", "--redact", rules]
    code, out, _ = run(*asked, *(["--redact-default", default] if default else []), "--json")
    left = {row["topic"]: row for row in json.loads(out)["left_as_is"]}
    assert code == 0
    with mqstore.open(tmp_path / "new", config=SETTINGS) as copied:
        message = next(copied.scan(topics=["audit"]))
    if default is None:
        assert left["audit"]["bodies"] == 10
        assert left["audit"]["properties"] == ["KEYS", "TAGS", "UNIQ_KEY", "source"]
        assert (left["orders"]["bodies"], left["orders"]["messages"]) == (0, 30)
        assert left["orders"]["properties"] == ["TAGS", "UNIQ_KEY", "source"]
        assert message.properties["source"] == "s3"
    else:
        assert {tuple(row["properties"]) for row in left.values()} == {("UNIQ_KEY",)}
        assert message.body == (b"" if default == "drop" else bytes(13))
        assert message.properties.get("source") == (None if default == "drop" else "00")


@pytest.mark.parametrize("form", [[], ["--json"], ["--jsonl"]])
@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["cat", "--tags", "none"], "--tags matches"),
        (["cat", "-t", "orders", "-q", "0", "--tags", "none"], "--tags matches"),
        (["cat", "--grep", "none", "--from", "2030-01-01"], "--grep and --from match"),
        (["cat", "-t", "orders", "-q", "0", "-o", "99"], "--offset matches"),
        (["tail", "--tags", "none"], "--tags matches"),
        (["tail", "--grep", "none"], "--grep matches"),
        (["stats", "--tags", "none"], "--tags matches"),
        (["stats", "--to", "1999-01-01"], "--to matches"),
    ],
    ids=str,
)
def test_a_filter_that_matches_nothing_says_so(run, made_once, command, named, form):
    name, *options = command
    empty = "[]\n" if form == ["--json"] else ""
    code, out, err = run(name, made_once, *options, *form)
    assert (code, out) == (1, empty)
    assert f"mqstore: {named} no message in {made_once}" in err
    assert run(name, made_once, *options, *form, "--allow-empty") == (0, empty, "")
    assert "no message" in run(name, "-h")[1]


def test_a_chain_that_is_cut_before_the_key_says_so(run, made_once):
    options = ["index", made_once, "-t", "orders", "--chain"]
    code, out, err = run(*options, "nothing", "-n", 1)
    assert (code, len(out.splitlines())) == (1, 2)
    assert "none of the first 1 entries is of key 'orders#nothing'; leave out -n" in err
    code, _, err = run(*options, "nothing", "-n", 1000)
    assert (code, "no entry of key 'orders#nothing' in the index" in err) == (1, True)
    assert run(*options, "order-0", "-n", 1000)[0] == 0
