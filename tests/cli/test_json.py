"""The output of each command with ``--json`` is that of docs/json.md."""

import json
import re
import shutil

import pytest

import mqstore
from helpers.json_page import mismatches, sections
from mqstore.cli import command

# Held against the page where they are run: tests/cli/test_demo.py; Spark takes too long here,
# and `resend` prints what `replay` does.
ELSEWHERE = {"demo", "pipeline", "resend"}
RUNS = [
    "info STORE",
    "topics STORE",
    "topics STORE --no-bytes",
    "queues STORE",
    "groups STORE",
    "groups -v STORE",
    "cat STORE",
    "cat STORE --body json",
    "tail STORE --body hex",
    "get STORE 0",
    "query STORE -k order-5",
    "query STORE -k none",
    "at STORE -t orders 0",
    "cq STORE -t orders -q 0",
    "cq STORE -t orders -q 0 --check",
    "index STORE",
    "index --entries STORE",
    "index --entries STORE -n 3",
    "checkpoint STORE",
    "config STORE",
    "config STORE --file topics.json",
    "verify STORE",
    "verify BROKEN",
    "stats STORE",
    "stats STORE --by queue_id,minute,day,tags",
    "metrics STORE",
    "doctor STORE",
    "doctor BROKEN",
    "preflight STORE --to 5.5",
    "why STORE -g billing -k order-5",
    "why STORE -g billing -t orders -q 0 -o 99",
    "pending STORE",
    "replay STORE --to 127.0.0.1:1 --rate 10",
    "convert STORE --queues file",
    "recover STORE",
    "recover BROKEN",
    "rebuild STORE",
    "rebuild STORE --what topics",
    "report STORE -o NEW",
    "export STORE NEW",
    "import EXPORT NEW",
    "salvage STORE",
    "salvage BROKEN",
    "copy STORE NEW --redact RULES",
    "diff STORE PART",
    "diff --lost STORE PART",
    "clean STORE --keep-bytes 1",
    "sync STORE NEW",
    "snapshots BACKUP",
    "snapshots --check BACKUP",
    "restore BACKUP NEW",
    "prune BACKUP --keep 7d",
    "sql STORE .tables",
]


@pytest.fixture(scope="module")
def places(made_once, tmp_path_factory):
    """Stores and files that the runs need, by the words that stand for them."""
    folder = tmp_path_factory.mktemp("json")
    store, broken = folder / "store", folder / "broken"
    shutil.copytree(made_once, store)
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{"0":3}}}')
    shutil.copytree(store, broken)
    with (broken / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    mqstore.export_store(store, folder / "export")
    mqstore.copy(store, folder / "part", tags="paid", renumber=True)
    mqstore.sync(store, folder / "backup")
    (folder / "rules.toml").write_text('[[rule]]\nbody = "zeros"\n')
    return {
        "STORE": store,
        "BROKEN": broken,
        "EXPORT": folder / "export",
        "BACKUP": folder / "backup",
        "PART": folder / "part",
        "RULES": folder / "rules.toml",
    }


@pytest.mark.parametrize("words", RUNS)
def test_output_is_as_documented(run, places, tmp_path, words):
    here = places | {"NEW": tmp_path / "new"}
    arguments = [here.get(word, word) for word in words.split()]
    section = " ".join(re.split(" (?:STORE|BROKEN|EXPORT|BACKUP)", words)[0].split())
    code, out, err = run(*arguments, "--json")
    assert code in {0, 1}, err
    assert mismatches(section, json.loads(out)) == []


def test_every_command_is_documented():
    names = command.list_commands(None)
    assert set(names) <= set(sections())
    assert {words.split()[0] for words in RUNS} | ELSEWHERE == set(names)
