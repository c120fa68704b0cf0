from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypedDict, type_check_only

from mqstore._native._message import Message
from mqstore._native._types import _Path

@type_check_only
class _Copied(TypedDict):
    messages: int
    bytes: int
    left_out: int
    stand_ins: int
    redacted: int
    renumbered: bool
    in_place: bool
    deleted_topics: list[str]
    config_files: list[str]

@type_check_only
class _Differing(TypedDict):
    queues: int
    messages: int
    differing: list[tuple[str, int, int, int, int, int]]
    differences: list[tuple[Literal["missing", "extra", "different"], str, int, int, list[str]]]

def import_messages(
    path: _Path,
    batches: Iterable[Sequence[tuple[Message | bytes, int | None, int | None, int]]],
    /,
    *,
    place: str,
    settings: Mapping[str, object],
    files: Sequence[tuple[str, bytes]],
    base_offset: int,
    renumber: bool,
) -> tuple[int, int, int, bool]:
    """Makes a store of messages; ``mqstore.import_store`` is the public door to this.

    Args:
        path: The store to make; nothing, or an empty folder, may be there.
        batches: Messages, or whole records as bytes, each with its queue offset or ``None`` for the
            next one of its queue, the physical offset that it had or ``None``, and the number of
            its row. A message that names no time or host gets the present ones.
        place: The file and the word before a row's number, for errors.
        settings: As for ``Store``.
        files: Names and bytes of the files that are to lie in ``config``; tables of offsets are
            changed with the numbers of the messages.
        base_offset: Where the log begins.
        renumber: Whether each queue is numbered from 0 on.

    Returns:
        How many messages were written, the bytes of their records, how many others stand in for
        queue offsets that no message has, and whether each lies where its record said.

    Raises:
        InvalidMessageError: Bytes that are no record, a record that fits into no file, or values
            that no append takes; the text begins with the row's place.
        StoreIOError: Something is at ``path`` already, or the system refused something.
    """

def copy_store(
    path: _Path,
    out: _Path,
    /,
    *,
    topics: Iterable[str] | None,
    tags: str | None,
    keys: Sequence[str] | None,
    begin_ms: int | None,
    end_ms: int | None,
    renumber: bool,
    rules: Sequence[
        tuple[
            Sequence[str],
            tuple[str, bytes | None] | None,
            Sequence[tuple[str, tuple[str, bytes | None]]],
        ]
    ],
    salt: bytes,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Copied:
    """Copies a store or a part of it; ``mqstore.copy`` is the public door to this.

    Args:
        path: The store.
        out: The store to make; nothing, or an empty folder, may be there.
        topics: Only these topics.
        tags: A tag expression.
        keys: Only messages with one of these keys.
        begin_ms: First store time.
        end_ms: Last store time.
        renumber: Whether each queue is numbered from 0 on.
        rules: Patterns of topics, what takes the place of bodies, and of properties by their
            names: ``("zeros", None)``, ``("hash", None)``, ``("remove", None)``, or
            ``("constant", bytes)``.
        salt: Bytes hashed with each value.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        settings: As for ``Store``.

    Returns:
        The fields of ``mqstore.CopyReport`` but the two paths.

    Raises:
        CorruptionError: Damage in the source.
        ConfigError: A property that may not be replaced.
        StoreIOError: Something is at ``out`` already, or the system refused something.
    """

def diff_stores(
    a: _Path,
    b: _Path,
    /,
    *,
    progress: Callable[[int, int], object] | None,
    settings: Mapping[str, object],
) -> _Differing:
    """Holds two stores against each other; ``mqstore.diff`` is the public door to this.

    Args:
        a: The first store.
        b: The second.
        progress: Called with ``(done_queues, total_queues)`` now and then.
        settings: As for ``Store``.

    Returns:
        ``queues`` and ``messages`` as in ``mqstore.DiffReport``; ``differing``, each ``(topic,
        queue_id, same, missing, extra, different)``; ``differences``, each ``(kind, topic,
        queue_id, queue_offset, fields)``.

    Raises:
        NotDispatchedError: Too much of a log is in no queue.
        StoreIOError: The system refused something.
    """
