from collections.abc import Mapping

from mqstore._native._types import _Path

def _check_owner(path: _Path, /, *, settings: Mapping[str, object]) -> None:
    """Refuses if files made in a store would not get owner and group of its folders.

    Raises:
        StoreIOError: They would not, or the operating system refused something.
    """

def _make_file(path: _Path, data: bytes, /, *, position: int, size: int) -> None:
    """Makes a file of zeros and its folders, and writes bytes into it.

    Args:
        path: The file, which must not exist.
        data: The bytes.
        position: Where they begin.
        size: Length of the file.

    Raises:
        StoreIOError: The operating system refused something.
    """

def _replace_file(path: _Path, data: bytes, /) -> None:
    """Replaces a file, or makes it and its folders: atomically and durably.

    Raises:
        StoreIOError: The operating system refused something.
    """

def _copy_folder(source: _Path, target: _Path, /) -> None:
    """Copies a folder, with what is in it and is no link, to a new one.

    Raises:
        StoreIOError: The operating system refused something.
    """
