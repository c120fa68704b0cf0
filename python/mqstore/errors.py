"""Exceptions of the store.

::

    StoreError
    +-- NotAStoreError          (FileNotFoundError)    no such path, or no store there
    +-- StoreIOError            (OSError)              the operating system refused something
    +-- CorruptionError                                bytes on disk are not what the format demands
    +-- InvalidMessageError     (ValueError)           a message that the store refuses
    +-- ConfigError             (ValueError)           a setting that cannot be used
    +-- StoreLockedError                               another process or handle writes to it
    +-- StoreClosedError                               used after close
    +-- StoreReadOnlyError                             a write to what was opened for reading
    +-- StorePoisonedError                             a flush failed: writing has ended
    +-- FlushTimeoutError       (TimeoutError)         stored, perhaps not durable
    +-- OffsetOutOfRangeError   (IndexError)           the log does not reach there
    +-- MessageNotFoundError    (LookupError)          no record begins there, or unknown id
    +-- NotDispatchedError                             too much of the log is in no queue yet
    +-- UnsupportedError        (NotImplementedError)  a RocketMQ feature that mqstore lacks

``args`` holds the message and all attributes, so each class can be pickled (multiprocessing and
Spark do that).
"""

from __future__ import annotations

import contextlib
import errno as _errno
import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mqstore.status import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from mqstore._native import AppendResult

_P = ParamSpec("_P")
_T = TypeVar("_T")

__all__ = [
    "ConfigError",
    "CorruptionError",
    "FlushTimeoutError",
    "InvalidMessageError",
    "MessageNotFoundError",
    "NotAStoreError",
    "NotDispatchedError",
    "OffsetOutOfRangeError",
    "StoreClosedError",
    "StoreError",
    "StoreIOError",
    "StoreLockedError",
    "StorePoisonedError",
    "StoreReadOnlyError",
    "UnsupportedError",
]


class StoreError(Exception):
    """Base class of all errors of a store: ``StoreError(message)``.

    Attributes:
        message: The message, one line.
        index: From ``append_many``, ``append_arrow``: index of the failed message; else ``None``.
        results: From these: results of the messages written before it.
    """

    message: str
    index: int | None = None
    results: Sequence[AppendResult] = ()

    def __init__(self, message: str, *carried: object) -> None:
        super().__init__(message)
        self.message = message
        self.args = (message, *carried)

    def __str__(self) -> str:
        return self.message


class NotAStoreError(StoreError, FileNotFoundError):
    """There is no such path, or no store in it: ``NotAStoreError(message, path, reason)``.

    Attributes:
        path: The path that was given; ``filename`` is the same.
        reason: The missing file or folder.
    """

    def __init__(self, message: str, path: str, reason: str) -> None:
        super().__init__(message, path, reason)
        self.path = path
        self.reason = reason
        self.errno = _errno.ENOENT
        self.strerror = reason
        self.filename = path


class StoreIOError(StoreError, OSError):
    """A call to the operating system failed: ``StoreIOError(message, errno, path, op)``.

    Attributes:
        errno: The system's number, or ``None`` where it gave none.
        strerror: The system's text for it.
        filename: The file or folder; ``path`` is the same.
        op: The operation: ``"open"``, ``"read"``, ``"flush"``.
    """

    def __init__(self, message: str, errno: int | None, path: str, op: str) -> None:
        super().__init__(message, errno, path, op)
        self.errno = errno
        self.strerror = message if errno is None else os.strerror(errno)
        self.filename = path
        self.path = path
        self.op = op


class CorruptionError(StoreError):
    """Damage: ``CorruptionError(message, path, offset, kind, expected, found)``.

    Attributes:
        path: The file; ``None`` for bytes that came from the caller.
        offset: The byte in that file, or in the bytes given.
        kind: Stable name of the violated rule, such as ``"body-crc"``.
        expected: Expected content.
        found: Content found.
    """

    def __init__(
        self, message: str, path: str | None, offset: int, kind: str, expected: str, found: str
    ) -> None:
        super().__init__(message, path, offset, kind, expected, found)
        self.path = path
        self.offset = offset
        self.kind = kind
        self.expected = expected
        self.found = found


class InvalidMessageError(StoreError, ValueError):
    """A message is refused: ``InvalidMessageError(message, field, status, limit)``.

    Attributes:
        field: The field at fault.
        status: RocketMQ's status for it.
        limit: The limit that it broke, in the field's unit, or ``None``.
    """

    def __init__(self, message: str, field: str, status: str, limit: int | None = None) -> None:
        super().__init__(message, field, status, limit)
        self.field = field
        self.status = PutStatus(status)
        self.limit = limit


class ConfigError(StoreError, ValueError):
    """A setting cannot be used: ``ConfigError(message, field)``.

    Attributes:
        field: The setting, by its name in ``mqstore.StoreConfig``.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, field)
        self.field = field


class StoreLockedError(StoreError):
    """Another process or handle writes to the store: ``StoreLockedError(message, path, pid)``.

    Attributes:
        path: The lock file, or the other locked file.
        pid: Process that holds the lock, if the system reports it.
    """

    def __init__(self, message: str, path: str, pid: int | None = None) -> None:
        super().__init__(message, path, pid)
        self.path = path
        self.pid = pid


class StoreClosedError(StoreError):
    """The store or file was closed before: ``StoreClosedError(message)``."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class StoreReadOnlyError(StoreError):
    """A write to what was opened for reading: ``StoreReadOnlyError(message, path)``.

    Attributes:
        path: The store or file.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message, path)
        self.path = path


class StorePoisonedError(StoreError):
    """A flush failed, now or before: ``StorePoisonedError(message, path, reason)``.

    The store is read-only until it is opened again. Messages whose append had returned are safe;
    those that were waiting may or may not be there.

    Attributes:
        path: The file whose flush failed.
        reason: The failed operation.
    """

    def __init__(self, message: str, path: str, reason: str) -> None:
        super().__init__(message, path, reason)
        self.path = path
        self.reason = reason


class FlushTimeoutError(StoreError, TimeoutError):
    """Stored, perhaps not durable: ``FlushTimeoutError(message, result, timeout_ms)``.

    Attributes:
        result: The result that the append would have returned.
        timeout_ms: The time that was allowed, setting ``sync_flush_timeout``.
        status: RocketMQ's status for it.
    """

    status = PutStatus.FLUSH_DISK_TIMEOUT

    def __init__(self, message: str, result: AppendResult, timeout_ms: int) -> None:
        super().__init__(message, result, timeout_ms)
        self.result = result
        self.timeout_ms = timeout_ms
        self.errno = _errno.ETIMEDOUT
        self.strerror = os.strerror(_errno.ETIMEDOUT)


class OffsetOutOfRangeError(StoreError, IndexError):
    """The log does not reach there: ``OffsetOutOfRangeError(message, physical_offset, min, max)``.

    Also where another log lies than the one that was read up to there, and where retention deleted
    messages that a group had not read: then the numbers are queue offsets.

    Attributes:
        physical_offset: The offset that was asked for.
        min: The first offset of the log, or of the queue.
        max: One past the last byte of the log, or the end of the queue.
    """

    def __init__(self, message: str, physical_offset: int, min: int, max: int) -> None:  # noqa: A002
        super().__init__(message, physical_offset, min, max)
        self.physical_offset = physical_offset
        self.min = min
        self.max = max


class MessageNotFoundError(StoreError, LookupError):
    """No record begins there, or no message has the id: ``MessageNotFoundError(message)``."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class NotDispatchedError(StoreError):
    """Too much of the log is in no queue yet.

    ``NotDispatchedError(message, path, physical_offset, bytes, limit)``. Rebuilding the queues from
    the log, or opening the store for writing, ends it.

    Attributes:
        path: The store.
        physical_offset: Start of the part that is in no queue.
        bytes: Its length.
        limit: Maximum length that a reader handles.
    """

    def __init__(
        self,
        message: str,
        path: str,
        physical_offset: int,
        bytes: int,  # noqa: A002
        limit: int,
    ) -> None:
        super().__init__(message, path, physical_offset, bytes, limit)
        self.path = path
        self.physical_offset = physical_offset
        self.bytes = bytes
        self.limit = limit


class UnsupportedError(StoreError, NotImplementedError):
    """A RocketMQ feature that mqstore lacks: ``UnsupportedError(message, what, path)``.

    Attributes:
        what: The feature.
        path: The file, store or folder that uses it.
    """

    def __init__(self, message: str, what: str, path: str) -> None:
        super().__init__(message, what, path)
        self.what = what
        self.path = path


# The types of arguments, and the names that have them in the whole package.
_TYPES: dict[str, tuple[Any, str]] = {
    "path": ((str, os.PathLike), "str or os.PathLike"),
    "text": (str, "str"),
    "texts": (Iterable, "str or a sequence of str"),
    "call": (Callable, "a function"),
    "options": (Mapping, "a mapping"),
    "flag": (bool, "bool"),
    "number": (int, "int"),
    "duration": (timedelta, "timedelta"),
}
_KINDS = {
    "path": "path target out source a b out_html cache_dir only_backed_up spill",
    "text": "tags snapshot group topic key id to",
    "texts": "topics keys by what",
    "call": "progress backoff",
    "options": "storage_options",
    "flag": "dry_run allow_empty renumber overwrite drop_beyond new_timeline allow_files verify",
    "number": "keep_hourly to_offset bytes_per_s threads queue_id queue_offset",
    "duration": "keep",
}


def expected_got(wanted: str, got: object, advice: str = "") -> str:
    """The form of all errors about an argument, behind its name."""
    return f"expected {wanted}, got {got}{advice and '; '}{advice}"


def expected(argument: str, wanted: str, got: object, advice: str = "") -> str:
    """The text of an error about an argument: ``argument: expected …, got …``."""
    return f"{argument}: {expected_got(wanted, got, advice)}"


def wrong_setting(argument: str, wanted: str, got: object, advice: str = "") -> ConfigError:
    """The error for a setting; the last word of `argument` is the field."""
    return ConfigError(expected(argument, wanted, got, advice), argument.rpartition(" ")[2])


def damaged(
    path: str | os.PathLike[str],
    kind: str,
    wanted: str,
    found: object,
    advice: str = "",
    *,
    offset: int = 0,
) -> CorruptionError:
    """The error for bytes on disk: ``file: byte …: kind: expected …, found …``."""
    place = os.fspath(path)
    text = f"{place}: byte {offset}: {kind}: expected {wanted}, found {found}"
    text += advice and f"; {advice}"
    return CorruptionError(text, place, offset, kind, wanted, str(found))


@contextlib.contextmanager
def io_errors(op: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises an error of the operating system as a ``StoreIOError``."""
    try:
        yield
    except StoreIOError:
        raise
    except OSError as error:
        place = os.fspath(path)
        raise StoreIOError(f"{op} {place}: {error.strerror}", error.errno, place, op) from error


def expect(argument: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuses a value of another type.

    Raises:
        TypeError: It names the argument, what was expected and what was found.
    """
    if not (hasattr(value, "__index__") if kind is int else isinstance(value, kind)):
        raise TypeError(expected(argument, wanted, type(value).__name__))


def check_path(name: str, path: Any) -> None:  # noqa: ANN401
    """Refuses a path that the system cannot name.

    Raises:
        ConfigError: It names the argument.
    """
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(path):
            return
    raise wrong_setting(name, "a path that the system can name", repr(path))


def check_argument(name: str, value: object) -> None:
    """Refuses what no argument of this name can be, in each function of the package.

    Raises:
        TypeError: A value of another type.
        ConfigError: A text that UTF-8 cannot hold, a path that the system cannot name.
    """
    kind = next((kind for kind, names in _KINDS.items() if name in names.split()), None)
    if kind is None:
        return
    kinds, wanted = _TYPES[kind]
    expect(name, value, kinds, wanted)
    if kind == "path":
        check_path(name, value)
    elif kind in ("text", "texts"):
        # An iterator can be read once only.
        texts = (value,) if isinstance(value, str) else value
        for text in texts if isinstance(texts, Collection) else ():
            expect(name, text, str, wanted)
            if re.search("[\ud800-\udfff]", text):
                raise wrong_setting(name, "UTF-8 text", repr(text))


def checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function of the package that has its arguments checked by their names first."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    ends = zip(names[code.co_argcount - 1 :: -1], (function.__defaults__ or ())[::-1], strict=False)
    defaults = {**dict(ends), **(function.__kwdefaults__ or {})}

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            # A filter that is handed on has no default here.
            if value is not None or (name in names and defaults.get(name, ...) is not None):
                check_argument(name, value)
        return function(*args, **kwargs)

    return call


def unexpected(function: str, name: object) -> TypeError:
    """The error for a keyword argument that a function of the package has not."""
    import difflib  # only for an error
    import inspect
    import operator

    from mqstore import _native

    names = [*inspect.signature(operator.attrgetter(function)(_native)).parameters]
    # A singular is near its plural, however short.
    near = [known for known in names if known in (f"{name}s", f"{name}_ms", f"{name}_id")]
    near += difflib.get_close_matches(str(name), names, n=3, cutoff=0.6)
    offer = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    return TypeError(f"{function}() has no argument {name!r}{offer}")


class MissingPackageError(ModuleNotFoundError):
    """A package is not installed that an extra of mqstore brings."""


def install(extra: str) -> str:
    """The command that installs an extra of mqstore."""
    return f"pip install 'mqstore[{extra}]'"


@contextlib.contextmanager
def needs(extra: str, user: str = "this", where: str = "") -> Iterator[None]:
    """Names the extra that has the packages imported in the block.

    Raises:
        MissingPackageError: One of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name or ""
        if not name.startswith("google."):
            name = name.partition(".")[0]
        if isinstance(error, MissingPackageError) or name == "mqstore":
            raise
        raise MissingPackageError(
            f"{user} needs {name}, which is not installed{where}: {install(extra)}", name=name
        ) from None


def package(name: str, extra: str) -> ModuleType:
    """Imports an optional package; the extension calls it.

    Raises:
        MissingPackageError: It is not installed.
    """
    from importlib import import_module

    with needs(extra):
        return import_module(name)
