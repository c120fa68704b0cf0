"""The files of an export: ``export.json``, and its messages as JSON lines, Arrow or Parquet.

``export.json`` says what an export is, so that an import can give every message its place again.
Messages are written and read in pieces, so that memory does not grow with them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from mqstore._native import Damage
from mqstore._settings import OF_FILES
from mqstore.errors import ConfigError, CorruptionError, InvalidMessageError, damaged, install
from mqstore.exchange.rows import message_of
from mqstore.text import in_utf8

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from mqstore import StoreConfig
    from mqstore._native import ArrowScan
    from mqstore.exchange.rows import Placed, Row

NAME = "export.json"
Format = Literal["jsonl", "parquet", "arrow"]
FORMATS: tuple[Format, ...] = ("jsonl", "parquet", "arrow")

# RocketMQ computes positions in 63 bits; room for the largest file is left.
_MOST_OFFSET = 2**63 - 2**32

_NUMBERS = ("messages", "bytes", "min_physical_offset", "max_physical_offset")

# Settings that another store needs for equal files.
_SETTINGS = ("rocketmq_version", "message_index_enable", *OF_FILES)
BATCH_ROWS = 32_768
"""Messages of a batch at the most."""
# A row group of Parquet ends with the batch that reaches one of the two.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 64 << 20
_IMPORT_ROWS = 1_024
_IMPORT_BYTES = 8 << 20

Piece: TypeAlias = "tuple[int, int, list[Damage]]"
"""The written part of a batch: messages, their bytes, and the damage among them."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of ``export.json``.

    Attributes:
        mqstore_export: The version of the layout.
        format: How the messages are written.
        messages: How many there are.
        bytes: How many bytes their records have.
        complete: Whether they are all of the store.
        filters: Which messages were asked for; empty where all were.
        min_physical_offset: Where the store's log begins.
        max_physical_offset: Where it ends.
        settings: The settings that the store was written with.
        written_by: The version of mqstore.
    """

    mqstore_export: int
    format: Format
    messages: int
    bytes: int
    complete: bool
    min_physical_offset: int
    max_physical_offset: int
    filters: dict[str, object] = field(default_factory=dict)
    settings: dict[str, bool | int | str] = field(default_factory=dict)
    written_by: str = ""

    def write(self, folder: Path) -> None:
        """Writes it into the export's folder."""
        text = msgspec.json.format(msgspec.json.encode(asdict(self), enc_hook=int), indent=2)
        (folder / NAME).write_bytes(text + b"\n")

    @classmethod
    def parse(cls, path: Path, text: builtins.bytes) -> Manifest:
        """Reads it.

        Args:
            path: Where it lies.
            text: What is in it.

        Raises:
            CorruptionError: It is none.
            ConfigError: A number or a setting in it that cannot be, or another version.
        """
        try:
            manifest = msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            for name in ("mqstore_export", *_NUMBERS):
                if f"$.{name}`" in str(error):
                    problem = f"{path}: {name}: {error}; nothing was written"
                    raise ConfigError(problem, name) from None
            raise damaged(path, "json", "the description of an export", error) from None
        if manifest.mqstore_export != 1:
            problem = (
                f"{path}: mqstore_export: expected 1, the version that this mqstore reads, found "
                f"{manifest.mqstore_export}; nothing was written"
            )
            raise ConfigError(problem, "mqstore_export")
        return manifest.checked(path)

    def checked(self, path: Path) -> Manifest:
        """Itself, where its numbers and settings can be.

        Raises:
            ConfigError: One cannot.
        """
        from mqstore.config import StoreConfig

        least = {"max_physical_offset": self.min_physical_offset}
        for name in _NUMBERS:
            value = getattr(self, name)
            if not least.get(name, 0) <= value <= _MOST_OFFSET:
                expected = f"{least.get(name, 0)} to {_MOST_OFFSET}"
                raise ConfigError(
                    f"{path}: {name}: expected {expected}, found {value}; nothing was written", name
                )
        try:
            StoreConfig.from_mapping(self.settings)
        except ConfigError as error:
            text = f"{path}: settings: {error}; nothing was written"
            raise ConfigError(text, error.field) from None
        return self


def exported_settings(config: StoreConfig) -> dict[str, bool | int | str]:
    """The settings that an export takes along."""
    given = config.given()
    return {name: given[name] for name in _SETTINGS if name in given}


def need_pyarrow(kind: Format) -> None:
    """Sees to it that pyarrow is there before anything is done.

    Raises:
        ConfigError: It is not, naming what to install.
    """
    if kind == "jsonl":
        return
    try:
        import pyarrow as pa  # noqa: F401
    except ModuleNotFoundError:
        text = f"format: {kind} needs pyarrow: {install('parquet')}"
        raise ConfigError(text, "format") from None


def columns_of(kind: Format) -> list[str]:
    """The columns of a scan that an export of this format needs."""
    if kind == "jsonl":
        return ["physical_offset", "store_size", "record"]
    from mqstore.exchange.arrow import scanned

    return scanned()


@contextmanager
def writer(kind: Format, path: Path, scan: ArrowScan) -> Iterator[Iterator[Piece]]:
    """Writes the batches of a scan to a new file, as the pieces are asked for."""
    if kind == "jsonl":
        with path.open("xb") as file:
            yield _json_lines(file, scan)
        return
    from mqstore.exchange.arrow import schema

    with _column_file(kind, path, schema()) as write:
        yield _columns(write, scan)


def _json_lines(file: IO[bytes], scan: ArrowScan) -> Iterator[Piece]:
    for lines, messages, size, damage in scan._json_lines():  # noqa: SLF001 - of this package
        file.write(lines)
        yield messages, size, [_damage(*one) for one in damage]


def _columns(write: Callable[[pa.RecordBatch], object], scan: ArrowScan) -> Iterator[Piece]:
    import pyarrow.compute as pc

    from mqstore.exchange.arrow import exported

    for batch in scan:
        damage: list[Damage] = []
        if "error" in batch.schema.names:
            lost = batch.filter(pc.is_valid(batch.column("error")))
            names = ("physical_offset", "store_size", "error")
            damage = [_damage(*one.values()) for one in lost.select(names).to_pylist()]
            batch = batch.filter(pc.is_null(batch.column("error")))
        write(exported(batch))
        yield batch.num_rows, pc.sum(batch.column("store_size")).as_py() or 0, damage


def _damage(physical_offset: int, length: int | None, reason: str) -> Damage:
    # A length that the column cannot hold is 2 GiB or more.
    return Damage(physical_offset, 1 << 31 if length is None else length, reason)


@contextmanager
def _column_file(
    kind: Format, path: Path, schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], object]]:
    """A new file of Parquet or Arrow; the function in it takes batches."""
    import pyarrow as pa

    if kind == "arrow":
        with pa.ipc.new_file(path, schema) as arrow:
            yield arrow.write_batch
        return
    from pyarrow import parquet

    held: list[pa.RecordBatch] = []

    def write(batch: pa.RecordBatch | None) -> None:
        if batch is not None:
            held.append(batch)
        rows, size = (sum(getattr(one, name) for one in held) for name in ("num_rows", "nbytes"))
        if held and (batch is None or rows >= _GROUP_ROWS or size >= _GROUP_BYTES):
            file.write_table(pa.Table.from_batches(held, schema), row_group_size=rows or 1)
            held.clear()

    few = ["topic", "tags", "born_host", "store_host"]
    with parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=few) as file:
        yield write
        write(None)


def read_messages(kind: Format, path: Path) -> Iterator[list[Placed]]:
    """The messages of a file in batches, each with its queue offset where it has one.

    Raises:
        CorruptionError: The file is not of that format.
        InvalidMessageError: A row that is no message; the text names it.
    """
    rows = _json_rows(path) if kind == "jsonl" else enumerate(_column_rows(kind, path), 1)
    batch: list[Placed] = []
    held = 0
    for number, row in rows:
        try:
            placed = message_of(row, number)
        except InvalidMessageError as error:
            text = f"{place_of(kind, path)} {number}: {error}"
            raise InvalidMessageError(text, error.field, str(error.status), error.limit) from None
        batch.append(placed)
        message = placed[0]
        held += len(message if isinstance(message, bytes) else message.body)
        if len(batch) >= _IMPORT_ROWS or held >= _IMPORT_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def place_of(kind: Format, path: Path) -> str:
    """The words before a row's number."""
    return f"{in_utf8(str(path))}: {'line' if kind == 'jsonl' else 'row'}"


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


def _column_rows(kind: Format, path: Path) -> Iterator[Row]:
    import pyarrow as pa

    from mqstore.exchange.arrow import rows_of

    expected = "a Parquet file" if kind == "parquet" else "an Arrow file"
    try:
        for batch in _batches(kind, path):
            yield from rows_of(batch)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _not(path, 0, kind, expected, error) from None


def _batches(kind: Format, path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if kind == "parquet":
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
