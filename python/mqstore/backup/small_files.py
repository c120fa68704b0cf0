"""Files that a backup keeps as a whole, and those that it leaves out."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from mqstore import _native
from mqstore.backup.offsets import read_table
from mqstore.backup.snapshot import can_keep
from mqstore.backup.source import names_in
from mqstore.store import _DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


QUEUES = {"consumequeue": 20, "batchconsumequeue": 46, "consumequeue_ext": 1}
"""Bytes of an entry; units of an extension are written before the entry that leads to them."""
_WHOLE = ("abort", "checkpoint", "mqstore.mark")
_WITHOUT_BODIES = ("config", "mqstore.acks")
_WHOLE_BELOW = (*_WITHOUT_BODIES, "mqstore.failed")
_MADE_AGAIN = ("lock", "mqstore.seal", "mqstore.wait", "abort.bak", "mqstore.deleted")


def small_files(
    root: Path, skipped: list[str], *, redact: str | None
) -> Iterator[tuple[str, bytes]]:
    """Files that are kept as a whole.

    Args:
        root: The store's root folder.
        skipped: A line is added for each file that is not kept.
        redact: As for ``mqstore.sync``.
    """
    names: list[str] = list(_WHOLE)
    for folder in _WITHOUT_BODIES if redact else _WHOLE_BELOW:
        found = (name.removesuffix(".bak") for name in names_in(root / folder))
        names += dict.fromkeys(f"{folder}/{name}" for name in found)
    for name in names:
        path = root / name
        if name.endswith(".tmp") or name in _DATABASES:
            continue
        if path.is_symlink() or path.is_dir():
            skipped.append(f"{name!a}: a {'link' if path.is_symlink() else 'folder'}")
        elif not can_keep(name):
            skipped.append(f"{name!a}: no name of a store")
        elif (content := _content(path)) is not None:
            yield name, content


def _content(path: Path) -> bytes | None:
    """A file, or its `.bak` where a broker would read that in its place."""
    found: dict[Path, bytes] = {}
    for place in (path, path.with_name(f"{path.name}.bak")):
        with contextlib.suppress(FileNotFoundError):  # replaced or removed meanwhile
            if place.is_file() and not place.is_symlink():
                found[place] = place.read_bytes()
    readable = (c for c in found.values() if len(found) > 1 and read_table(c) is not None)
    return next(readable, next(iter(found.values()), None))


def left_out_names(root: Path, *, redact: str | None) -> Iterator[str]:
    """A line for each kind of files that no snapshot has."""
    for name in sorted(names_in(root)):
        known = _native._store_name(os.fsencode(name).decode("utf-8", "replace"))  # noqa: SLF001
        below = _WITHOUT_BODIES if redact else _WHOLE_BELOW
        if name in (*_WHOLE, *below, *_MADE_AGAIN, *QUEUES, "commitlog", "index"):
            continue
        yield f"{name}: {'no file of a store' if known is None else known[1]}"
    for name in _DATABASES:
        if (root / name / "CURRENT").is_file():
            made = "offsets are kept as consumerOffset.json" if "Offsets" in name else ""
            yield f"{name}: a database of RocksDB; {made or 'its rows are made from the log'}"
