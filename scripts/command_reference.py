"""Write docs/commands.md from the commands; with --check only say whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mqstore.cli import command

PAGE = Path(__file__).parents[1] / "docs/commands.md"

HEAD = """\
# Commands

Written from the commands themselves by `make reference`. Data goes to standard output, everything
else to standard error; `--json` gives one document, `--jsonl` one for each row. Commands change
an existing store only with `--apply`.

TIME is ISO 8601 (`2026-11-21T10:00:00Z`), epoch milliseconds, or relative to now (`-2h`). SIZE is
bytes, or `64k`, `16m`, `1g`.

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


def reference() -> str:
    """The page."""
    parts = [HEAD]
    root = click.Context(command, info_name="mqstore")
    for name in command.list_commands(root):
        found = command.get_command(root, name)
        if found is None:
            raise SystemExit(f"no command {name}")
        context = click.Context(found, info_name=name, parent=root, max_content_width=100)
        context.terminal_width = 100
        parts.append(f"## {name}\n\n```text\n{found.get_help(context)}\n```\n")
    return "\n".join(parts)


def main() -> int:
    """Writes or checks the page."""
    text = reference()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not what the commands say: run `make reference`", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
