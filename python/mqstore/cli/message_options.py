"""Options of the commands that print messages: which bodies, and how they are shown."""

from __future__ import annotations

import re
import sys

import click

from mqstore.cli.messages import MessageView, Template
from mqstore.cli.units import SIZE

__all__ = [
    "body_option",
    "grep_option",
    "preview_option",
    "raw_option",
    "refuse_on_terminal",
    "tags_option",
    "template_option",
]


def _read_template(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    value: str | None,
) -> str | None:
    if value is not None:
        try:
            Template(value, MessageView())
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _read_pattern(
    ctx: click.Context,  # noqa: ARG001
    param: click.Parameter,  # noqa: ARG001
    value: str | None,
) -> re.Pattern[bytes] | None:
    if value is None:
        return None
    try:
        return re.compile(value.encode())
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from None


def refuse_on_terminal(
    ctx: click.Context,  # noqa: ARG001
    param: click.Parameter,  # noqa: ARG001
    value: bool,  # noqa: FBT001
) -> bool:
    """Lets bytes that are not escaped go to a file or a program only.

    Raises:
        click.UsageError: Standard output is a terminal.
    """
    if value and sys.stdout.isatty():
        raise click.UsageError("--raw writes unescaped bytes; send them to a file or a program.")
    return value


body_option = click.option(
    "--body",
    type=click.Choice(["text", "hex", "json", "none"]),
    default="text",
    show_default=True,
    help="How bodies are shown.",
)
"""``--body FORM``."""

preview_option = click.option(
    "--preview",
    type=SIZE,
    default="4k",
    show_default=True,
    metavar="SIZE",
    help="Most bytes of a body shown to people; JSON has all of them.",
)
"""``--preview SIZE``."""

tags_option = click.option(
    "--tags", metavar="EXPRESSION", help='Only these tags: "paid || refunded".'
)
"""``--tags EXPRESSION``."""

grep_option = click.option(
    "--grep",
    callback=_read_pattern,
    metavar="PATTERN",
    help="Only bodies in which this regular expression is found.",
)
"""``--grep PATTERN``."""

template_option = click.option(
    "--format",
    "template",
    callback=_read_template,
    metavar="TEMPLATE",
    help='A line for each: "{topic} {queue_offset} {property:NAME} {body}".',
)
"""``--format TEMPLATE``."""

raw_option = click.option(
    "--raw", is_flag=True, callback=refuse_on_terminal, help="Escape nothing; not to a terminal."
)
"""``--raw``."""
