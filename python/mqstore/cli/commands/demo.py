"""Entry point of the demo, whose program is in the source and not in the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import mqstore

_EXAMPLES = Path(mqstore.__file__).parent.parent.parent / "examples"

if (_EXAMPLES / "mqstore_demo").is_dir():
    sys.path.append(str(_EXAMPLES))
    from mqstore_demo.command import demo_command
else:

    @click.command("demo", context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def demo_command(arguments: tuple[str, ...]) -> None:  # noqa: ARG001 - of the real one
        """Write, crash, recover, query and verify a store; needs a clone of the source.

        Examples:
            mqstore demo
            mqstore demo --messages 20000 --no-spark
        """
        raise click.UsageError("the demo is part of the source: run `make demo` in a clone of it")
