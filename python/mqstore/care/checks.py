"""The functions ``verify`` and ``doctor``."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from mqstore import _native
from mqstore.results import (
    Diagnosis,
    DoctorReport,
    Finding,
    GroupFate,
    LostInQueue,
    VerifyReport,
)
from mqstore.store import _DATABASES, _broker_conf, _judged_settings, _wants_database, local

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore.config import ConfigLike


def _had_databases(path: str | os.PathLike[str]) -> bool:
    """The same of what may be damaged; lists the folders."""
    names: list[str] = []
    for folder in _DATABASES:
        with contextlib.suppress(OSError):
            names += os.listdir(os.path.join(path, folder))  # noqa: PTH118, PTH208
    return any(name == "CURRENT" or name.startswith("MANIFEST-") for name in names)


def verify(
    path: str | os.PathLike[str],
    *,
    level: Literal["quick", "full"] = "full",
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
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

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be.
        StoreIOError: The operating system refused something.
        ValueError: No such level, or fewer than 1 thread.
    """
    local(path, "mqstore.verify")
    rows, counts = _native.verify(
        path, level=level, threads=threads, progress=progress, settings=_judged_settings(config)
    )
    findings = tuple(Finding(*row) for row in rows)
    if _had_databases(path) or _wants_database(config):
        from mqstore.rocksdb.checking import check

        more, counted = check(path, level=level, config=config)
        findings += tuple(more)
        counts |= counted
    ok = all(finding.severity == "info" for finding in findings)
    return VerifyReport(str(path), level, ok, findings, counts)


def doctor(
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
) -> DoctorReport:
    """Names the broken states that a store is in, with the evidence and the cure of each.

    It knows those that operators of RocketMQ report; what ``verify`` finds beyond them is a
    diagnosis by itself. One cause gives one diagnosis; what follows from it is counted there. The
    report also says whether RocketMQ starts, what is lost, which consumer groups are touched, and
    which commands to run in which order. It never writes and takes no lock.

    Args:
        path: The store's root folder.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``open``; where it is the path of a ``broker.conf``, the cures name it.

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
    local(path, "mqstore.doctor")
    rows, verdict = _native.doctor(path, progress=progress, settings=_judged_settings(config))
    given = _broker_conf(config)

    def with_config(command: str) -> str | None:
        is_ours = command.rpartition(" && ")[2].startswith("mqstore ")
        return _with(given, command) if is_ours else command

    def diagnosis(row: tuple[Any, ...]) -> Diagnosis:
        code, severity, title, evidence, cure, fix, follows = row
        cure = cure and with_config(cure)
        return Diagnosis(code, severity, title, tuple(evidence), cure, fix, tuple(follows))

    found = list(map(diagnosis, rows))
    commands = [one for one in map(with_config, verdict["commands"]) if one is not None]
    lost, queues, from_ms, to_ms = verdict["lost"]
    had_databases = _had_databases(path)
    if had_databases or _wants_database(config):
        from mqstore.rocksdb.checking import diagnoses
        from mqstore.rocksdb.losses import end_missing, lost_rows

        if not had_databases:
            # A broker of this storeType does not read queues in files.
            of_files = " --what consumequeue "
            commands = [one for one in commands if of_files not in one]
            found = [
                replace(one, cure=None) if of_files in (one.cure or "") else one for one in found
            ]

        databases = diagnoses(path, given, config)
        damaged = any(one.severity == "error" for one in (*found, *databases))
        of_rows, behind = ([], False) if lost else lost_rows(path, config, damaged=damaged)
        if of_rows and not verdict["in_use"]:
            lost, queues = sum(row.messages for row in of_rows), [*of_rows]
            if behind:
                # Rows made again from the log would hide what is missing.
                databases = [*(replace(one, cure=None) for one in databases), end_missing(of_rows)]
                found = [replace(one, cure=None) for one in found]
                commands = []
        found += databases
        unread = [one for one in databases if (one.code, one.severity) == ("MQ-RDB-01", "error")]
        verdict["obstacles"].extend(line for one in unread for line in one.evidence)
        if not verdict["in_use"]:
            cures = dict.fromkeys(one.cure for one in databases if one.cure)
            commands += [cure for cure in cures if not any(one.endswith(cure) for one in commands)]
    return DoctorReport(
        path=str(path),
        diagnoses=tuple(found),
        release=verdict["release"],
        in_use=verdict["in_use"],
        will_start=not verdict["obstacles"],
        obstacles=tuple(verdict["obstacles"]),
        lost=lost,
        lost_queues=tuple(LostInQueue(*row) for row in queues),
        lost_from_ms=from_ms,
        lost_to_ms=to_ms,
        groups=tuple(GroupFate(*row) for row in verdict["groups"]),
        commands=tuple(commands),
        last_resort=tuple(one for one in map(with_config, verdict["last_resort"]) if one),
    )


def _with(given: str, cure: str) -> str | None:
    """A cure with the configuration that was given; ``None`` where it needs one and has none."""
    asks = " --config broker.conf"
    return None if cure.endswith(asks) and not given else cure.removesuffix(asks) + given
