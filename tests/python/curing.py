"""Running the commands that are printed as cures."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click

import mqstore
from mqstore.cli import command as commands


def mqstore_commands() -> list[str]:
    return commands.list_commands(click.Context(commands))


def run(command: str) -> str:
    """Runs a printed command as a shell would, with the command beside this interpreter.

    Returns:
        What it printed; it must have ended well.
    """
    words = shlex.split(command)
    assert words[0] == "mqstore"
    if words[1] == "recover" and "recover" not in mqstore_commands():
        # Opening for writing is what it does.
        with mqstore.open(words[2], "r+", config=words[words.index("--config") + 1]):
            return ""
    script = Path(sys.executable).with_name("mqstore")
    done = subprocess.run([script, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout
