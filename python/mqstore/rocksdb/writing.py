"""Writes databases as RocketMQ expects them: column families, settings, rows.

RocksDB 8.4 of a broker opens them: table format 5, and no file with options of a later release.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from mqstore.errors import StoreIOError, UnsupportedError
from mqstore.rocksdb.reading import INSTALL, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Any

_BATCH = 10_000
_OURS = ("rocksdict-config.json", "LOG*", "OPTIONS-*")


def write_database(
    folder: Path, families: tuple[str, ...], rows: Iterable[tuple[str, bytes, bytes]]
) -> int:
    """Writes a new database of column families, ``default`` first; gives the number of rows.

    Raises:
        StoreIOError: RocksDB cannot write.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    if not is_installed():
        what = "writing RocksDB needs the package rocksdict"
        raise UnsupportedError(f"{folder}: {what}: {INSTALL}", what, str(folder))
    import rocksdict

    options = _options(rocksdict)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    options.set_error_if_exists(enabled=True)
    count, left = 0, iter(rows)
    try:
        others = {name: _options(rocksdict) for name in families}
        database = rocksdict.Rdict(str(folder), options, column_families=others)
        handles = {name: database.get_column_family_handle(name) for name in families}
        unlogged = rocksdict.WriteOptions()
        unlogged.disable_wal = True  # type: ignore[method-assign,assignment]  # an attribute
        database.set_write_options(unlogged)
        while batch := list(islice(left, _BATCH)):
            together = rocksdict.WriteBatch(raw_mode=True)
            for family, key, value in batch:
                together.put(key, value, handles[family])
            database.write(together, unlogged)
            count += len(batch)
        for name in families:
            database.get_column_family(name).flush(wait=True)
        database.close()
    except Exception as error:
        # The package raises `Exception` itself.
        if type(error) is not Exception:
            raise
        raise StoreIOError(f"{folder}: RocksDB: {error}", None, str(folder), "write") from error
    for pattern in _OURS:
        for path in folder.glob(pattern):
            path.unlink()
    return count


def _options(rocksdict: Any) -> Any:  # noqa: ANN401 - classes of a package that may be missing
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())
    table.set_block_size(32 << 10)
    table.set_bloom_filter(16, block_based=False)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    return options
