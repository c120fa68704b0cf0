"""The manners that every command has, whatever it does: api and exit codes, pipes, terminals."""

import json
import subprocess

import click
import pytest

import mqstore
from helpers.running import command_line, environment, on_terminal
from mqstore.cli import command, main

NAMES = command.list_commands(None)
# Works on no store that it is given, and takes its time.
ALONE = {"demo"}
# Values for required parameters; a store by default.
VALUES = {
    "which": "0",
    "time": "0",
    "topic": "orders",
    "topics": "orders",
    "queue_id": "0",
    "key": "order-5",
    "group": "billing",
    "to": "5.5",
    "keep": "7d",
}
# Commands of a backup, which the store gets.
OF_BACKUPS = {"snapshots", "restore", "prune"}
# Parameters that name something new.
NEW = {"out", "target", "out_html", "output"}


def get(name):
    found = command.get_command(None, name)
    assert isinstance(found, click.Command)
    return found


def options(name):
    return {opt for param in get(name).params for opt in param.opts}


def arguments(name, store, folder, conf=None):
    """The least that the command must be given to work on a store."""
    given = [name, "--config", str(conf)] if conf and "--config" in options(name) else [name]
    for param in get(name).params:
        if not param.required:
            continue
        if name in OF_BACKUPS and param.name == "target":
            value = str(store)
            if (store / "commitlog").is_dir():
                value = str(folder / f"backup-{name}")
                mqstore.sync(store, value)
        elif name == "restore" and param.name == "store":
            value = str(folder / f"new-{len(list(folder.iterdir()))}")
        elif param.name in NEW or (name == "import" and param.name in {"store", "path"}):
            value = str(folder / f"new-{name}.html")
        else:
            value = VALUES.get(param.name, str(store))
        given += [value] if isinstance(param, click.Argument) else [param.opts[-1], value]
    if name == "convert":
        return [*given, "--queues", "file"]
    if name == "sql":
        return [*given, "from topics"]
    # They take one of several options.
    return [*given, "--key", VALUES["key"]] if name in {"query", "why"} else given


@pytest.fixture
def store(store):
    """A store with a consumer group."""
    offsets = '{"offsetTable":{"orders@billing":{"0":3,"1":3}}}'
    (store / "config/consumerOffset.json").write_text(offsets)
    return store


WORKING = [name for name in NAMES if name not in ALONE]
# A command that reads what another wrote has nothing to read in a store; a plan asks a cluster.
READING = [name for name in WORKING if name not in {"import", "pipeline", "replay", "resend"}]


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_it_does_and_takes(capsys, name):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(f"Usage: mqstore {name} ")
    assert "\x1b" not in shown.out
    # Each option says what it is for.
    for param in get(name).params:
        if isinstance(param, click.Option):
            assert param.help, param.name
    assert get(name).get_short_help_str(), "a line in the list of commands"


@pytest.mark.parametrize("name", NAMES)
def test_a_senseless_option_is_usage(capsys, name):
    for wrong in ([name, "--nonsense"], [name, *["x"] * 9]):
        assert main(wrong) == 2, wrong
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"Usage: mqstore {name} " in shown.err
        assert f"Try 'mqstore {name} --help' for help." in shown.err


@pytest.mark.parametrize("name", READING)
def test_a_folder_that_is_no_store_is_said_in_one_line(capsys, tmp_path, name):
    (tmp_path / "folder").mkdir()
    assert main(arguments(name, tmp_path / "folder", tmp_path)) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("mqstore: ")
    assert shown.err.count("\n") == 1
    assert str(tmp_path / "folder") in shown.err


@pytest.mark.parametrize("name", [name for name in READING if "--json" in options(name)])
def test_programs_get_json_and_people_text(capsys, store, conf, tmp_path, name):
    asked = arguments(name, store, tmp_path, conf)
    for number, form in enumerate(("--json", "--jsonl", None)):
        # Output must be gone before it is written again.
        again = [part.replace("new-", f"new{number}-") for part in asked]
        code = main([*again, *([form] if form else [])])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        assert "\x1b" not in shown.out + shown.err
        if form == "--json":
            assert isinstance(json.loads(shown.out), list | dict)
        if form == "--jsonl":
            assert all(isinstance(json.loads(line), dict) for line in shown.out.splitlines())
    assert main([*asked, "--json", "--jsonl"]) == 2


@pytest.mark.parametrize("name", READING)
def test_a_reader_that_has_gone_is_no_error(store, conf, tmp_path, name):
    process = subprocess.Popen(
        [*command_line(), *arguments(name, store, tmp_path, conf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=60) == 0, err
    assert not {"Traceback", "Broken pipe", "Exception"} & set(err.replace(":", " ").split())


@pytest.mark.parametrize("name", READING)
def test_no_colour_means_none(store, conf, tmp_path, name):
    asked = arguments(name, store, tmp_path, conf)
    code, out, _ = on_terminal(asked, NO_COLOR="1", COLUMNS="200")
    assert code == 0
    assert b"\x1b" not in out
