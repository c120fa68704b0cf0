"""The prompt of ``mqstore sql``: history, completion, queries that end with a semicolon."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.output import note
from mqstore.database.tables import TABLES, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore.database import Session

_HELP = """\
select ...;        a query; it ends with a semicolon and may have many lines
explain select ...;  which conditions reach the store, and what is read
.tables            the tables
.schema [TABLE]    columns with type and meaning
.help              this
.quit              leave; Ctrl-D too. Ctrl-C ends a query.
"""
_WORDS = (".tables", ".schema", ".help", ".quit", *TABLES, "messages_text")
_KEYWORDS = "select from where group by order limit explain describe join using having count"


def prompt(session: Session, show: Callable[[str], object]) -> None:
    """Reads queries and shows their rows until the end of the input."""
    columns = {name for table in TABLES for name in columns_of(table)}
    with suppress(ModuleNotFoundError):
        _set_up({*_WORDS, *columns, *_KEYWORDS.split()})
    note(f"{len(session.stores.paths)} stores; .help helps, .tables and .schema list what there is")
    text = ""
    while True:
        try:
            line = input("...> " if text else "sql> ")
        except EOFError:
            note("")
            return
        except KeyboardInterrupt:
            note("")
            text = ""
            continue
        text += f"{line}\n"
        words = text.split()
        if words[:1] in (["."], [".quit"], [".exit"], ["quit"], ["exit"]):
            return
        if words[:1] == [".help"]:
            for one in _HELP.splitlines():
                note(one)
        elif words and (words[0].startswith(".") or words[-1].endswith(";")):
            _run(text, show)
        elif words:
            continue
        text = ""


def _run(text: str, show: Callable[[str], object]) -> None:
    try:
        show(text)
    except KeyboardInterrupt:
        note("interrupted")
    except click.ClickException as error:
        note(f"mqstore: {error.format_message()}")
    except (mqstore.StoreError, OSError) as error:
        note(f"mqstore: {error}")


def _set_up(words: set[str]) -> None:
    """Completion and history by readline, where Python has it."""
    import atexit
    import readline

    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    history = Path(state, "mqstore", "sql_history")

    def complete(begin: str, number: int) -> str | None:
        found = sorted(word for word in words if word.startswith(begin.lower()))
        return found[number] if number < len(found) else None

    def save() -> None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
            history.chmod(0o600)

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()=,;")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1000)
    atexit.register(save)
