"""Copying a store, or a part of it, with its content replaced by rule; and comparing two stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mqstore
from mqstore import _native
from mqstore._names import listed
from mqstore.errors import checked, wrong_setting
from mqstore.exchange import matching
from mqstore.results import _Report
from mqstore.store import check_outside, connect, connect_each, local, settings_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from mqstore.config import ConfigLike
    from mqstore.exchange.matching import Rules


@dataclass(frozen=True, slots=True)
class CopyReport(_Report):
    """Result of ``mqstore.copy``.

    Attributes:
        path: The store.
        out: The new one.
        messages: Messages copied.
        bytes: Bytes of their records in the copy.
        left_out: Messages that were not asked for.
        stand_ins: Messages without a body and with the property ``MQSTORE_LEFT_OUT``, in the place
            of those that others would have lost their queue offsets without.
        redacted: Messages whose content a rule changed.
        renumbered: Whether queue offsets were given anew; the consumer offsets went along.
        in_place: Whether every record lies at the physical offset that it has in the source.
        config_files: The files that came along into ``config``.
        deleted_topics: Topics that are deleted in the source, and therefore in the copy: their
            messages are in its log, and in no queue.
        left_as_is: With rules of redaction: the bodies and properties that none of them replaced.
    """

    path: str
    out: str
    messages: int
    bytes: int
    left_out: int = 0
    stand_ins: int = 0
    redacted: int = 0
    renumbered: bool = False
    in_place: bool = False
    config_files: tuple[str, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    left_as_is: tuple[matching.LeftAsIs, ...] = ()


class QueueDiff(NamedTuple):
    """A queue in which two stores differ."""

    topic: str
    """Its topic."""
    queue_id: int
    """Its number."""
    same: int
    """Messages that are the same."""
    missing: int
    """Messages that the second store lacks."""
    extra: int
    """Messages that only the second store has."""
    different: int
    """Messages that have other content in the second."""


class Difference(NamedTuple):
    """One message in which two stores differ."""

    kind: Literal["missing", "extra", "different"]
    """Whether the second store lacks it, has it alone, or has it with other content."""
    topic: str
    """Its topic."""
    queue_id: int
    """Its queue."""
    queue_offset: int
    """Its number there."""
    fields: tuple[str, ...]
    """Differing fields, by the names of ``StoredMessage``; ``body`` is as stored."""


@dataclass(frozen=True, slots=True)
class DiffReport(_Report):
    """Result of ``mqstore.diff``.

    Attributes:
        a: The first store.
        b: The second.
        ok: Whether they have the same messages.
        queues: How many queues there are in either.
        messages: Messages that are the same.
        differing: The queues that differ, with counts.
        differences: The messages that differ, the first 10,000.
    """

    a: str
    b: str
    ok: bool
    queues: int
    messages: int
    differing: tuple[QueueDiff, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def missing(self) -> int:
        """Messages that the second store lacks."""
        return sum(queue.missing for queue in self.differing)

    @property
    def extra(self) -> int:
        """Messages that only the second store has."""
        return sum(queue.extra for queue in self.differing)

    @property
    def different(self) -> int:
        """Messages that have other content in the second store."""
        return sum(queue.different for queue in self.differing)


@checked
def copy(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    tags: str | None = None,
    keys: Iterable[str] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    renumber: bool = False,
    redact: Rules = None,
    redact_default: Literal["zeros", "drop"] | None = None,
    allow_empty: bool = False,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CopyReport:
    """Copies a store, or the messages that are asked for, into a new one that a broker can serve.

    Configuration and consumer offsets come along. A message keeps its queue offset: where one
    before it in its queue was left out, a message without a body and with the property
    ``MQSTORE_LEFT_OUT`` stands in for it, since RocketMQ serves no queue with holes. With
    ``renumber`` there are no such messages: each queue begins at 0, and the consumer offsets are
    moved with the messages. A topic that was deleted (messages of it are still in the log, but
    ``config/topics.json`` does not name it and it has no queues) stays deleted: its messages come
    along in the log, and in no queue, unless `topics` names it. Physical offsets stay where nothing
    before was left out or changed in length; message ids and ``prepared_transaction_offset`` name
    them.

    Args:
        path: The store. It is read only, and may be in use by a broker.
        out: The store to make; nothing, or an empty folder, may be there now.
        topics: Only these topics; ``None`` is all, those of the broker too.
        tags: A tag expression, such as ``"paid || refunded"``.
        keys: Only messages with one of these keys, or unique keys.
        begin_ms: First store time that counts, Unix milliseconds.
        end_ms: Last store time that counts.
        renumber: Number each queue from 0 on.
        redact: Rules by which bodies and properties are replaced: a mapping, or the path of a TOML
            file with the same content; ``docs/copy.md`` describes them. A rule must match something
            that is there when the copy begins; what no rule replaces is in ``left_as_is``.
        redact_default: Replacement of bodies and properties that no rule replaces: ``"zeros"`` of
            the same length, or ``"drop"``: an empty body, no such property. Properties by which
            RocketMQ handles a message stay.
        allow_empty: Go on where a topic, key, filter or rule matches nothing.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        CorruptionError: Damage; ``mqstore.salvage`` copies what is whole.
        ConfigError: A rule that cannot be, or an `out` inside of the store.
        MessageNotFoundError: A topic, key, filter or rule matches nothing; nothing was written.
        InvalidMessageError: A queue lacks so many messages that none may stand in for them
            (``renumber`` helps), or a changed message fits into no file.
        StoreIOError: Something is at `out` already, or the system refused something.
    """
    path = connect(path, storage_options)
    rules, salt = matching.load_rules(redact)
    local(out, "mqstore.copy")
    check_outside("out", out, path)
    if redact_default not in {None, "zeros", "drop"}:
        raise wrong_setting("redact_default", "zeros or drop", repr(redact_default))
    choice = matching.Choice(
        topics=listed(topics),
        tags=tags,
        keys=listed(keys),
        begin_ms=begin_ms,
        end_ms=end_ms,
    )
    left: tuple[matching.LeftAsIs, ...] = ()
    with mqstore.open(path, "r", config=config) as store:
        if not allow_empty:
            matching.check_choice(store, choice)
        if rules or redact_default:
            found = matching.survey(store, choice)
            if not allow_empty:
                matching.check_rules(store, rules, found)
            if redact_default:
                replacement = "remove" if redact_default == "drop" else "zeros"
                rules += matching.default_rules(rules, found, replacement)
            left = matching.left_as_is(rules, found)
    fields = _native.copy_store(
        path,
        out,
        **vars(choice),
        renumber=renumber,
        rules=rules,
        salt=salt,
        progress=progress,
        settings=settings_of(config),
    )
    return CopyReport.made_of(fields, path=str(path), out=str(out), left_as_is=left)


@checked
def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DiffReport:
    """Compares two stores, message by message in each queue.

    Messages are the same when everything that is stored of them is: where they lie in the log, and
    checksums of the record, are left aside. Both queues are read side by side, so memory does not
    grow with them. Messages that are in no queue (prepared or rolled back) are not compared.

    Args:
        a: The first store. Both are read only.
        b: The second store.
        progress: Called with ``(done_queues, total_queues)`` now and then.
        config: As for ``mqstore.open``, for both.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: One of them is no store.
        NotDispatchedError: Too much of a log is in no queue; the text names what helps.
        StoreIOError: The system refused something.
    """
    a, b = connect_each((a, b), storage_options)
    found = _native.diff_stores(a, b, progress=progress, settings=settings_of(config))
    return DiffReport.made_of(found, a=str(a), b=str(b), ok=not found["differing"])
