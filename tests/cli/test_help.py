"""Help, examples, suggestions and the pager."""

import contextlib
import os
import pty
import shlex
import subprocess
import sys
from itertools import takewhile

import click
import pytest

from helpers.running import command_line, environment, read_terminal
from mqstore.cli import command


class _NoFileError(Exception):
    """A file of an example is not here."""


def _make_context(found, words):
    try:
        found.make_context(found.name, words)
    except click.BadParameter as error:
        if "does not exist" in error.message:
            raise _NoFileError from error
        raise


NAMES = command.list_commands(None)


def test_help_has_three_forms(run):
    whole = run("--help")[1]
    assert run("-h")[1] == run("help")[1] == whole
    assert "_MQSTORE_COMPLETE=bash_source" in whole
    assert run("cat", "-h")[1] == run("cat", "--help")[1]
    assert run("help", "cat")[1].startswith("Usage: mqstore cat ")
    assert run("help", "caat")[0] == 2


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_two_examples_that_parse(run, name):
    shown = run(name, "--help")[1]
    examples = shown.split("\nExamples:\n" if "\nExamples:\n" in shown else "Examples:\n")[1]
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    assert len(lines) == 2
    for line in lines:
        words = list(takewhile(lambda word: word not in {"|", ">"}, shlex.split(line)))
        assert words[:2] == ["mqstore", name]
        found = command.get_command(None, name)
        # The only thing that may be wrong with it is a file that is not here.
        with contextlib.suppress(_NoFileError):
            _make_context(found, words[2:])


def test_help_without_docstrings_has_no_empty_part(monkeypatch):
    found = command.get_command(None, "cat")
    monkeypatch.setattr(found, "help", None)
    monkeypatch.setattr(found, "epilog", None)
    monkeypatch.setattr(found, "params", [])
    again = command.get_command(None, "cat")
    assert again is found
    assert "Examples" not in found.get_help(click.Context(found))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["quer", "x"], "did you mean 'query'"),
        (["topic"], "did you mean 'topics'"),
        (["cat", "x", "--topc", "a"], "--topic"),
    ],
)
def test_a_slip_is_answered_with_what_may_be_meant(run, words, meant):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert meant in err


def test_a_missing_package_is_named_with_the_exact_extra(run, made_once, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "mqstore.metrics", raising=False)
    code, out, err = run("metrics", made_once)
    assert (code, out) == (2, "")
    assert "pip install 'mqstore[metrics]'" in err


def on_screen(arguments, **more):
    """Runs the command with all three streams on a terminal of ten lines; what it showed."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*command_line(), *map(str, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment(TERM="xterm", NO_COLOR="1", LINES="10", COLUMNS="200", **more),
    )
    os.close(child)
    output = read_terminal(parent)
    assert process.wait(timeout=60) == 0
    return output.decode().splitlines()


def test_long_output_on_a_terminal_goes_through_a_pager(made_once):
    pager = "sed s/^/paged:/"
    shown = on_screen(["cat", made_once, "--body", "none"], MQSTORE_PAGER=pager)
    assert sum(line.startswith("paged:") for line in shown) == 40
    short = on_screen(["cat", made_once, "-n", 5], MQSTORE_PAGER=pager)
    assert len(short) == 5
    for options, environ in (
        (["--no-pager"], {"MQSTORE_PAGER": pager}),
        ([], {"MQSTORE_PAGER": ""}),
        ([], {"PAGER": "cat"}),
    ):
        shown = on_screen(["cat", made_once, *options], **environ)
        assert len(shown) == 40
        assert not any("paged:" in line for line in shown)


def test_output_into_a_pipe_is_never_paged(mq, made_once):
    ran = mq("cat", made_once, MQSTORE_PAGER="false")
    assert len(ran.lines) == 40
