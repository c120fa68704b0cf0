"""``recover``: says what opening for writing would do, and does it when told."""

import os
import signal
import subprocess
import sys

import mqstore
from helpers.running import SETTINGS


def damaged(mq, store, number):
    place = mq("cat", store, "--json").json[number]
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(place["physical_offset"] + 90)
        byte = file.read(1)[0]
        file.seek(place["physical_offset"] + 90)
        file.write(bytes([byte ^ 1]))
    return place["physical_offset"]


def files(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_nothing_to_do(mq, store, conf):
    before = files(store)
    ran = mq("recover", store, "--config", conf)
    assert "cleanly closed" in ran.out
    assert ran.out.endswith("nothing to do\n")
    assert files(store) == before
    said = mq("recover", store, "--config", conf, "--json").json
    assert (said["mode"], said["applied"], said["cut"], said["rebuilt"]) == ("clean", False, 0, [])


def test_rc10_damage_is_told_with_what_helps(mq, store, conf):
    at = damaged(mq, store, 5)
    before = files(store)
    said = mq("recover", store, "--config", conf, "--json", code=1).json
    assert said["end_physical_offset"] == at
    assert said["messages_beyond"] == 34
    assert len(said["quarantined_messages"]) == 34
    assert "checksum" in said["damage"]
    shown = mq("recover", store, "--config", conf, code=1).out
    assert "whole messages beyond: 34" in shown
    assert "`mqstore salvage` copies every whole message" in shown
    assert files(store) == before
    refused = mq("recover", store, "--config", conf, "--apply", code=None)
    assert refused.code != 0
    assert "34 whole messages lie beyond" in refused.err
    assert {path.name: files(store)[path] for path in before} == {
        path.name: data for path, data in before.items()
    }
    done = mq("recover", store, "--config", conf, "--apply", "--drop-beyond", "--json").json
    assert (done["applied"], done["cut"], done["quarantined_count"]) == (True, said["cut"], 34)
    assert len(mq("cat", store, "--json").json) == 5
    (kept,) = (store / "quarantine").iterdir()
    assert str(kept) == done["quarantine"]
    assert mq("recover", store, "--config", conf).out.endswith("nothing to do\n")
    assert mq("verify", store, "--config", conf).code == 0


def test_an_impossible_call_is_refused(mq, store, conf, tmp_path):
    with mqstore.open(store, "r+", config=conf):
        for more in ((), ("--apply",)):
            assert mq("recover", store, "--config", conf, *more, code=4).out == ""
    assert "no folder `commitlog`" in mq("recover", tmp_path, code=3).err
    first = store / "commitlog" / f"{0:020}"
    first.rename(first.with_name(f"{1:020}"))
    said = mq("recover", store, "--config", conf, code=1)
    assert "put the missing or whole file back" in said.out


def test_a_dropped_tail_is_reported_until_it_is_put_back(mq, store, conf):
    before = {row["unique_key"] or str(row["keys"]) for row in mq("cat", store, "--json").json}
    damaged(mq, store, 5)
    mq("recover", store, "--config", conf, "--apply", "--drop-beyond")
    (told,) = mq("doctor", store, "--config", conf, "--json", code=1).json["diagnoses"]
    assert told["code"] == "MQ-DOC-15"
    assert told["evidence"][0].endswith(": 34 whole messages")
    listed = mq("recover", store, "--quarantine", "--config", conf, "--json").json
    assert len(listed) == 34
    assert not any(row["in_log"] for row in listed)
    assert told["cure"] == f"mqstore recover {store} --quarantine --apply --config {conf}"
    done = mq("recover", store, "--quarantine", "--apply", "--config", conf, "--json").json
    (folder,) = (store / "quarantine").glob("*.restored")
    assert done == {
        "put_back": 34,
        "in_log": 0,
        "left_out": 0,
        "folders": [str(folder)],
        "unread": [],
    }
    assert mq("doctor", store, "--config", conf, "--json", code=None).json["ok"]
    after = {row["unique_key"] or str(row["keys"]) for row in mq("cat", store, "--json").json}
    assert len(before - after) == 1


def test_files_that_do_not_tell_their_place_are_named_and_not_marked_done(mq, store, conf):
    damaged(mq, store, 5)
    mq("recover", store, "--config", conf, "--apply", "--drop-beyond")
    (folder,) = (store / "quarantine").iterdir()
    pieces = sorted(folder.glob("commitlog-*"))
    moved = [piece.rename(piece.with_name(f"commitlog-9{piece.name[11:]}")) for piece in pieces]
    packed = folder / f"commitlog-{0:020}.gz"
    packed.write_bytes(b"x")
    given = ("recover", store, "--quarantine", "--config", conf)
    listed = mq(*given, "--json", code=1)
    assert listed.json == []
    foreign = sorted(map(str, [*moved, packed]))
    assert all(path in listed.err for path in foreign)
    told = mq(*given, "--apply", "--json", code=1).json
    assert (told["put_back"], told["folders"]) == (0, [])
    assert sorted(told["unread"]) == foreign
    # Under their own names they come back.
    for piece, elsewhere in zip(pieces, moved, strict=True):
        elsewhere.rename(piece)
    packed.unlink()
    assert mq(*given, "--apply", "--json").json["put_back"] == 34


KILLED = """
import os, signal, sys
import mqstore
from mqstore.cli.quarantine import put_back

class Killed:
    def __init__(self, store):
        self.store, self.left = store, int(sys.argv[3])
    def __getattr__(self, name):
        return getattr(self.store, name)
    def append_many(self, messages):
        self.store.append_many(messages)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

with mqstore.open(sys.argv[1], "r+", config=sys.argv[2]) as store:
    put_back(sys.argv[1], Killed(store))
"""


def test_putting_back_goes_on_where_it_was_killed(mq, store, conf):
    # Two messages that differ in nothing but their place.
    twins = [mqstore.Message("orders", b"twin", queue_id=0, born_timestamp_ms=1) for _ in range(2)]
    with mqstore.open(store, "r+", config=conf) as opened:
        opened.append_many(twins)
    before = sorted(row["body"] for row in mq("cat", store, "--json").json)
    damaged(mq, store, 5)
    mq("recover", store, "--config", conf, "--apply", "--drop-beyond")
    done = 0
    for more in (7, 9):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, store, conf, str(more)], env=os.environ, check=False
        )
        assert ran.returncode == -signal.SIGKILL
        done += more
        assert len(mq("cat", store, "--json").json) == 5 + done
    told = mq("recover", store, "--quarantine", "--apply", "--config", conf, "--json").json
    assert (told["put_back"], told["in_log"], told["left_out"]) == (36 - done, done, 0)
    after = sorted(row["body"] for row in mq("cat", store, "--json").json)
    assert len(after) == len(before) - 1
    assert after.count(before[0]) <= before.count(before[0])
    assert mq("doctor", store, "--config", conf, "--json", code=None).json["ok"]


def test_records_in_bodies_and_messages_of_transactions_stay_out(mq, tmp_path, conf):
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SETTINGS) as opened:
        opened.append("orders", b"first", queue_id=0)
        inner = opened.get(opened.append("orders", b"inner", queue_id=0).physical_offset)
        opened.append("orders", b"damaged", queue_id=0)
        # A record in a body, of a message that is damaged itself.
        begin = inner.physical_offset
        data = (root / "commitlog" / f"{0:020}").read_bytes()
        record = data[begin : begin + inner.store_size]
        opened.append("RMQ_SYS_TRANS_HALF_TOPIC", b"half", queue_id=0)
        opened.append("orders", b"x" * 10 + record, queue_id=0)
        opened.append("orders", b"last", queue_id=0)
    places = mq("cat", root, "--json").json
    for number in (2, 4):
        log = root / "commitlog" / f"{0:020}"
        data = bytearray(log.read_bytes())
        data[places[number]["physical_offset"] + 89] ^= 1
        log.write_bytes(data)
    mq("recover", root, "--config", conf, "--apply", "--drop-beyond")
    listed = mq("recover", root, "--quarantine", "--config", conf, "--json").json
    assert [row["topic"] for row in listed] == ["RMQ_SYS_TRANS_HALF_TOPIC", "orders"]
    shown = mq("recover", root, "--quarantine", "--apply", "--config", conf).out
    assert "1 messages put back" in shown
    assert "1 of transactions were left out" in shown
    bodies = [row["body"] for row in mq("cat", root, "--json").json]
    assert bodies == ["first", "inner", "last"]


def test_an_empty_quarantine_is_told(mq, store, conf):
    assert (
        "no messages in the quarantine"
        in mq("recover", store, "--quarantine", "--config", conf).err
    )
