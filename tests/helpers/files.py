"""Compares files below a store's root."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_CHUNK = 1 << 20
_PAGE = 4096


def data_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The bytes of a file other than its holes, in whole pages, with their positions."""
    with path.open("rb") as file:
        position = 0
        while True:
            try:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            end = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            position -= position % _PAGE
            end += -end % _PAGE
            while position < end:
                chunk = os.pread(file.fileno(), min(_CHUNK, end - position), position)
                if not chunk:
                    return
                yield position, chunk
                position += len(chunk)


def digest(path: Path) -> str:
    """Length and content in short; zeros count the same whether written or not."""
    hasher = hashlib.sha256()
    for position, chunk in data_of(path):
        # Page by page: where a hole begins is the file system's affair.
        for start in range(0, len(chunk), _PAGE):
            page = chunk[start : start + _PAGE]
            if page.count(0) != len(page):
                hasher.update(f"{position + start}:".encode() + page)
    return f"{path.stat().st_size} bytes, {hasher.hexdigest()[:16]}"


def is_empty(path: Path) -> bool:
    """Whether a file holds nothing but zeros."""
    return all(chunk.count(0) == len(chunk) for _, chunk in data_of(path))


def digests(root: Path, folder: str, *, without: Collection[str] = ()) -> dict[str, str]:
    """Every file below a folder of a store, by its path from the root."""
    found = {
        str(path.relative_to(root)): path
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }
    return {name: digest(path) for name, path in found.items() if name not in without}


def used_log_files(root: Path, *, without: Collection[str] = ()) -> dict[str, str]:
    """The commit log files; one that holds nothing yet counts as not there."""
    return {
        name: value
        for name, value in digests(root, "commitlog", without=without).items()
        if not is_empty(root / name)
    }


def index_files(root: Path) -> list[Path]:
    """The index files, oldest first."""
    folder = root / "index"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def copy_store(source: Path, target: Path) -> Path:
    """A copy in which holes stay holes, however large the files are."""

    def copy_file(from_name: str, to_name: str) -> str:
        with Path(to_name).open("wb") as out:
            for position, chunk in data_of(Path(from_name)):
                out.seek(position)
                out.write(chunk)
            out.truncate(Path(from_name).stat().st_size)
        shutil.copystat(from_name, to_name)
        return to_name

    shutil.copytree(source, target, copy_function=copy_file)
    return target


def stamps(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything below a folder with what a write, or making a file, would change."""
    return {
        str(path.relative_to(root)): (
            stat.st_ino,
            stat.st_mode,
            stat.st_nlink,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
        )
        for path in sorted(root.rglob("*"))
        for stat in [path.lstat()]
    }
