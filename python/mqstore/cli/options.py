"""Options shared by the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

import mqstore
from mqstore import _native
from mqstore.cli.output import Format, Output
from mqstore.cli.pager import Pager
from mqstore.cli.units import TIME
from mqstore.store import local, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

store_argument = click.argument("store", type=click.Path())
"""``STORE``, a store's root folder."""

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The broker.conf that the store was written with.",
)
"""``--config broker.conf``."""

threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="COUNT",
    help="How many threads; one for each processor if left out.",
)
"""``--threads COUNT``."""


def _read_only_topic(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    value: tuple[str, ...],
) -> str:
    if len(value) > 1:
        raise click.BadParameter(f"expected one topic, found {len(value)}")
    return value[0]


def topic_option(command: Callable[P, R]) -> Callable[P, R]:
    """``-t TOPIC``, once."""
    return click.option(
        "-t",
        "--topic",
        required=True,
        multiple=True,
        callback=_read_only_topic,
        metavar="TOPIC",
        help="The topic.",
    )(command)


def topics_option(*, required: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """``-t TOPIC``, as often as there are topics."""
    return click.option(
        "-t",
        "--topic",
        "topics",
        required=required,
        multiple=True,
        metavar="TOPIC",
        help="Only this topic; repeat -t for several.",
    )


allow_empty_option = click.option(
    "--allow-empty",
    is_flag=True,
    help="Go on where a topic, filter or rule matches nothing.",
)
"""``--allow-empty`` of what makes a new store or file."""

quiet_empty_option = click.option(
    "--allow-empty",
    is_flag=True,
    help="Exit with 0, not 1, where a topic, key or filter matches no message.",
)
"""``--allow-empty`` of what only prints."""


def queue_option(*, required: bool) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """``-q QUEUE``."""
    return click.option(
        "-q",
        "--queue",
        "queue_id",
        required=required,
        type=click.IntRange(0, 2**31 - 1),
        metavar="QUEUE",
        help="The queue's number.",
    )


def limit_option(default: int | None, what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """``-n COUNT``."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=default is not None,
        metavar="COUNT",
        help=f"At most this many {what}.",
    )


def begin_end_options(command: Callable[P, R]) -> Callable[P, R]:
    """``--from TIME --to TIME``: store times, both inclusive."""
    command = click.option(
        "--to", "end_ms", type=TIME, metavar="TIME", help="Last store time that counts."
    )(command)
    return click.option(
        "--from", "begin_ms", type=TIME, metavar="TIME", help="First store time that counts."
    )(command)


def output_options(
    command: Callable[Concatenate[Output, P], R],
) -> Callable[P, R]:
    """``--json`` and ``--jsonl``; the command gets an ``Output`` first."""

    def with_output(*args: P.args, **kwargs: P.kwargs) -> R:
        form: Format = "text"
        as_json, as_jsonl = kwargs.pop("as_json"), kwargs.pop("as_jsonl")
        if as_json and as_jsonl:
            raise click.UsageError("--json and --jsonl exclude each other.")
        if as_json:
            form = "json"
        elif as_jsonl:
            form = "jsonl"
        output = Output(form)
        output.pager = pager = Pager()
        try:
            result = command(output, *args, **kwargs)
            output.flush()
        finally:
            pager.close()
        return result

    with_output.__name__ = command.__name__
    with_output.__doc__ = command.__doc__
    # Options that stand below in the source were put on the command itself, by click's convention.
    with_output.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    with_options = click.option("--jsonl", "as_jsonl", is_flag=True, help="A JSON document a row.")(
        with_output
    )
    return click.option("--json", "as_json", is_flag=True, help="One JSON document.")(with_options)


def print_report(
    output: Output,
    document: Mapping[str, object],
    rows: str,
    lines: Callable[[], Iterator[str]],
) -> None:
    """Prints what a command reports.

    Args:
        output: In which form.
        document: All of it, as ``--json`` has it.
        rows: The entry of it that is a list of rows; ``--jsonl`` has these alone.
        lines: The same for people.
    """
    if output.form == "jsonl":
        output.rows(iter(document[rows]))  # type: ignore[call-overload]
    else:
        output.document(document, lines)


def open_to_change(path: str, config: str | None) -> mqstore.Store:
    """The store to be changed by a command, which refuses to make files of another owner."""
    settings = settings_of(config)
    _native._check_owner(path, settings=settings)  # noqa: SLF001 - our own
    return mqstore.open(path, "r+", config=config)


def open_store(path: str, config: str | None) -> mqstore.Store:
    """The store to be looked at, read-only."""
    return mqstore.open(local(path, "this command"), "r", config=config)
