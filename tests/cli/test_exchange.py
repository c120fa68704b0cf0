"""The commands that move messages: export, import, copy, diff, salvage."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import mqstore


def test_export_and_import_give_the_same_store(mq, store, conf, tmp_path):
    for form in ("jsonl", "parquet", "arrow"):
        out, back = tmp_path / form, tmp_path / f"{form}-back"
        ran = mq("export", store, out, "--format", form, "--config", conf, "--json")
        assert (ran.json["messages"], ran.json["complete"]) == (40, True)
        assert mq("import", out, back, "--json").json["in_place"]
        assert mq("diff", store, back).out == "all 40 messages in 3 queues are the same\n"
        assert mq("verify", back, "--config", conf).code == 0
    assert "config files    topics.json\n" in mq("export", store, tmp_path / "text").out


def test_export_ends_at_damage_skips_or_reports_it(mq, store, conf, tmp_path):
    (log,) = (store / "commitlog").glob("00000000000000000000")
    with mqstore.open(store) as opened:
        third = list(opened.scan())[2]
    with log.open("r+b") as file:
        file.seek(third.physical_offset + 4)
        file.write(b"????")
    ran = mq("export", store, tmp_path / "none", "--config", conf, code=1)
    assert f"physical offsets {third.physical_offset} to " in ran.err
    assert not (tmp_path / "none").exists()
    for options in (("--skip-damage",), ("--on-error", "skip")):
        out = tmp_path / options[-1]
        ran = mq("export", store, out, *options, "--config", conf, "--json", code=1)
        assert (ran.json["messages"], ran.json["skipped_ranges"]) == (39, 1)
        assert "`mqstore verify` lists them" in ran.err
        assert not (out / "damage.jsonl").exists()
    out = tmp_path / "out"
    ran = mq("export", store, out, "--on-error", "report", "--config", conf, "--json", code=1)
    assert f"`{out}/damage.jsonl` lists them" in ran.err
    (damage,) = map(json.loads, (out / "damage.jsonl").read_text().splitlines())
    assert damage["physical_offset"] == third.physical_offset
    assert damage["length"] == ran.json["skipped_bytes"] == third.store_size
    assert mq("import", out, tmp_path / "back", "--json").json["messages"] == 39


def test_copy_takes_what_was_asked_for(mq, store, conf, tmp_path):
    ran = mq("copy", store, tmp_path / "out", "-t", "audit", "--config", conf, "--json")
    assert (ran.json["messages"], ran.json["left_out"]) == (10, 30)
    ran = mq("diff", store, tmp_path / "out", "--jsonl", code=1)
    assert {(row["kind"], row["topic"]) for row in ran.jsonl} == {("missing", "orders")}
    assert len(ran.jsonl) == 30
    ran = mq("diff", store, tmp_path / "out", code=1)
    assert "missing  orders" in ran.out
    ran = mq("copy", store, tmp_path / "few", "--key", "order-3", "--renumber", "--json")
    assert ran.json["messages"] == 2


def test_redact(mq, store, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nbody = "zeros"\n')
    assert mq("copy", store, tmp_path / "out", "--redact", rules, "--json").json["redacted"] == 40
    rules.write_text('[[rule]]\nbody = "ones"\n')
    ran = mq("copy", store, tmp_path / "other", "--redact", rules, code=2)
    assert "rule 1: body: expected" in ran.err
    rules.write_text("[[")
    assert "rules.toml" in mq("copy", store, tmp_path / "other", "--redact", rules, code=2).err
    ran = mq("copy", store, tmp_path / "other", "--redact", tmp_path / "none", code=5)
    assert "No such file" in ran.err


def test_salvage_looks_first_and_then_writes(mq, store, tmp_path):
    ran = mq("salvage", store)
    assert "40 whole messages" in ran.out
    assert "--out DIR" in ran.err
    with mqstore.open(store) as opened:
        third = list(opened.scan())[2]
    log = min((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(third.physical_offset + 95)
        file.write(b"?")
    ran = mq("salvage", store, "--json", code=1)
    assert (ran.json["messages"], ran.json["missing"]) == (39, 1)
    assert "it needs about 8.0 MiB, " in ran.err
    (command,) = ran.json["next"]
    ran = mq(*shlex.split(command)[1:], "--json")
    assert (ran.json["renumbered"], ran.json["stand_ins"]) == ([], 1)
    taken = [path.stat().st_blocks * 512 for path in Path(f"{store}.salvaged").rglob("*")]
    assert sum(taken) <= ran.json["space_bytes"]
    doctor, *moves = ran.json["next"]
    mq(*shlex.split(doctor)[1:])
    for move in moves:
        subprocess.run(move, shell=True, check=True)
    assert mq("verify", store).code == 0
    ran = mq("cat", store)
    assert "1 stand in for lost messages" in ran.err
    assert ran.out.count("stand-in=for a lost message") == 1
    assert "1 stand in for lost messages: consumers get them" in mq("stats", store).err
    assert "1 stand in for lost messages: consumers get them" in mq("info", store).out
    assert mq("info", store, "--json").json["stand_ins"] == 1
    # A folder of an earlier salvage is not taken for the one that was put aside.
    ran = mq("salvage", store, "--out", tmp_path / "again", "--json")
    assert f"{store}.damaged-" in ran.json["next"][1]
    ran = mq("salvage", f"{store}.damaged", "--out", tmp_path / "text")
    assert "1 queue offsets have no message; 1 stand-ins keep the others' offsets" in ran.out
    assert f"next: mqstore doctor {tmp_path / 'text'} ; test -n " in ran.err


def test_mistakes_have_their_codes(mq, store, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("x")
    for command in (
        ("export", store, tmp_path / "there"),
        ("copy", store, tmp_path / "there"),
        ("salvage", store, "--out", tmp_path / "there"),
        ("import", tmp_path / "none", tmp_path / "new"),
    ):
        mq(*command, code=5)
    for command in (
        ("export", tmp_path / "none", tmp_path / "new"),
        ("copy", tmp_path / "none", tmp_path / "new"),
        ("salvage", tmp_path / "none"),
        ("diff", store, tmp_path / "none"),
    ):
        mq(*command, code=3)
    for command in (
        ("import", tmp_path / "there", tmp_path / "new"),
        ("import", tmp_path / "there" / "x", tmp_path / "new"),
        ("export", store, tmp_path / "new", "--format", "csv"),
        ("salvage", store, "--out", store / "new"),
        ("copy", store, store / "new"),
        ("export", store, store / "new"),
    ):
        mq(*command, code=2)
    assert not (tmp_path / "new").exists()
    assert not (store / "new").exists()


def test_a_store_in_use_is_read_all_the_same(mq, store, conf, tmp_path):
    with mqstore.open(store, "r+", config=str(conf)):
        assert mq("export", store, tmp_path / "out", "--json").json["messages"] == 40
        assert mq("copy", store, tmp_path / "copy", "--json").json["messages"] == 40
        assert mq("salvage", store, "--json").json["messages"] == 40
