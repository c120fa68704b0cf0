"""How far long work has come, on a terminal only: how much, the rate, the time left."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from mqstore.cli.output import on_terminal
from mqstore.text import escape, rate_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Advance = Callable[[int, int], None]


@contextmanager
def progress(label: str, *, unit: str = "bytes", beside_output: bool = False) -> Iterator[Advance]:
    """A bar on standard error while the block runs; nothing where no terminal is there.

    Args:
        label: The activity.
        unit: The counted unit.
        beside_output: Data is printed meanwhile, so there is no bar where that goes to a terminal.

    Yields:
        A function to be told ``(done, total)``.
    """
    if not on_terminal(standard_error=True) or (beside_output and on_terminal()):
        yield lambda _done, _total: None
        return
    began = time.monotonic()

    def rate(done: int) -> str:
        seconds = time.monotonic() - began
        if unit == "bytes":
            return f"{size_text(int(done / max(seconds, 1e-9)))}/s"
        return rate_text(done, seconds, unit)

    shown = _with_rich(escape(label), rate) or _with_click(escape(label), rate)
    with shown as advance:
        yield advance


def _with_rich(label: str, rate: Callable[[int], str]) -> AbstractContextManager[Advance] | None:
    """The bar by rich, where that is installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        return None
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

    @contextmanager
    def shown() -> Iterator[Advance]:
        with bar:
            task = bar.add_task(label, total=None, rate="")
            yield lambda done, total: bar.update(task, completed=done, total=total, rate=rate(done))

    return shown()


@contextmanager
def _with_click(label: str, rate: Callable[[int], str]) -> Iterator[Advance]:
    """The bar by click alone."""

    def shown(done: int | None) -> str | None:
        return None if done is None else rate(done)

    with click.progressbar(length=1, label=label, file=sys.stderr, item_show_func=shown) as bar:

        def advance(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(max(done - bar.pos, 0), done)

        yield advance
