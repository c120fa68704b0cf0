"""The files that hold an export's messages: JSON lines, Arrow and Parquet.

They are written and read in pieces, so that memory does not grow with them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import msgspec

from mqstore.errors import ConfigError, CorruptionError, InvalidMessageError, damaged, install
from mqstore.exchange.rows import json_row, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from mqstore._native import StoredMessage
    from mqstore.exchange.manifest import Format
    from mqstore.exchange.rows import Placed, Row

# A batch ends with the message that reaches one of the two.
_BATCH_ROWS = 8_192
_BATCH_BYTES = 16 << 20
_IMPORT_ROWS = 1_024
_IMPORT_BYTES = 8 << 20


class Writer(Protocol):
    """Takes the messages of an export one by one."""

    def __call__(self, message: StoredMessage, /) -> None:
        """Writes one message."""


class _BatchFile(Protocol):
    """Base of Arrow's two writers."""

    def write_batch(self, batch: pa.RecordBatch, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...


def need_pyarrow(format: Format) -> None:  # noqa: A002 - as the argument is called
    """Sees to it that pyarrow is there before anything is done.

    Raises:
        ConfigError: It is not, naming what to install.
    """
    if format == "jsonl":
        return
    try:
        import pyarrow as pa  # noqa: F401
    except ModuleNotFoundError:
        text = f"format: {format} needs pyarrow: {install('parquet')}"
        raise ConfigError(text, "format") from None


def writer(format: Format, path: Path) -> AbstractContextManager[Writer]:  # noqa: A002
    """The writer of a format to a new file."""
    return _json_lines(path) if format == "jsonl" else _columns(format, path)


@contextmanager
def _json_lines(path: Path) -> Iterator[Writer]:
    with path.open("xb") as file:
        encode = msgspec.json.Encoder().encode

        def write(message: StoredMessage, /) -> None:
            file.write(encode(json_row(message)))
            file.write(b"\n")

        yield write


@contextmanager
def _columns(format: Format, path: Path) -> Iterator[Writer]:  # noqa: A002
    from mqstore.exchange.arrow import Columns, schema

    columns = Columns()
    with _column_file(format, path, schema()) as file:

        def write(message: StoredMessage, /) -> None:
            columns.add(message)
            if columns.count >= _BATCH_ROWS or columns.bytes >= _BATCH_BYTES:
                file.write_batch(columns.batch())

        yield write
        if columns.count:
            file.write_batch(columns.batch())


def _column_file(
    format: Format,  # noqa: A002
    path: Path,
    schema: pa.Schema,
) -> _BatchFile:
    if format == "parquet":
        from pyarrow import parquet

        return cast("_BatchFile", parquet.ParquetWriter(path, schema, compression="zstd"))
    from pyarrow import ipc

    return cast("_BatchFile", ipc.new_file(path, schema))


def read_messages(
    format: Format,  # noqa: A002
    path: Path,
) -> Iterator[list[Placed]]:
    """The messages of a file in batches, each with its queue offset where it has one.

    Raises:
        CorruptionError: The file is not of that format.
        InvalidMessageError: A row that is no message; the text names it.
    """
    rows = _json_rows(path) if format == "jsonl" else enumerate(_column_rows(format, path), 1)
    batch: list[Placed] = []
    held = 0
    for number, row in rows:
        try:
            placed = message_of(row, number)
        except InvalidMessageError as error:
            text = f"{place_of(format, path)} {number}: {error}"
            raise InvalidMessageError(text, error.field, str(error.status), error.limit) from None
        batch.append(placed)
        message = placed[0]
        held += len(message if isinstance(message, bytes) else message.body)
        if len(batch) >= _IMPORT_ROWS or held >= _IMPORT_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def place_of(format: Format, path: Path) -> str:  # noqa: A002
    """The words before a row's number."""
    return f"{path}: {'line' if format == 'jsonl' else 'row'}"


def _json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    at = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    expected = f"a JSON object on line {number}"
                    raise _not(path, at, "json", expected, error) from None
            at += len(line)


def _column_rows(format: Format, path: Path) -> Iterator[Row]:  # noqa: A002
    import pyarrow as pa

    from mqstore.exchange.arrow import rows_of

    expected = "a Parquet file" if format == "parquet" else "an Arrow file"
    try:
        for batch in _batches(format, path):
            yield from rows_of(batch)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _not(path, 0, format, expected, error) from None


def _batches(format: Format, path: Path) -> Iterator[pa.RecordBatch]:  # noqa: A002
    import pyarrow as pa

    if format == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_IMPORT_ROWS)
        return
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def _not(path: Path, at: int, kind: str, expected: str, error: Exception) -> CorruptionError:
    found = str(error).splitlines()[0] if str(error) else type(error).__name__
    return damaged(path, kind, expected, found, offset=at)
