"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqstore._native import _Pattern
from mqstore.cli.options import Parsed, flag, option, several, storage_option

if TYPE_CHECKING:
    from mqstore.cli.options import Decorator, Function

store = click.argument("store", type=click.Path())
"""``STORE``, the root folder of a store that a command may write to."""

storage = storage_option(expose_value=True)
"""``--storage-option NAME=VALUE``; the command gets ``storage_options``, ``None`` without one."""

threads = option(
    "--threads",
    "COUNT",
    "How many threads; one for each processor if left out.",
    type=click.IntRange(1, 1024),
)
"""``--threads COUNT``."""

group = option("-g --group", "GROUP", "The consumer group.", required=True)
"""``-g GROUP``."""

allow_empty = flag("--allow-empty", "Go on where a topic, filter or rule matches nothing.")
"""``--allow-empty`` of what makes a new store or file."""

quiet_empty = flag(
    "--allow-empty", "Exit with 0, not 1, where a topic, key or filter matches no message."
)
"""``--allow-empty`` of what only prints."""

skip_damage = flag("--skip-damage", "Go on behind damage, count it, and exit with 1.")
"""``--skip-damage``."""

tags = option("--tags", "EXPRESSION", 'Only these tags: "paid || refunded".')
"""``--tags EXPRESSION``."""


grep = option(
    "--grep",
    "PATTERN",
    "Only bodies in which this regular expression is found, in the syntax of Rust's crate regex: of"
    " bytes, of characters with (?u) in front; without lookaround and backreferences.",
    type=Parsed("pattern", _Pattern),
)
"""``--grep PATTERN``."""


def _read_only_topic(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> str:
    if len(value) > 1:
        raise click.BadParameter(f"expected one topic, got {len(value)}")
    return value[0]


topic = option(
    "-t --topic", "TOPIC", "The topic.", required=True, multiple=True, callback=_read_only_topic
)
"""``-t TOPIC``, once."""


def topics(text: str = "Only this topic; repeat -t for several.", **more: Any) -> Decorator:
    """``-t TOPIC``, as often as there are topics."""
    return several("-t --topic topics", "TOPIC", text, **more)


def or_none(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The values of a repeatable option; ``None`` without one, as functions take all."""
    return given or None


def health(text: str) -> Decorator:
    """``--health FILE``; the command gets a path."""
    return option("--health", "FILE", text, type=click.Path(dir_okay=False, path_type=Path))


def queue(text: str = "The queue's number.", *, required: bool = False) -> Decorator:
    """``-q QUEUE``."""
    return option("-q --queue queue_id", "QUEUE", text, required=required)


def limit(default: int | None, what: str) -> Decorator:
    """``-n COUNT``."""
    given = {} if default is None else {"default": default}
    return option("-n --limit", "COUNT", f"At most this many {what}.", **given)


def begin_end(command: Function, last: str = "--to") -> Function:
    """``--from TIME --to TIME``: store times, both inclusive."""
    end = option(f"{last} end_ms", "TIME", "Last store time that counts.")
    begin = option("--from begin_ms", "TIME", "First store time that counts.")
    return begin(end(command))
