"""The class ``Store``, and ``open``."""

from __future__ import annotations

import functools
import json
import operator
import os
import re
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, cast

from mqstore import _native
from mqstore.errors import (
    CorruptionError,
    StoreLockedError,
    StoreReadOnlyError,
    check_argument,
    check_path,
    expect,
    wrong_setting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from mqstore.config import ConfigLike, StoreConfig
    from mqstore.files.remote import IoCounts
    from mqstore.files.remote_path import RemotePath
    from mqstore.groups.delays import Seconds
    from mqstore.groups.group import ConsumerGroup
    from mqstore.results import RecoveryReport
    from mqstore.topic import Topic

__all__ = ["Store", "open"]

_P = TypeVar("_P")
PAUSE_S = 0.02
"""Between two attempts to take the lock."""
FRESH_S = 1.0
"""Greatest age of a listing with which a store is opened."""
_BEGINNING = threading.Lock()
_NO_OPTIONS = ("at", "snapshot", "cache_dir", "cache_bytes")
DATABASES = (
    "consumequeue",
    "consumequeue_rocksdb",
    "rocksdbstore",
    "config/topics",
    "config/subscriptionGroups",
    "config/consumerOffsets",
    "config/metadata",
    "config/rdb",
)
"""Folders of RocksDB that hold queues, the index (``rocksdbstore``) or the broker's tables."""


class Store(_native.Store):
    """A message store; made by ``mqstore.open``.

    Any number of threads may use one store. It is a context manager, and leaving the block closes
    it, with an exception too: what was appended is kept. After ``close`` every method raises
    ``StoreClosedError``; the properties ``path``, ``mode``, ``config`` and ``recovery`` stay
    readable. A scan ends where the log ended when it was asked for, whatever is appended meanwhile.

    A handle that crossed a ``fork`` still reads in the child, and raises ``StoreClosedError`` where
    it would write. It does not pickle: hand on the path, and open the store there.
    """

    __slots__ = ()

    @property
    def config(self) -> StoreConfig:
        """The settings in use: explicit ones, those of the files, and defaults."""
        from mqstore._settings import DEFAULTS
        from mqstore.config import StoreConfig

        return StoreConfig(**{**DEFAULTS, **self._settings})

    @property
    def io(self) -> IoCounts | None:
        """Requests and bytes of a store behind a URL so far; ``None`` for a local one."""
        root = self._root
        return root.counts if is_remote(root) else None

    @property
    def recovery(self) -> RecoveryReport | None:
        """Result of opening for writing; ``None`` in mode ``"r"``."""
        from mqstore.results import RecoveryReport

        fields = self._recovery
        return None if fields is None else RecoveryReport(**fields)

    def topic(self, name: str, /) -> Topic:
        """A view of one topic: its newest messages, those since a time, all of them in order.

        Args:
            name: Name of the topic; it need not be there yet.
        """
        from mqstore.topic import Topic

        return Topic(self, name)

    def group(
        self, name: str, /, *, begin: Literal["earliest", "latest"] | datetime | int = "earliest"
    ) -> ConsumerGroup:
        """A consumer group of this store, to read and to keep its place.

        In a store that mqstore made, the first group of a writer begins to deliver retries and
        delayed messages, unless ``StoreConfig(delivery=False)``. A broker's store needs
        ``StoreConfig(delivery=True)`` for it.

        Args:
            name: Name of the group.
            begin: First message of a topic in which the group has no place yet: ``"earliest"``,
                ``"latest"`` for those that are appended from now on, or the first one stored at a
                time or later, a ``datetime`` or Unix milliseconds.

        Raises:
            StoreLockedError: This group is in use already; one live group of a name.
            InvalidMessageError: Not a name that RocketMQ takes for a group.
            StoreReadOnlyError: The store lies behind a URL.
            ValueError: ``begin`` is neither of them.
        """
        from mqstore.groups.group import ConsumerGroup

        if isinstance(begin, str) and begin not in {"earliest", "latest"}:
            raise ValueError(f'begin: expected "earliest", "latest" or a time, got {begin!r}')
        local(root_of(self), "store.group")
        at = None if isinstance(begin, str) else begin
        group = ConsumerGroup(self, self._group_places(name, at, begin == "latest"))
        self._keep_group(group)
        if self.mode != "r":
            try:
                self._begin_delivery()
            except CorruptionError as error:
                self._warn(f"delivery of delayed messages: {error}")
        return group

    def _begin_delivery(self) -> bool:
        """Delivers from now on, in a store that mqstore made or if asked; whether it does."""
        with _BEGINNING:
            wanted = self._settings.get("delivery")
            if self._delivers or wanted is False:
                return self._delivers
            if wanted is None and not _is_own(self.path):
                return False
            from mqstore.groups.delays import Delivery  # most stores have none

            delivery = Delivery(self)
            self._keep_delivery(delivery)
            delivery.start()
            return True

    def _append_delayed(self, delay: Any, given: dict[str, Any]) -> _native.AppendResult:  # noqa: ANN401
        """Called by ``append`` where it has a delay."""
        from mqstore.groups.delays import append_delayed

        return append_delayed(self, delay, given)


def open(  # noqa: A001 - `mqstore.open`, as in `gzip.open`
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "a"] = "r",
    *,
    config: ConfigLike = None,
    timeout: Seconds | None = None,
    storage: object = None,
    storage_options: Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    at: datetime | int | None = None,
    snapshot: str | None = None,
) -> Store:
    """Opens a store.

    Args:
        path: The store's root folder, the one that holds ``commitlog``. Or its URL, such as
            ``s3://bucket/prefix``, for mode ``"r"``: ``pip install 'mqstore[cloud]'``.
        mode: ``"r"``: read-only; takes no lock, creates, changes and touches nothing, and is safe
            beside a running broker and on a crashed store. It is a view as of now, which
            ``refresh`` moves forward. ``"r+"``: read and write, must exist; takes the lock the way
            RocketMQ does, then recovers and starts its services. ``"a"``: as ``"r+"``, created when
            missing.
        config: A ``StoreConfig``, a mapping of the same names, or the path of a
            ``broker.conf``. What is left out is taken from the files there, else from what the
            store was made with; what is given and differs from the files is refused by its name.
        timeout: Seconds, or a ``timedelta``, to wait for another writer to close the store;
            ``math.inf`` for ever. None: not at all.
        storage: An obstore store or an fsspec file system, in which ``path`` is a prefix.
        storage_options: For a URL: options of obstore (credentials, region, endpoint, timeouts,
            all ``str``) or of the fsspec file system. Credentials of the environment and of the
            machine are found without it.
        cache_dir: For a URL: a folder that keeps whole objects, at most 16 GiB, or
            ``cache_bytes`` of `storage_options`; an object is kept under its ETag. A store with
            queues or tables in RocksDB is copied there whole, if it has at most 1 GiB.
        at: For a backup (``mqstore.sync``): a ``datetime`` or Unix milliseconds, the store as it
            was then. The newest snapshot's without it and `snapshot`.
        snapshot: For a backup: the id of a snapshot.

    Returns:
        The store, a context manager.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be, or that contradicts the files.
        StoreLockedError: Another process, or another handle of this one, writes to it.
        CorruptionError: For writing: damage in the flushed part of the log.
        StoreIOError: The operating system refused something.
        UnsupportedError: For writing: only RocksDB knows the next number of a queue. For a URL: a
            scheme that is not known or cannot list, or queues in RocksDB without ``cache_dir``.
        StoreReadOnlyError: A URL and another mode than ``"r"``.
        MissingPackageError: A URL, and neither obstore nor fsspec is installed.
        MessageNotFoundError: The backup has no such snapshot.
        ValueError: No such mode.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     store.append("orders", b"one", keys="o-1").queue_offset
        0
    """
    check_argument("path", path)
    expect("mode", mode, str, "str")
    given = {"storage_options": storage_options, "cache_dir": cache_dir, "snapshot": snapshot}
    for name, value in given.items():
        if value is not None:
            check_argument(name, value)
    settings = settings_of(config)
    if mode != "r":
        local(path if storage is None else f"storage://{path!s}", f'mode "{mode}"')
    if cache_dir is not None:
        if storage is None and not has_scheme(path):
            raise ValueError(f"cache_dir: expected None for a local path, got {cache_dir!r}")
        storage_options = {**(storage_options or {}), "cache_dir": os.fspath(cache_dir)}
    moment = {"at": at, "snapshot": snapshot}
    if at is not None or snapshot is not None:
        storage_options = {**(storage_options or {}), **moment}
    path = connect(path, storage_options, storage)
    if is_remote(path):
        path.renew(FRESH_S)
        return Store(path, mode, settings)
    left = until(timeout)
    while True:
        try:
            return _open(path, mode, settings, _broker_conf(config))
        except StoreLockedError as error:
            # The lock is RocketMQ's, a record lock, of which no call waits for a time only.
            if left() <= 0:
                advice = 'close it there, wait with timeout=, or read with mode "r"'
                text = f"{error.message}; {advice}"
                raise StoreLockedError(text, error.path, error.pid) from None
            time.sleep(min(PAUSE_S, left()))


def has_scheme(path: object) -> bool:
    """Whether a path is a URL."""
    return isinstance(path, str) and "://" in path


def _shown(url: object) -> str:
    """A URL without what may be a secret in it."""
    return re.sub(r"//[^/]*@", "//", str(url)).partition("?")[0]


def is_remote(path: object) -> TypeGuard[RemotePath]:
    """Whether a path is one that ``connect`` made of a URL."""
    return hasattr(path, "_remote")


def connect(
    path: _P, storage_options: Mapping[str, Any] | None = None, storage: object = None
) -> _P | RemotePath | str:
    """Returns a path of the operating system as it is, and a URL with its objects, listed.

    Of a store in RocksDB it is the path of a copy. Arguments and errors are those of
    ``mqstore.open``.
    """
    if is_remote(path):
        return path
    at, snapshot = ((storage_options or {}).get(name) for name in ("at", "snapshot"))
    has_moment = at is not None or snapshot is not None
    if storage is not None and has_moment:
        raise ValueError("at, snapshot: expected none beside storage; give the URL of the backup")
    if has_moment or (storage is None and is_backup(path)):
        from mqstore.backup.moment import backup_path

        options = {k: v for k, v in (storage_options or {}).items() if k not in _NO_OPTIONS}
        return backup_path(path, options, at, snapshot)  # type: ignore[arg-type]
    if storage is not None or has_scheme(path):
        from mqstore.files.remote_path import remote_path

        return remote_path(path, storage, storage_options)  # type: ignore[arg-type]
    if storage_options is not None:
        raise ValueError("storage_options: expected None for a local path, which takes no options")
    return path


def is_backup(path: object) -> bool:
    """Whether a path of the operating system is a backup's folder."""
    if not isinstance(path, (str, os.PathLike)) or has_scheme(path):
        return False
    return os.path.isfile(os.path.join(os.fspath(path), "mqstore-backup.json"))  # noqa: PTH113, PTH118 - of every open


def connect_each(
    paths: Iterable[_P], storage_options: Mapping[str, Any] | None
) -> list[_P | RemotePath | str]:
    """``connect`` for stores of which some may be local."""
    return [
        connect(path, storage_options if has_scheme(path) or is_backup(path) else None)
        for path in paths
    ]


def root_of(store: Store) -> str | RemotePath:
    """The root of an open store, for other functions of the package."""
    return store._root  # noqa: SLF001 - of this package


def below(root: str | os.PathLike[str], *names: str) -> Path:
    """The path of a file below a store's root; of a URL it has the methods that readers call."""
    if not is_remote(root):
        return Path(root, *names)
    return cast("Path", functools.reduce(operator.truediv, names, root))


def local(path: _P, call: str) -> _P:
    """Returns a path that a call writes to, which the operating system must have.

    Raises:
        StoreReadOnlyError: It is a URL, or a backup.
    """
    if is_backup(path):
        what, advice = "a backup", "make a store of it with `mqstore restore`"
    elif has_scheme(path):
        what = "a store behind a URL"
        advice = "copy it to a local folder with the tools of the object store"
    else:
        return path
    text = f"{_shown(path)}: {call} writes, {what} is read-only, and nothing was changed: {advice}"
    raise StoreReadOnlyError(f"{text}, and work there", _shown(path))


def check_outside(argument: str, path: object, root: object, kind: str = "store") -> None:
    """Refuses a path to write that lies inside of the store, or the backup, that is read.

    Raises:
        ConfigError: It does.
    """
    if not (has_scheme(path) or has_scheme(root)):
        target, source = (Path(os.path.realpath(one)) for one in (path, root))  # type: ignore[call-overload]
        if target.is_relative_to(source):
            raise wrong_setting(argument, f"a path outside of the {kind}", path)


def until(timeout: Seconds | None) -> Callable[[], float]:
    """The seconds left until a timeout that begins now."""
    if timeout is None:
        return lambda: 0.0
    from mqstore.groups.delays import seconds_or_ever

    end = time.monotonic() + seconds_or_ever(timeout, "timeout")
    return lambda: end - time.monotonic()


def _open(
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "a"],
    settings: dict[str, Any],
    broker_conf: str,
) -> Store:
    """One attempt; RocksDB is asked each time, as the last writer may have changed it."""
    # Queues or the broker's tables may lie in RocksDB.
    if any(Path(path, folder, "CURRENT").is_file() for folder in DATABASES):
        from mqstore.rocksdb import open_beside, refuse_lost_numbers

        if mode == "r":
            return open_beside(path, settings)
        refuse_lost_numbers(path, settings, broker_conf)
    store = Store(path, mode, settings)
    if mode != "r" and "keep_bytes" in settings:
        _check_keep_bytes(store)
    if mode != "r" and settings.get("delivery"):
        try:
            store._begin_delivery()  # noqa: SLF001 - of this package
        except BaseException:
            store.close()
            raise
    return store


def _check_keep_bytes(store: Store) -> None:
    """Warns of a limit that whole files cannot keep to."""
    from mqstore.config import ConfigWarning

    keep, size = store.config.keep_bytes, store.config.mapped_file_size_commit_log
    if keep is not None and size is not None and keep < size:
        text = (
            f"keep_bytes: expected at least {size}, the bytes of a file of the log "
            f"(mapped_file_size_commit_log), got {keep}: whole files are deleted, so up to "
            f"{size + keep} bytes stay; a new store can have smaller files"
        )
        warnings.warn(text, ConfigWarning, stacklevel=4)


def _is_own(root: str) -> bool:
    """Whether mqstore made a store: then its settings are all there."""
    from mqstore._settings import OWN_FILE

    try:
        kept = json.loads(Path(root, "config", OWN_FILE).read_bytes())["settings"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return "delete_when" in kept


def _wants_database(config: ConfigLike) -> bool:
    """Whether a ``broker.conf`` says that the queues lie in RocksDB."""
    if not isinstance(config, str | os.PathLike):
        return False
    from mqstore.config import broker_conf_lines

    _, value = broker_conf_lines(config).get("storeType", (0, ""))
    return value.strip().lower() == "defaultrocksdb"


# Nothing in a store proves or remembers them.
_UNPROVEN = (
    "store_path_commit_log",
    "read_only_commit_log_store_paths",
    "enable_lmq",
    "enable_multi_dispatch",
)


def _broker_conf(config: ConfigLike) -> str:
    """The option that tells a command of the same settings, as a shell takes it.

    ``FILE`` stands for a file that nobody has written yet: ``lines_of`` are its lines.
    """
    import shlex

    if isinstance(config, (str, os.PathLike)):
        return f" --config {shlex.quote(os.path.abspath(config))}"  # noqa: PTH100
    return " --config FILE" if lines_of(config) else ""


def lines_of(config: ConfigLike) -> list[str]:
    """The settings of a mapping as lines of a ``broker.conf``; none if no command needs them."""
    if config is None or isinstance(config, (str, os.PathLike)):
        return []
    from mqstore._settings import DEFAULTS, SETTINGS

    given = settings_of(config)
    if all(given.get(name, DEFAULTS[name]) == DEFAULTS[name] for name in _UNPROVEN):
        return []
    names = {name: SETTINGS[name].conf_name for name in given}
    return [
        f"{names[name]}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in given.items()
        if names[name]
    ]


def settings_of(config: ConfigLike) -> dict[str, bool | int | str]:
    """The settings that `config` has, by name, as the extension takes them."""
    if config is None:
        return {}
    from mqstore.config import load_config  # 20 ms that a plain open need not spend

    if isinstance(config, str | os.PathLike):
        check_path("config", config)
    return load_config(config).given()


def _judged_settings(config: ConfigLike) -> dict[str, bool | int | str]:
    """Settings for a verdict: what a ``broker.conf`` leaves out is the broker's default."""
    is_brokers = isinstance(config, str | os.PathLike)
    return settings_of(config) | ({"broker_conf": True} if is_brokers else {})
