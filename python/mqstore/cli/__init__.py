"""The command ``mqstore``.

Exit codes: 0 fine, 1 findings or damage (and what was asked for is not there), 2 usage, 3 not a
store, 4 locked, 5 input or output, 130 interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import sys
import textwrap
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import mqstore
from mqstore._names import nearest
from mqstore.cli.output import OutputClosedError, note, set_paging
from mqstore.errors import MissingPackageError
from mqstore.text.zone import set_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["command", "main"]

# Each command, in the order of the help, and the module that has it, loaded when asked for.
_COMMANDS = {
    name: module
    for module, names in (
        ("info", "info"),
        ("queues", "topics queues"),
        ("groups", "groups"),
        ("messages", "cat tail get query at"),
        ("fates", "why pending"),
        ("replay", "resend replay"),
        ("structures", "cq index checkpoint"),
        ("info", "config"),
        ("checks", "verify"),
        ("stats", "stats metrics"),
        ("checks", "doctor"),
        ("preflight", "preflight"),
        ("upkeep", "recover rebuild convert"),
        ("info", "report"),
        ("pipeline", "pipeline"),
        ("exchange", "export import salvage copy diff"),
        ("upkeep", "clean"),
        ("backup", "sync snapshots restore prune"),
        ("sql", "sql"),
        ("demo", "demo"),
    )
    for name in names.split()
}

_ZONE = "mqstore.zone"

_EXIT_CODES: Sequence[tuple[type[BaseException], int]] = (
    (mqstore.NotAStoreError, 3),
    (mqstore.UnsupportedError, 3),
    (mqstore.StoreLockedError, 4),
    (mqstore.ConfigError, 2),
    (mqstore.InvalidMessageError, 2),
    (mqstore.StorePoisonedError, 5),
    (OSError, 5),
    (mqstore.StoreError, 1),
)


class _Commands(click.Group):
    """The commands by name, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "help":
            return _help_command
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = getattr(import_module(f"mqstore.cli.commands.{module}"), f"{cmd_name}_command")
        assert isinstance(found, click.Command)  # noqa: S101 - a slip in the table above
        if found.epilog is None:
            found.params.extend(_common_options())
            # Its examples stand below its options.
            text = inspect.cleandoc(found.help or "")
            found.help, _, examples = text.partition("\n\nExamples:\n")
            examples = textwrap.indent(textwrap.dedent(examples), "  ")
            # `python -OO` drops docstrings.
            found.epilog = examples and f"\b\nExamples:\n{examples}"
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], [*_COMMANDS, "help"])
            ctx.fail(f"No such command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        words = list(ctx.args)
        try:
            return super().invoke(ctx)
        except mqstore.CorruptionError as error:
            found = self.get_command(ctx, ctx.invoked_subcommand or "")
            options = {text for param in found.params for text in param.opts} if found else set()
            if "--skip-damage" in options - {*words}:
                error.add_note("--skip-damage goes on behind damage; mqstore doctor lists it")
            raise


def _take_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    source = ctx.get_parameter_source(param.name or "")
    if ctx.parent is None:
        # Read with the command's own, which comes before it.
        if source is ParameterSource.COMMANDLINE:
            ctx.meta[_ZONE] = value
        return
    if source is not ParameterSource.COMMANDLINE:
        value = ctx.meta.get(_ZONE, value)
    try:
        set_zone(value)
    except ValueError as error:
        if source is ParameterSource.ENVIRONMENT and value == os.environ.get("MQSTORE_TZ"):
            raise click.UsageError(f"MQSTORE_TZ: {error}", ctx) from None
        if not value:
            raise click.UsageError(str(error), ctx) from None
        raise click.BadParameter(str(error)) from None


def _common_options() -> list[click.Option]:
    """Options that every command takes, and ``mqstore`` itself before the command."""
    zone = "Zone of times, as Europe/Berlin, +02:00 or UTC; the system's if left out."
    no_pager = "Show no pager for long output on a terminal."
    eager: dict[str, Any] = {"is_eager": True, "expose_value": False}
    return [
        click.Option(
            ["--tz"], envvar="MQSTORE_TZ", metavar="ZONE", callback=_take_zone, help=zone, **eager
        ),
        click.Option(["--no-pager"], is_flag=True, callback=set_paging, help=no_pager, **eager),
    ]


@click.command("help")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def _help_command(ctx: click.Context, name: str | None) -> None:
    """Show the help of a command, or the list of commands."""
    parent = ctx.parent
    assert parent is not None  # noqa: S101 - a command of the group below
    if name is None:
        click.echo(parent.get_help())
        return
    _, found, _ = command.resolve_command(parent, [name])
    assert found is not None  # noqa: S101 - else it has failed
    click.echo(click.Context(found, info_name=name, parent=parent).get_help())


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Exit codes: 0 fine; 1 findings or damage, or not there; 2 usage; 3 not a store; 4 locked; "
        "5 input or output; 130 interrupted.\n\n"
        "\b\nExamples:\n  mqstore doctor /data/store\n  mqstore help cat\n\n"
        'Completion: eval "$(_MQSTORE_COMPLETE=bash_source mqstore)" in ~/.bashrc; zsh_source and '
        "fish_source for other shells."
    ),
)
@click.version_option(mqstore.__version__, prog_name="mqstore")
def command() -> None:
    """Read, query and check message stores in the file format of Apache RocketMQ.

    Data is printed on standard output, everything else on standard error. TIME is ISO 8601, epoch
    milliseconds, or relative to now (-2h), in the zone of --tz, MQSTORE_TZ or the system; SIZE is
    bytes or 64k, 16m, 1g.
    """


command.params.extend(_common_options())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: Arguments of the command; by default ``sys.argv[1:]``.

    Returns:
        The exit code.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Closed by the caller (``>&-``).
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        code = _run(arguments)
    if arguments is None and "duckdb" in sys.modules:
        # A thread of DuckDB or Arrow that still reads would abort the process as Python ends.
        atexit._run_exitfuncs()  # noqa: SLF001 - the only way
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = command.main(
            None if arguments is None else list(arguments),
            prog_name="mqstore",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        note("interrupted")
        return 130
    except (OutputClosedError, BrokenPipeError):
        # The reader has seen enough.
        _close_output()
        return 0
    except click.ClickException as error:
        _show_click_error(error)
        return error.exit_code
    except MissingPackageError as error:
        note(f"mqstore: {error}")
        return 2
    except (mqstore.StoreError, OSError) as error:
        try:
            sys.stdout.flush()
        except OSError:
            _close_output()
        for text in (error, *getattr(error, "__notes__", ())):
            note(f"mqstore: {text}")
        return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
    return code if isinstance(code, int) else 0


def _close_output() -> None:
    """Lets go of what is held back, so that it is not tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_click_error(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        for line in error.format_message().splitlines():
            note(line)
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        for line in error.ctx.get_usage().splitlines():
            note(line)
        note(f"Try '{error.ctx.command_path} --help' for help.")
    text = error.format_message()
    # Its choices stand in lines of their own.
    lines = text.splitlines() if isinstance(error, click.MissingParameter) else [text]
    note(f"mqstore: {lines[0]}")
    for line in lines[1:]:
        note(line.replace("\t", "  "))


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    note(f"mqstore: warning: {message}")
