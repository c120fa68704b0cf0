"""``demo``: written, killed, recovered, asked, verified."""

import runpy
from pathlib import Path

from click.testing import CliRunner

import mqstore
from helpers.json_page import mismatches


def test_demo(mq, tmp_path):
    folder = tmp_path / "kept"
    page = tmp_path / "report.html"
    asked = ("--messages", 3000, "--dir", folder, "--no-spark", "--report", page)
    ran = mq("demo", *asked, "--json")
    assert mismatches("demo", ran.json) == []
    steps = {step["step"]: step for step in ran.json["steps"]}
    assert list(steps) == [
        *("write", "recover", "read the log", "by queue and tag", "by time", "by key", "verify"),
        "report",
    ]
    assert steps["write"]["count"] >= 3000
    assert steps["read the log"]["count"] >= steps["write"]["count"]
    assert steps["by queue and tag"]["count"] == steps["read the log"]["count"]
    assert steps["verify"]["count"] == steps["read the log"]["count"]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert mq("verify", folder).code == 0
    assert "is not empty" in mq("demo", "--dir", folder, code=2).err


def test_demo_shows_people_a_table_and_rocketmqs_own_store(mq, rocketmq_archive):
    ran = mq("demo", "--messages", 1000, "--no-spark", "--rocketmq-store", rocketmq_archive)
    assert ran.lines[0].split() == ["STEP", "COUNT", "TIME", "RATE", "BYTES"]
    assert ran.lines[9].startswith("every answer as written; ")
    assert "  topic TopicTest: 60 messages" in ran.lines
    assert any(line.startswith("  by key, TopicTest ") for line in ran.lines)


def test_demo_of_a_wheel_says_where_its_program_is(monkeypatch, tmp_path):
    door = Path(mqstore.__file__).with_name("cli") / "commands" / "demo.py"
    monkeypatch.setattr(mqstore, "__file__", str(tmp_path / "site-packages/mqstore/__init__.py"))
    command = runpy.run_path(str(door))["demo_command"]
    ran = CliRunner().invoke(command, ["--messages", "10"])
    assert ran.exit_code == 2
    assert "make demo" in ran.output
