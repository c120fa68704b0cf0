"""The functions ``verify`` and ``doctor``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

from mqstore import _native
from mqstore.errors import checked
from mqstore.results import Diagnosis, DoctorReport, Finding, VerifyReport
from mqstore.store import (
    DATABASES,
    _broker_conf,
    _judged_settings,
    _wants_database,
    below,
    connect,
    is_remote,
    lines_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from mqstore.config import ConfigLike
    from mqstore.files.remote_path import RemotePath
    from mqstore.rocksdb.reading import Databases


def _databases(
    path: str | os.PathLike[str], config: ConfigLike
) -> AbstractContextManager[Databases | None]:
    """The reader of a store's databases; ``None`` where there are none, nor should be."""
    names: list[str] = []
    for folder in DATABASES:
        with contextlib.suppress(OSError):
            names += [found.name for found in below(path, folder).iterdir()]
    is_there = any(name == "CURRENT" or name.startswith("MANIFEST-") for name in names)
    is_wanted = _wants_database(config)
    if not is_there and not is_wanted:
        return contextlib.nullcontext()
    from mqstore.rocksdb.reading import Databases

    return Databases(wanted=is_wanted)


def _all_read(path: object) -> AbstractContextManager[None]:
    """Fails where an object could not be read: a verdict would take it for damaged."""
    return path.all_read() if is_remote(path) else contextlib.nullcontext()


def _of_copy(command: str, url: RemotePath) -> str:
    """A command for a copy of a store behind a URL, which has the name of its last folder."""
    scheme, _, rest = url.partition("://")
    # A folder beside a root of one name has one slash.
    return command.replace(str(url), url.name).replace(f"{scheme}:/{rest}", url.name)


@checked
def verify(
    path: str | os.PathLike[str],
    *,
    level: Literal["quick", "full"] = "full",
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Checks a store for damage: compares log, queues, index, checkpoint and configuration.

    The configuration is the broker's topics and consumer offsets. ``verify`` never writes, takes no
    lock, and reports all damage, not only the first.

    Args:
        path: The store's root folder.
        level: ``"full"`` computes every checksum and follows every entry; ``"quick"`` looks at
            frames, lengths, names and headers only.
        threads: How many threads; ``None`` is one for each processor.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be.
        StoreIOError: The operating system refused something.
        ValueError: No such level, or fewer than 1 thread.
    """
    path = connect(path, storage_options)
    with _databases(path, config) as databases, _all_read(path):
        rows, counts = _native.verify(
            path,
            level=level,
            threads=threads,
            progress=progress,
            settings=_judged_settings(config),
            databases=databases,
        )
    findings = tuple(Finding(*row) for row in rows)
    ok = all(finding.severity == "info" for finding in findings)
    return VerifyReport(str(path), level, ok, findings, counts)


@checked
def doctor(
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DoctorReport:
    """Names the broken states that a store is in, with the evidence and the cure of each.

    It knows those that operators of RocketMQ report; what ``verify`` finds beyond them is a
    diagnosis by itself. One cause gives one diagnosis; what follows from it is counted there. The
    report also says whether RocketMQ starts, what is lost, which consumer groups are touched, and
    which commands to run in which order. It never writes and takes no lock.

    Args:
        path: The store's root folder.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``open``. The cures name the path of a ``broker.conf``, or ``FILE`` for one
            that is to be made of a mapping: the first line of the commands says which lines it has.
        storage_options: As for ``mqstore.open``.

    Returns:
        The diagnoses, sorted by code, none for a sound store, and the verdict.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be.
        StoreIOError: The operating system refused something.

    Examples:
        >>> import mqstore, shutil, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one", queue_id=0)
        >>> shutil.rmtree(f"{folder}/consumequeue/orders/0")
        >>> report = mqstore.doctor(folder)
        >>> [diagnosis.code for diagnosis in report], report.will_start, report.lost
        (['MQ-DOC-01'], True, 0)
    """
    path = connect(path, storage_options)
    with _databases(path, config) as databases, _all_read(path):
        rows, verdict = _native.doctor(
            path,
            progress=progress,
            settings=_judged_settings(config),
            option=_broker_conf(config),
            databases=databases,
        )
    cures = {"commands": verdict["commands"], "last_resort": verdict["last_resort"]}
    if lines := lines_of(config):
        to_make = f"# FILE is a broker.conf with these lines: {'; '.join(lines)}"
        for name, commands in cures.items():
            if any("--config FILE" in command for command in commands):
                cures[name] = [to_make, *commands]
    if is_remote(path):
        # Cures change files, so they are those of a copy.
        rows = [(*row[:4], row[4] and _of_copy(row[4], path), *row[5:]) for row in rows]
        to_copy = (
            f"# copy all below {path} to the folder {path.name}, with the tools of the object store"
        )
        cures = {
            name: [to_copy, *(_of_copy(line, path) for line in lines)] if lines else []
            for name, lines in cures.items()
        }
    return DoctorReport.made_of(
        {**verdict, **cures},
        path=str(path),
        diagnoses=[dict(zip(Diagnosis.__match_args__, row, strict=True)) for row in rows],
    )
