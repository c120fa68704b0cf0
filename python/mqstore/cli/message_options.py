"""Options of the commands that print messages: which bodies, and how they are shown."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import click

from mqstore.cli.bodies import Decoder, avro_decoder, protobuf_decoder, protobuf_fields
from mqstore.cli.messages import MessageView, Template
from mqstore.cli.options import Parsed, option

if TYPE_CHECKING:
    from mqstore.cli.options import Decorator, Function
    from mqstore.results.documents import BodyForm


def _read_template(text: str) -> str:
    Template(text, MessageView())
    return text


def _refuse_on_terminal(_ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """Lets bytes that are not escaped go to a file or a program only.

    Raises:
        click.UsageError: Standard output is a terminal.
    """
    if value and sys.stdout.isatty():
        raise click.UsageError("--raw writes unescaped bytes; send them to a file or a program.")
    return value


def view_options(command: Function) -> Function:
    """``--body FORM`` with its schemas, and ``--preview``; the command gets a ``MessageView``."""

    @option(
        "--body",
        ["text", "hex", "json", "protobuf", "none"],
        "How bodies are shown; protobuf: fields by number.  [default: text]",
    )
    @option("--proto", "FILE", "Protobuf schema of the bodies: .proto, or a descriptor set.")
    @option("--message message_name", "NAME", "Name of the message in --proto.")
    @option("--avro", "FILE", "Avro schema of the bodies.")
    @option(
        "--preview",
        "SIZE",
        "Most bytes of a body shown to people; JSON has all of them.",
        default="4k",
    )
    @functools.wraps(command)
    def with_view(
        *args: Any,
        body: BodyForm | None,
        proto: str | None,
        message_name: str | None,
        avro: str | None,
        preview: int,
        **options: Any,
    ) -> Any:
        form = _form(body, proto, message_name, avro)
        return command(*args, view=MessageView(form, preview=preview), **options)

    return with_view


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


template_option = option(
    "--format template",
    "TEMPLATE",
    'A line for each: "{topic} {queue_offset} {property:NAME} {body}".',
    type=Parsed("template", _read_template),
)
"""``--format TEMPLATE``."""


def raw_option(text: str = "Escape nothing; not to a terminal.") -> Decorator:
    """``--raw``."""
    return click.option("--raw", is_flag=True, callback=_refuse_on_terminal, help=text)
