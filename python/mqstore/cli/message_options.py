"""Options of the commands that print messages: which bodies, and how they are shown."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from mqstore.cli.bodies import Decoder, avro_decoder, protobuf_decoder, protobuf_fields
from mqstore.cli.messages import MessageView, Template
from mqstore.cli.units import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore.results.documents import BodyForm

P = ParamSpec("P")
R = TypeVar("R")


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


def body_option(command: Callable[P, R]) -> Callable[P, R]:
    """``--body FORM``, and the schemas that a form may need; the command gets a form or decoder."""

    def with_body(*args: P.args, **kwargs: P.kwargs) -> R:
        proto, message, avro = (kwargs.pop(name) for name in ("proto", "message_name", "avro"))
        kwargs["body"] = _form(kwargs["body"], proto, message, avro)  # type: ignore[arg-type]
        return command(*args, **kwargs)

    with_body.__name__ = command.__name__
    with_body.__doc__ = command.__doc__
    # Options that stand below in the source were put on the command itself, by click's convention.
    with_body.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    schema = click.Path(dir_okay=False)
    for option in (
        click.option("--avro", type=schema, metavar="FILE", help="Avro schema of the bodies."),
        click.option(
            "--message",
            "message_name",
            metavar="NAME",
            help="Name of the message in --proto.",
        ),
        click.option(
            "--proto",
            type=schema,
            metavar="FILE",
            help="Protobuf schema of the bodies: .proto, or a descriptor set.",
        ),
        click.option(
            "--body",
            type=click.Choice(["text", "hex", "json", "protobuf", "none"]),
            help="How bodies are shown; protobuf: fields by number.  [default: text]",
        ),
    ):
        with_body = option(with_body)
    return with_body


def _form(
    form: BodyForm | None, proto: str | None, message: str | None, avro: str | None
) -> BodyForm | Decoder:
    if (proto is None) != (message is None):
        raise click.UsageError("--proto and --message go together.")
    if sum((form is not None, proto is not None, avro is not None)) > 1:
        raise click.UsageError("--body, --proto and --avro exclude each other.")
    if proto is not None and message is not None:
        return protobuf_decoder(proto, message)
    if avro is not None:
        return avro_decoder(avro)
    if form == "protobuf":
        return Decoder(form, protobuf_fields)
    return form or "text"


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
