"""Options shared by the commands."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

import mqstore
from mqstore import _native
from mqstore.cli.output import Format, Output, note
from mqstore.cli.pager import Pager
from mqstore.cli.units import TIME
from mqstore.store import connect, is_backup, is_remote, local, settings_of
from mqstore.text import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mqstore.files.remote import IoCounts

P = ParamSpec("P")
R = TypeVar("R")

store_argument = click.argument("store", type=click.Path())
"""``STORE``, the root folder of a store that a command may write to."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_STORAGE, _VERBOSE = "mqstore.storage_options", "mqstore.verbose"
_MOMENT = "mqstore.moment"


def _keep_options(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    pairs = [one.partition("=") for one in given]
    if not all(name and is_pair for name, is_pair, _ in pairs):
        raise click.BadParameter("expected NAME=VALUE")
    ctx.meta[_STORAGE] = {name: value for name, _, value in pairs}


def _keep_moment(ctx: click.Context, param: click.Parameter, given: int | str | None) -> None:
    if given is not None:
        ctx.meta.setdefault(_MOMENT, {})[param.name] = given


def _keep_verbose(ctx: click.Context, _: click.Parameter, verbose: bool) -> None:  # noqa: FBT001
    ctx.meta[_VERBOSE] = verbose


def _connect(ctx: click.Context, _: click.Parameter, given: Any) -> Any:  # noqa: ANN401
    """Gives each URL its objects; other words stay as they are."""
    if isinstance(given, tuple):
        return tuple(_connect(ctx, _, one) for one in given)
    if given is None:
        return None
    moment = ctx.meta.get(_MOMENT, {})
    is_url = _URL.fullmatch(given) is not None
    if not is_url and not is_backup(given):
        # Another word of `sql` is its query.
        if moment and (ctx.info_name != "sql" or os.path.lexists(given)):
            raise click.UsageError(f"--at, --snapshot: expected a backup, got {given}", ctx)
        return given
    try:
        path = connect(given, {**((is_url and ctx.meta.get(_STORAGE)) or {}), **moment})
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if ctx.meta.get(_VERBOSE) and is_remote(path):
        ctx.call_on_close(lambda: note(_counted(path.counts)))
    return path


def _counted(counts: IoCounts) -> str:
    return f"{count_text(counts.requests)} requests, {size_text(counts.bytes)} received"


def read_argument(
    name: str = "store",
    *,
    has_options: bool = True,
    **more: Any,  # noqa: ANN401 - click's
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A store that a command reads: its root folder, or its URL with ``--storage-option``."""

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        command = click.argument(name, type=click.Path(), callback=_connect, **more)(command)
        if not has_options:
            return command
        # Eager: kept before the argument is used.
        kept: dict[str, Any] = {"is_eager": True, "expose_value": False}
        params = getattr(command, "__click_params__", [])
        if not any("--verbose" in param.opts for param in params):
            text = "For a URL: report how many requests were sent."
            command = click.option(
                "--verbose", is_flag=True, callback=_keep_verbose, help=text, **kept
            )(command)
        command = click.option(
            "--at",
            type=TIME,
            callback=_keep_moment,
            metavar="TIME",
            help="For a backup: the store as it was then.",
            **kept,
        )(command)
        command = click.option(
            "--snapshot",
            callback=_keep_moment,
            metavar="ID",
            help="For a backup: the store as of a snapshot.",
            **kept,
        )(command)
        return storage_option(command)

    return decorate


storage_option = click.option(
    "--storage-option",
    multiple=True,
    callback=_keep_options,
    metavar="NAME=VALUE",
    help="For a URL: an option of its object store, as region=eu-central-1; repeatable.",
    is_eager=True,
    expose_value=False,
)
"""``--storage-option NAME=VALUE``."""


def storage_options_of(ctx: click.Context) -> dict[str, Any] | None:
    """The options given by ``--storage-option``; ``None`` without one."""
    return ctx.meta.get(_STORAGE) or None


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
        raise click.BadParameter(f"expected one topic, got {len(value)}")
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


def begin_end_options(command: Callable[P, R], last: str = "--to") -> Callable[P, R]:
    """``--from TIME --to TIME``: store times, both inclusive."""
    command = click.option(
        last, "end_ms", type=TIME, metavar="TIME", help="Last store time that counts."
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
    local(path, "this command")
    _native._check_owner(path, settings=settings)  # noqa: SLF001 - our own
    return mqstore.open(path, "r+", config=config)


def open_store(path: str, config: str | None) -> mqstore.Store:
    """The store to be looked at, read-only."""
    return mqstore.open(path, "r", config=config)
