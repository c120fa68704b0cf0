"""Optional packages that a plain install lacks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Says how to get what is imported in the block, where it is not there.

    Raises:
        click.UsageError: Something is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise click.UsageError(
            f"this needs {error.name}, which is not installed: pip install 'mqstore[{name}]'"
        ) from error
