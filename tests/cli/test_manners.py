"""Exit codes, pipes, interrupts, terminals."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import mqstore
from helpers.running import SETTINGS, command_line, environment, messages, on_terminal
from mqstore.cli import command, main


def test_not_a_store(mq, tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        ran = mq("info", path, code=3)
        assert str(path) in ran.err
        assert ran.out == ""
    file = tmp_path / "file"
    file.write_text("")
    mq("info", file, code=3)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(store, closed):
    command_text = shlex.join([*command_line(), "cat", str(store), "-n", "2"])
    done = subprocess.run(
        ["sh", "-c", f"{command_text} {closed}"], capture_output=True, env=environment(), check=True
    )
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == (0 if ">&-" in closed.split() else 2)


def test_usage(mq, store):
    for arguments in ([], ["nonsense"], ["cat"], ["cat", store, "--nonsense"], ["at", store, "0"]):
        ran = mq(*arguments, code=2)
        assert "Usage: mqstore" in ran.err
        assert ran.out == ""


def test_settings_that_cannot_be_are_usage(mq, store, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("keep_hours=none\n")
    assert "keep_hours" in mq("info", store, "--config", conf, code=2).err
    conf.write_text("mappedFileSizeCommitLog=8192\n")
    refused = mq("info", store, "--config", conf, code=2).err
    assert "8192" in refused
    assert "4096" in refused


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("prune backup --keep 7 --apply", "'--keep': expected a duration such as 30s, 2h or 7d"),
        ("prune backup --keep 99999999999d", "'--keep': expected at most 100000d"),
        ("sync store backup --every 60", "'--every': expected a duration such as 30s"),
        ("sync store backup --every 99999999999d", "'--every': expected at most 100000d"),
        ("sync store backup --every 500ms", "--every: expected 1s or more"),
        ("sync s3://a/b backup", "path: expected a folder of this machine, got the URL s3://a/b"),
        ("restore backup s3://a/b", "path: expected a folder of this machine, got the URL"),
        ("snapshots backup --storage-option a=b", "expected None for a local path"),
    ],
)
def test_words_for_a_backup_that_cannot_be_are_usage(mq, store, tmp_path, command, wrong):
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    places = {"store": store, "backup": backup}
    assert wrong in mq(*(places.get(word, word) for word in command.split()), code=2).err
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "words", ["sql STORE query -o OUT", "report STORE -o OUT", "sync STORE backup --health OUT"]
)
def test_what_is_no_file_is_not_replaced_and_a_link_leads_on(mq, store, tmp_path, words):
    target = tmp_path / "target.csv"
    target.write_text("old")
    out = tmp_path / "link.csv"
    out.symlink_to(target)
    places = {"STORE": store, "OUT": out, "query": "select 1", "backup": tmp_path / "backup"}
    command = [places.get(word, word) for word in words.split()]
    command += [] if "sync" in command else ["--overwrite"]
    mq(*command)
    assert out.is_symlink()
    assert target.read_text() != "old"
    target.unlink()
    os.mkfifo(target)
    # A sync goes on without its health file.
    assert "no regular file" in mq(*command, code=0 if "sync" in command else 5).err
    assert target.is_fifo()
    assert not list(tmp_path.glob(".*"))


def test_names_in_a_broker_conf_that_mean_nothing_are_a_warning(mq, store, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmaxIndexNums=40\n")
    ran = mq("topics", store, "--config", conf)
    assert ran.err == f"mqstore: warning: {conf}: not settings of a store: maxIndexNums\n"


def test_input_and_output(mq, store, tmp_path):
    ran = mq("info", store, "--config", tmp_path / "missing.conf", code=5)
    assert "missing.conf" in ran.err


def test_damage(mq, store):
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    ran = mq("get", store, 0, code=1)
    assert re.search(r"0{20}: byte \d+: body-crc: expected .*found ", ran.err)
    assert ran.out == ""


def test_the_version(mq):
    assert mq("--version").out == f"mqstore, version {mqstore.__version__}\n"


@pytest.mark.parametrize("name", command.list_commands(None))
def test_every_command_has_help(mq, name):
    assert f"\n  {name} " in mq("--help").out
    shown = mq(name, "--help").out
    assert shown.startswith(f"Usage: mqstore {name} ")
    assert "--json" in shown


def test_a_reader_that_has_seen_enough(made_long):
    process = subprocess.Popen(
        [*command_line(), "cat", made_long],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="[dev-full] Linux has it")
def test_output_that_takes_nothing(made_long):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command_line(), "cat", made_long],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr == b"mqstore: [Errno 28] No space left on device\n"


def test_interrupted(made_long):
    process = subprocess.Popen(
        [*command_line(), "cat", made_long, "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    # More than the pipe holds, so it waits for a reader when the signal comes.
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == b"interrupted"
    assert len(out.splitlines()) < 5_000


@pytest.fixture(scope="session")
def made_long(tmp_path_factory):
    """A store whose listing is longer than a pipe holds."""
    path = tmp_path_factory.mktemp("long") / "store"
    with mqstore.open(
        path, "a", config=SETTINGS | {"mapped_file_size_commit_log": 1 << 20}
    ) as store:
        store.append_many(mqstore.Message("t", b"x" * 200) for _ in range(5_000))
    return path


def test_a_store_in_use_is_read_all_the_same(mq, store):
    with mqstore.open(store, "r+", config=SETTINGS) as opened:
        opened.append("orders", b"new")
        opened.flush()
        assert len(mq("cat", store, "--jsonl").jsonl) == len(messages()) + 1


def test_a_terminal_gets_a_table_and_no_colour_is_respected(store):
    code, out, _ = on_terminal(["topics", str(store)], COLUMNS="120")
    assert code == 0
    assert b"\x1b[1m" in out
    code, out, _ = on_terminal(["topics", str(store)], COLUMNS="20")
    assert code == 0
    assert b"\x1b" not in out  # too narrow to set, so the terminal breaks the lines
    code, out, err = on_terminal(["topics", str(store)], NO_COLOR="1")
    assert code == 0
    assert b"\x1b" not in out
    assert b"orders" in out
    assert err == b""


def test_progress_is_for_a_terminal_only(store, conf):
    code, out, err = on_terminal(["verify", str(store), "--config", str(conf)])
    assert code == 0
    assert b"verifying" in err
    assert b"verifying" not in out


def test_output_is_utf8_or_spelt_out(store):
    with mqstore.open(store, "r+", config=SETTINGS) as opened:
        opened.append("orders", "東京".encode())
    done = subprocess.run(
        [*command_line(), "cat", str(store), "--reverse", "-n", "1", "--format", "{body}"],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=True,
    )
    assert done.stdout == b"\\u6771\\u4eac\n"
    assert json.loads(b'"' + done.stdout.strip() + b'"') == "東京"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (mqstore.ConfigError("no", "max_index_num"), 2),
        (mqstore.InvalidMessageError("no", "topic", "MESSAGE_ILLEGAL"), 2),
        (mqstore.NotAStoreError("no", "/a", "no"), 3),
        (mqstore.UnsupportedError("no", "no", "/a"), 3),
        (mqstore.StoreLockedError("no", "/a", 1), 4),
        (mqstore.StoreIOError("no", 5, "/a", "read"), 5),
        (mqstore.StorePoisonedError("no", "/a", "EIO"), 5),
        (PermissionError(13, "Permission denied", "/a"), 5),
        (mqstore.CorruptionError("no", "/a", 0, "size", "1", "2"), 1),
        (mqstore.MessageNotFoundError("no"), 1),
        (mqstore.NotDispatchedError("no", "/a", 0, 1, 2), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code(monkeypatch, capsys, error, code):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(mqstore, "open", fail)
    assert main(["topics", "/a"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1] == ("interrupted" if code == 130 else f"mqstore: {error}")


def test_a_pager_that_is_no_command_is_not_used(made_long):
    code, out, err = on_terminal(["topics", str(made_long)], MQSTORE_PAGER="less 'x")
    assert (code, b"TOPIC" in out, b"Traceback" in err) == (0, True, False)


def test_a_missing_choice_lists_the_choices_in_lines(run, made_once):
    code, _, err = run("preflight", made_once)
    assert (code, "\\t" in err) == (2, False)
    assert "5.5" in err
