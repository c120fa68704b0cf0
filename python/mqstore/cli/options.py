"""Arguments and options: what a command reads, and in which form it prints."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import click

import mqstore
from mqstore import _native
from mqstore.cli.output import Format, Output, Pager, note
from mqstore.store import connect, is_backup, is_remote, local, settings_of
from mqstore.text import count_text, parse_duration, parse_size, parse_time, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqstore.files.remote import IoCounts

    # Newer releases have it generic, older ones cannot be subscripted.
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

Function: TypeAlias = "Callable[..., Any]"
Decorator: TypeAlias = "Callable[[Function], Function]"


class Parsed(_ParamType):
    """A parameter that a function reads; what it raises as ``ValueError`` is the complaint."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(  # noqa: D102 - click's own
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = Parsed("time", parse_time)
"""A click type: ``parse_time``."""
COUNT_RATE = Parsed("rate", lambda text: float(text.removesuffix("/s")))
"""A click type: ``200/s``."""
_COUNT = click.IntRange(min=1)
FILE = click.Path(dir_okay=False)
"""A click type: a file, whether it is there or not."""
TYPES = {
    "BYTES": _COUNT,
    "COUNT": _COUNT,
    "DIR": click.Path(),
    "DURATION": Parsed("duration", parse_duration),
    "FILE": FILE,
    "HOURS": _COUNT,
    "OFFSET": click.IntRange(min=0),
    "QUEUE": click.IntRange(0, 2**31 - 1),
    # 50m/s, in bytes a second.
    "RATE": Parsed("rate", lambda text: parse_size(text.removesuffix("/s"))),
    "SIZE": Parsed("size", parse_size),
    "TIME": TIME,
}
"""Types of what options take, by the names that the help has for it."""


def option(names: str, value: str | Sequence[str] | None, text: str, **more: Any) -> Decorator:
    """An option that takes a value: its names, the value's name or its choices, and the help.

    The value's name says its type, as ``TIME`` does, unless ``type`` is given. The rest is as click
    has it; a default is shown unless ``show_default`` says otherwise.
    """
    more.setdefault("show_default", "default" in more)
    if isinstance(value, str):
        more.setdefault("type", TYPES.get(value))
    elif value is not None:
        more["type"], value = click.Choice(value), None
    return click.option(*names.split(), metavar=value, help=text, **more)


def several(names: str, value: str | Sequence[str], text: str, **more: Any) -> Decorator:
    """An option that may be given several times."""
    return option(names, value, text, multiple=True, **more)


def flag(names: str, text: str) -> Decorator:
    """An option that is given or not."""
    return click.option(*names.split(), is_flag=True, help=text)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_STORAGE, _KEPT = "mqstore.storage_options", "mqstore.kept"


def read_pairs(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """The values of a repeatable option ``NAME=VALUE``.

    Raises:
        click.BadParameter: One is no such pair.
    """
    pairs = [one.partition("=") for one in given]
    if not all(name and is_pair for name, is_pair, _ in pairs):
        raise click.BadParameter("expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _keep_options(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str] | None:
    ctx.meta[_STORAGE] = read_pairs(ctx, param, given) or None
    return storage_options()


def _keep(ctx: click.Context, param: click.Parameter, given: bool | int | str | None) -> None:
    if given is not None:
        ctx.meta.setdefault(_KEPT, {})[param.name] = given


def _connect(ctx: click.Context, _: click.Parameter, given: Any) -> Any:
    """Gives each URL its objects; other words stay as they are."""
    if isinstance(given, tuple):
        return tuple(_connect(ctx, _, one) for one in given)
    if given is None:
        return None
    moment = dict(ctx.meta.get(_KEPT, {}))
    is_verbose = moment.pop("verbose", False)
    is_url = _URL.fullmatch(given) is not None
    if not is_url and not is_backup(given):
        # Another word of `sql` is its query.
        if moment and (ctx.info_name != "sql" or os.path.lexists(given)):
            raise click.UsageError(f"--at, --snapshot: expected a backup, got {given}", ctx)
        return given
    try:
        path = connect(given, {**((is_url and storage_options()) or {}), **moment})
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if is_verbose and is_remote(path):
        ctx.call_on_close(lambda: note(_counted(path.counts)))
    return path


def _counted(counts: IoCounts) -> str:
    return f"{count_text(counts.requests)} requests, {size_text(counts.bytes)} received"


def read_argument(name: str = "store", *, has_options: bool = True, **more: Any) -> Decorator:
    """A store that a command reads: its root folder, or its URL with ``--storage-option``."""

    def decorate(command: Function) -> Function:
        command = click.argument(name, type=click.Path(), callback=_connect, **more)(command)
        if not has_options:
            return command
        # Eager: kept before the argument is used.
        kept: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _keep}
        params = getattr(command, "__click_params__", [])
        if not any("--verbose" in param.opts for param in params):
            text = "For a URL: report how many requests were sent."
            command = click.option("--verbose", is_flag=True, help=text, **kept)(command)
        at = option("--at", "TIME", "For a backup: the store as it was then.", **kept)
        of = option("--snapshot", "ID", "For a backup: the store as of a snapshot.", **kept)
        return storage_option(expose_value=False)(of(at(command)))

    return decorate


def storage_option(*, expose_value: bool) -> Decorator:
    """``--storage-option NAME=VALUE``; the command gets ``storage_options`` if it is exposed."""
    return several(
        "--storage-option storage_options",
        "NAME=VALUE",
        "For a URL: an option of its object store, as region=eu-central-1; repeatable.",
        callback=_keep_options,
        is_eager=True,
        expose_value=expose_value,
    )


def storage_options() -> dict[str, Any] | None:
    """The options given by ``--storage-option``; ``None`` without one."""
    return click.get_current_context().meta.get(_STORAGE)


config_option = option("--config", "FILE", "The broker.conf that the store was written with.")
"""``--config broker.conf``."""


def output_options(command: Function) -> Function:
    """``--json`` and ``--jsonl``; the command gets an ``Output`` first."""

    @flag("--json as_json", "One JSON document.")
    @flag("--jsonl as_jsonl", "A JSON document a row.")
    @functools.wraps(command)
    def with_output(*, as_json: bool, as_jsonl: bool, **options: Any) -> Any:
        if as_json and as_jsonl:
            raise click.UsageError("--json and --jsonl exclude each other.")
        form: Format = "json" if as_json else "jsonl" if as_jsonl else "text"
        output = Output(form)
        output.pager = pager = Pager()
        try:
            result = command(output, **options)
            output.flush()
        finally:
            pager.close()
        return result

    return with_output


def command(
    name: str, cls: type[click.Command] = click.Command, **more: Any
) -> Callable[[Function], click.Command]:
    """A command whose last options are ``--config``, ``--json`` and ``--jsonl``.

    Its function gets an ``Output`` first.
    """

    def decorate(function: Function) -> click.Command:
        others = vars(function).pop("__click_params__", [])
        made = config_option(output_options(function))
        # click has the last option first.
        vars(made)["__click_params__"] += others
        return click.command(name, cls, **more)(made)

    return decorate


def read_command(
    name: str, cls: type[click.Command] = click.Command, **more: Any
) -> Callable[[Function], click.Command]:
    """Such a command with the store that it reads as its first argument."""
    return lambda function: command(name, cls, **more)(read_argument()(function))


def open_to_change(path: str, config: str | None) -> mqstore.Store:
    """The store to be changed by a command, which refuses to make files of another owner."""
    settings = settings_of(config)
    local(path, "this command")
    _native._check_owner(path, settings=settings)  # noqa: SLF001 - our own
    return mqstore.open(path, "r+", config=config)
