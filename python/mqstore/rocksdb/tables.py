"""The broker's tables of topics, groups and offsets, where they lie in RocksDB.

Three layouts: a database for each table, one for all (``useSingleRocksDBForAllConfigs``), and that
of ``configManagerVersion=v2``. All give the tables that the broker's JSON files hold.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from mqstore import _native
from mqstore.errors import StoreError, damaged
from mqstore.rocksdb.reading import has_rows, is_database, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Table = dict[str, Any]
Tables = dict[str, Table]

# Name of the JSON file, and the field of its rows.
TOPICS = ("topics.json", "topicConfigTable")
GROUPS = ("subscriptionGroup.json", "subscriptionGroupTable")
OFFSETS = ("consumerOffset.json", "offsetTable")
# Database, its family of rows, its family of versions, and the table there.
_SEPARATE = (
    ("topics", "default", "kvDataVersion", TOPICS),
    ("subscriptionGroups", "default", "kvDataVersion", GROUPS),
    ("consumerOffsets", "default", "kvDataVersion", OFFSETS),
    ("metadata", "topic", "topicVersion", TOPICS),
    ("metadata", "subscriptionGroup", "subscriptionGroupVersion", GROUPS),
    ("metadata", "consumerOffset", "consumerOffsetVersion", OFFSETS),
)
_V2 = "rdb"
_NUMBER = re.compile(r'"(\d+)":')


def databases_of(root: Path) -> list[Path]:
    """The databases that may hold tables of a store."""
    names = [*dict.fromkeys(name for name, *_ in _SEPARATE), _V2]
    folders = [root / "config" / name for name in names]
    return [folder for folder in folders if is_database(folder) and has_rows(folder)]


def read_tables(root: Path) -> Tables:
    """Reads the tables in RocksDB, by the names of the JSON files that hold the same.

    Raises:
        CorruptionError: Damage in a file of a database.
        StoreIOError: The operating system refused something.
        UnsupportedError: The package ``rocksdict`` is not installed.
    """
    tables: Tables = {}
    for folder in databases_of(root):
        found = dict(_read_v2(folder) if folder.name == _V2 else _read_v1(folder))
        for name, table in found.items():
            if _age(table) >= _age(tables.get(name, {})):
                tables[name] = table
    return tables


def move_tables(root: Path) -> None:
    """Writes the tables to the JSON files of the store, whose old ones become ``.bak``.

    A broker with queues in files reads these alone. A newer file, or its backup that a broker
    would read, stays.

    Raises:
        CorruptionError: A file is damaged, and its content would be lost; it is as it was.
    """
    for name, table in _newer_tables(root):
        with _checked(root / "config", name.encode()):
            text = json.dumps({**_json_of(root / "config" / name), **table})
        # As RocketMQ writes the numbers of queues.
        text = _NUMBER.sub(r"\1:", text) if name == OFFSETS[0] else text
        _native._keep_config(root / "config" / name)  # noqa: SLF001 - our own
        _native._write_config_json(root / "config" / name, text)  # noqa: SLF001 - our own


def _newer_tables(root: Path) -> Iterator[tuple[str, Table]]:
    for name, table in read_tables(root).items():
        if _age(_json_of(root / "config" / name)) <= _age(table):
            yield name, table


def write_tables(root: Path, config: Path, _: Mapping[str, object]) -> bool:
    """Writes the tables as JSON files, unless the store has a newer file of the same."""
    written = False
    for name, table in _newer_tables(root):
        config.mkdir(exist_ok=True)
        with _checked(root / "config", name.encode()):
            (config / name).write_text(json.dumps(table), encoding="utf-8")
        written = True
    return written


def _read_v1(folder: Path) -> Iterator[tuple[str, Table]]:
    for name, rows, versions, (file, field) in _SEPARATE:
        if name != folder.name:
            continue
        table: Table = {field: {}}
        for family, key, value in read_rows(folder, [rows, versions]):
            body = _parsed(folder, value)
            if family == versions:
                if key == b"kvDataVersionKey":
                    table["dataVersion"] = body
            elif file == OFFSETS[0]:
                with _checked(folder, value):
                    table[field][_text(key)] = dict(body.get("offsetTable", {}))
            else:
                table[field][_text(key)] = body
        if table[field] or "dataVersion" in table:
            yield file, table


def _read_v2(folder: Path) -> Iterator[tuple[str, Table]]:
    tables: dict[int, Table] = defaultdict(dict)
    versions: dict[int, Table] = {}
    for _, key, value in read_rows(folder, ["default"]):
        with _checked(folder, key):
            table, kind, rest = int.from_bytes(key[1:3], "big"), key[3], key[4:]
            if kind == 1:
                names = ("stateVersion", "timestamp", "counter")
                numbers = (int.from_bytes(value[at : at + 8], "big") for at in (0, 8, 16))
                versions[table] = dict(zip(names, numbers, strict=True))
            elif table in (1, 2):
                group, rest = _name(rest)
                topic, rest = _name(rest[1:])
                queue_id = int.from_bytes(rest[1:5], "big", signed=True)
                offsets = tables[table].setdefault(f"{topic}@{group}", {})
                offsets[str(queue_id)] = int.from_bytes(value, "big", signed=True)
            elif table in (3, 4) and value[:1] == b"\x01":
                tables[table][_name(rest)[0]] = _parsed(folder, value[1:])
    for number, (file, field) in ((1, OFFSETS), (3, TOPICS), (4, GROUPS)):
        if number in tables or number in versions:
            found = {field: tables[number], "dataVersion": versions.get(number, {})}
            if number == 1 and 2 in tables:
                found["pullOffsetTable"] = tables[2]
            yield file, found


@contextlib.contextmanager
def _checked(folder: Path, row: bytes) -> Iterator[None]:
    """Turns what a wrong layout raises into the store's own error."""
    try:
        yield
    except (ValueError, IndexError, TypeError, RecursionError) as error:
        wanted = "a row as RocketMQ writes a table"
        raise damaged(folder, "rocksdb", wanted, repr(row[:80])) from error


def _parsed(folder: Path, value: bytes) -> Table:
    with _checked(folder, value):
        body = json.loads(value)
        if not isinstance(body, dict):
            raise ValueError  # noqa: TRY004 - read as a wrong layout
    return body


def _name(key: bytes) -> tuple[str, bytes]:
    end = 2 + int.from_bytes(key[:2], "big")
    if len(key) < end:
        raise ValueError
    return _text(key[2:end]), key[end:]


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _age(table: Table) -> tuple[int, int]:
    version = table.get("dataVersion")
    version = version if isinstance(version, dict) else {}

    def number(name: str) -> int:
        value = version.get(name)
        value = value.get("value") if isinstance(value, dict) else value
        return value if isinstance(value, int) else 0

    return number("counter"), number("timestamp")


def _json_of(path: Path) -> Table:
    """The table that a broker would read; empty where neither file nor backup can be read."""
    try:
        table = json.loads(_native._load_config_json(path) or "{}")  # noqa: SLF001 - our own
    except (StoreError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}
