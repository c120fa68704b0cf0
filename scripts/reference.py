"""Write the generated parts of the documentation; with --check only report stale ones.

A part of a page stands between ``<!-- reference: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqstore.cli import command
from mqstore.spark.options import OPTIONS, WRITE_OPTIONS
from mqstore.spark.values import BATCH, LOG, STREAM, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]

HEAD = """\
# Commands

Written from the commands themselves by `make reference`. Data goes to standard output, everything
else to standard error; `--json` gives one document, `--jsonl` one for each row. Commands change
an existing store only with `--apply`.

`-h` and `mqstore help COMMAND` show the help of a command. [JSON output](json.md) lists the fields
that `--json` prints.

TIME is ISO 8601 (`2026-11-21T10:00:00Z`), epoch milliseconds, or relative to now (`-2h`). SIZE is
bytes, or `64k`, `16m`, `1g`. A time without an offset is read, and every time is shown, in the zone
of `--tz`, else of the variable `MQSTORE_TZ`, else of the system. Times carry their offset (`Z` is
UTC), and a table's head names the zone. JSON has milliseconds.

A topic, queue, group or key that is not there is an error: the message names the nearest ones, and
the exit code is 1. Several topics are several `-t`; a comma is part of a name. Output that is
longer than the terminal goes through `MQSTORE_PAGER`, `PAGER` or `less`, never into a pipe or file.

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | findings or damage; or what was asked for is not there |
| 2 | wrong usage |
| 3 | not a store, or one that is not supported |
| 4 | locked by another writer |
| 5 | input or output failed |
| 130 | interrupted |

Completion of commands and options comes with them:

```sh
eval "$(_MQSTORE_COMPLETE=bash_source mqstore)"    # in ~/.bashrc
eval "$(_MQSTORE_COMPLETE=zsh_source mqstore)"     # in ~/.zshrc
_MQSTORE_COMPLETE=fish_source mqstore | source     # in config.fish
```
"""


def commands() -> str:
    """The page of the commands."""
    parts = [HEAD]
    root = click.Context(command, info_name="mqstore", **command.context_settings)
    for name in command.list_commands(root):
        found = command.get_command(root, name)
        if found is None:
            raise SystemExit(f"no command {name}")
        context = click.Context(found, info_name=name, parent=root, max_content_width=100)
        context.terminal_width = 100
        parts.append(f"## {name}\n\n```text\n{found.get_help(context)}\n```\n")
    return "\n".join(parts)


def table(*rows: Iterable[str]) -> str:
    """A Markdown table; its first row is the head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def default(row: Option) -> str:
    """The default of an option."""
    if row.shown_default or row.default in (None, ()):
        return row.shown_default or "none"
    return f"`{str(row.default).lower()}`"


def name(row: Option) -> str:
    """An option's name, and that in Spark's Kafka source."""
    return f"`{row.name}`" + "".join(f" (`{also}`)" for also in row.also)


def where(row: Option) -> str:
    """Where an option works."""
    if row.where == STREAM:
        return "streams"
    structures = [f"`{one}`" for one in row.tables if row.narrows and one not in LOG]
    return ", ".join(["batch", *(["streams"] if row.where != BATCH else []), *structures])


def options() -> str:
    """The options of reads and streams."""
    return table(
        ("option", "works in", "example", "default", "meaning"),
        *(
            (
                name(row),
                where(row),
                f"`{row.name}={row.example}`",
                default(row),
                "streams only: see [spark-jobs.md](spark-jobs.md#streams)"
                if row.where == STREAM
                else row.meaning,
            )
            for row in OPTIONS.values()
        ),
    )


def stream_options() -> str:
    """The options that only streams have, and those that mean something else there."""
    rows = [row for row in OPTIONS.values() if row.where == STREAM or row.in_streams]
    rows.sort(key=lambda row: bool(row.in_streams))
    return table(
        ("option", "default", "meaning"),
        *((f"`{row.name}`", default(row), row.in_streams or row.meaning) for row in rows),
    )


def write_options() -> str:
    """The options of writes."""
    rows = WRITE_OPTIONS.values()
    return table(
        ("option", "default", "meaning"),
        *((f"`{row.name}`", default(row), row.meaning) for row in rows),
    )


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/spark.md": {"options": options},
    "docs/spark-jobs.md": {
        "options of writes": write_options,
        "options of streams": stream_options,
    },
}


def with_parts(page: str, parts: dict[str, Callable[[], str]]) -> str:
    """The text of a page with its parts made anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, make in parts.items():
        before, begin, rest = text.partition(f"<!-- reference: {name} -->\n")
        _, end, behind = rest.partition("<!-- end -->\n")
        if not end:
            raise SystemExit(f"{page}: expected the part {begin or name!r} and its end")
        text = f"{before}{begin}\n{make()}\n\n{end}{behind}"
    return text


def generated() -> Iterator[tuple[str, str]]:
    """Each file that is generated, whole or in parts, and its text."""
    yield "docs/commands.md", commands()
    for page, parts in PARTS.items():
        yield page, with_parts(page, parts)


def main() -> int:
    """Writes or checks the files."""
    stale = [
        (ROOT / name, text)
        for name, text in generated()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if "--check" in sys.argv[1:]:
            print(f"{path}: stale; run `make reference`", file=sys.stderr)  # noqa: T201
        else:
            path.write_text(text, encoding="utf-8")
    return int("--check" in sys.argv[1:] and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
