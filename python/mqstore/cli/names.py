"""Checks the names on the command line: a name that is not in the store ends the command with 1."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mqstore._names import missing_topics, nearest, table_names
from mqstore.cli.output import note
from mqstore.errors import MessageNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mqstore import Store


def note_nothing(store: str, **filters: object) -> int:
    """Says that filters match no message, and returns the exit code; 0 where none is given."""
    given = [f"--{name}" for name, value in filters.items() if value is not None]
    if not given:
        return 0
    names = f"{', '.join(given[:-1])} and {given[-1]}" if given[1:] else given[0]
    verb = "match" if given[1:] else "matches"
    note(f"mqstore: {names} {verb} no message in {store}; --allow-empty makes that no error")
    return 1


@contextmanager
def refusals() -> Iterator[None]:
    """Puts the option in the place of the argument, where a call refuses what matches nothing.

    Raises:
        click.ClickException: The call refuses.
    """
    try:
        yield
    except MessageNotFoundError as error:
        text = str(error).replace("allow_empty=True", "--allow-empty")
        raise click.ClickException(text) from None


def check_topics(store: Store, topics: Sequence[str], queue_id: int | None = None) -> None:
    """Checks that each topic is there, and that one of them has the queue, if one is asked for.

    Raises:
        click.ClickException: One is not, with the nearest names; or none has the queue.
    """
    if missing := missing_topics(store, topics):
        raise click.ClickException("; ".join(missing))
    if queue_id is None:
        return
    found = {queue.queue_id for topic in topics for queue in store.queues(topic)}
    if found and queue_id not in found:
        names = " and ".join(map(repr, topics))
        there = ", ".join(map(str, sorted(found)))
        text = f"no queue {queue_id} of topic {names} in {store.path}; there are {there}"
        raise click.ClickException(text)


def check_group(store: Store, group: str, known: Iterable[str]) -> None:
    """Checks that a consumer group has offsets.

    Raises:
        click.ClickException: It has none; the text has the nearest names.
    """
    known = set(known)
    if group in known:
        return
    if group in table_names(store, "subscriptionGroup.json", "subscriptionGroupTable"):
        raise click.ClickException(f"group {group!r} has committed no offset in {store.path}")
    raise click.ClickException(f"no group {group!r} in {store.path}{nearest(group, known)}")
