"""Stores as tables of DuckDB: ``mqstore.sql``.

Needs DuckDB and pyarrow (``pip install 'mqstore[sql]'``).
"""

from __future__ import annotations

import json
import os
import re
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import mqstore
from mqstore._names import broker_of
from mqstore.database.tables import TABLES, Stores, Table, columns_of
from mqstore.errors import ConfigError, checked, expect, needs, wrong_setting
from mqstore.store import connect_each
from mqstore.text import in_utf8
from mqstore.text.zone import zone

with needs("sql", "mqstore.sql"):
    import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mqstore.config import ConfigLike

_DESCRIBE = re.compile(r"\s*(?:describe|desc)\s+(?:table\s+)?\"?(\w+)\"?\s*;?\s*", re.IGNORECASE)
_SHOW = re.compile(r"\s*show\s+(?:all\s+)?tables\s*;?\s*", re.IGNORECASE)
_EXPLAIN = re.compile(
    r"(?is)\s*explain\s+(analyze\s+)?(?:\(\s*(?:analyze|format)\b[^)]*\)\s*)?(.*)"
)
_DESCRIPTION = ("column_name", "column_type", "meaning")
_TEXT = "messages_text"
# Statements that write files.
_WRITES = (b"copy", b"attach", b"export")
_BEFORE_TARGET = (b"database", b"or", b"replace", b"if", b"not", b"exists")
_ROWS = duckdb.ExpectedResultType.QUERY_RESULT
_COMMENT = duckdb.token_type.comment
_SCHEME = re.compile(r"(?:[a-z]+:)+(?://(?:localhost)?(?=/))?", re.IGNORECASE)
# Parts of the names of files that `copy` makes below its target.
_NAME_OPTIONS = {b"filename_pattern", b"file_extension"}
_PLAIN_NAME = re.compile(rb"'[^'/]*' ?[,)]")
_MOST_SQL = 1 << 32
_CONTAINS = ("list_contains", "list_has", "array_contains", "array_has")
_LEAST_MEMORY_BYTES = 1 << 20
_MOST_THREADS = 1024
# DuckDB takes NaN and Infinity for JSON, which has no such numbers.
_NUMBERS = r"""
case when not regexp_matches(body_text, '(?i)nan|inf') or not
  regexp_matches(regexp_replace(body_text, '"([^"\\]|\\.)*"', '', 'gs'), '(?i)nan|inf')
then try_cast(body_text as json) end
"""
_BODIES = f"select * exclude (key), try(decode(body)) as body_text, {_NUMBERS} as body_json"
# Bit 4: prepared (4) and rolled back (12), which no queue has.
_MESSAGES = f'{_BODIES} from "_messages" where sys_flag & 4 = 0'
_VIEWS = f"""
create temp view messages as {_MESSAGES};
create temp view unqueued as {_BODIES} from "_unqueued" where sys_flag & 4 != 0;
create temp macro messages_by_key(wanted) as table {_MESSAGES} and key = wanted;
create temp view messages_text as select * replace (body_text as body) from messages;
"""  # noqa: S608 - our own text


@checked
def sql(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    query: str | None = None,
    *,
    allow_files: bool = False,
    memory_bytes: int = 1 << 30,
    threads: int = 2,
    spill: str | os.PathLike[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyRelation | duckdb.DuckDBPyConnection | None:
    """Queries stores in SQL.

    The tables are ``messages``, ``messages_text`` (with text as ``body``), ``unqueued`` (records of
    transactions that no queue has), ``queues``, ``topics``, ``groups``, ``group_queues``,
    ``files``, ``findings``, ``index_entries`` and ``pending``; the query ``describe messages``
    explains each column. A table is read when a query asks for it.
    Conditions on messages reach the store as in ``mqstore.duckdb.relation``; ``explain`` before a
    query shows which, and what is read. ``messages_by_key('o-1')`` has the messages with a key, in
    ``keys`` or as ``unique_key``, which the index finds.

    Args:
        paths: The root folder of a store, or those of several: column ``broker`` is the name of
            the store's directory, or the path where two have one name.
        query: SQL of DuckDB, one statement of it with rows; ``None`` returns a connection with the
            tables, which its cursors do not have.
        allow_files: Whether SQL may read and write other files; `query` none in a store, while a
            connection checks no path.
        memory_bytes: Memory of DuckDB, from 1 MiB; a query that needs more fails.
        threads: Threads of DuckDB, 1024 at most.
        spill: Folder for what does not fit into memory; ``None`` writes no file.
        on_error: At damage of the log, in messages, ``"raise"`` it, or ``"skip"`` it with a warning
            that counts it.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Returns:
        A relation, read when its rows are asked for; ``None`` for a statement without rows; or a
        connection of DuckDB.

    Raises:
        ConfigError: No store is named, `spill` or a file to write lies inside of one, a number is
            too low, or several statements have rows.
        NotAStoreError: No such folder, or no store in it.
        duckdb.Error: The query is wrong, or, as its rows are read, the store is damaged.

    Warns:
        RuntimeWarning: Rows lack what could not be read.

    Examples:
        >>> import mqstore, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a") as store:
        ...     _ = store.append("orders", b'{"id": 17}', tags="paid")
        >>> mqstore.sql(folder, "select body_json->>'$.id' from messages").fetchall()
        [('17',)]
    """
    options = {
        name: value for name, value in dict(locals()).items() if name not in ("paths", "query")
    }
    expect("query", query, (str, type(None)), "str or None")
    session = Session(paths, **options)
    return session.connection if query is None else session.last(query)


class Session:
    """A connection with the tables of stores, and what its queries report.

    Args:
        paths: As for ``sql``, as all that follow.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        allow_files: bool = False,
        memory_bytes: int = 1 << 30,
        threads: int = 2,
        spill: str | os.PathLike[str] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        config: ConfigLike = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, least, number in (
            ("memory_bytes", _LEAST_MEMORY_BYTES, memory_bytes),
            ("threads", 1, threads),
        ):
            if type(number) is not int or not least <= number < 1 << 62:
                raise ConfigError(f"{name}: expected at least {least}, got {number!r}", name)
        if on_error not in ("raise", "skip"):
            raise wrong_setting("on_error", "raise or skip", repr(on_error))
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        roots = [os.fspath(path) for path in connect_each(given, storage_options)]
        self.stores = Stores(_by_broker(roots), config, on_error)
        for path in self.stores.paths.values():
            mqstore.open(path, config=config).close()
        if spill is not None:
            self.stores.check_outside("spill", spill)
        self.connection = duckdb.connect(
            config={
                "memory_limit": f"{memory_bytes}B",
                "threads": min(threads, _MOST_THREADS),  # it begins all of them at once
                "temp_directory": "" if spill is None else os.fspath(spill),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": allow_files,
                "python_enable_replacements": False,
            }
        )
        # It would stand between the rows, on standard output.
        self.connection.execute("set enable_progress_bar = false")
        self.connection.execute(f"set timezone = '{_zone_name(self.connection)}'")
        for name in TABLES:
            shown = f"_{name}" if name in {"messages", "unqueued"} else name
            self.connection.register(shown, Table(name, self.stores))
        self.connection.execute(_VIEWS)
        self._own_view = self._view_of_messages()
        if not allow_files:
            self.connection.execute("set enable_external_access = false")
        self.connection.execute("set lock_configuration = true")

    def statements(self, query: str, *, most: int | None = None) -> list[str]:
        """The statements of a text, none of which writes into a store, `most` of them with rows."""
        if query.lstrip().startswith("."):
            return [query]
        statements = self.connection.extract_statements(query)
        results = sum(one.expected_result_type == [_ROWS] for one in statements)
        if most is not None and results > most:
            raise wrong_setting("query", "one result", f"those of {results} queries")
        for one in statements:
            if one.type != duckdb.StatementType.SELECT:
                self._check_target(one.query)
        return [_without_end(one.query) for one in statements]

    def last(self, query: str) -> duckdb.DuckDBPyRelation | None:
        """The rows of a text's one statement that has rows, after those before it ran."""
        relation = None
        for statement in self.statements(query, most=1):
            found = self.run(statement)
            relation = relation if found is None else found
        return relation

    def _check_target(self, statement: str) -> None:
        """Refuses a file to write that lies in a store, or whose path is no plain text."""
        raw = statement.encode()
        tokens = duckdb.tokenize(statement)
        ends = [*(at for at, _ in tokens[1:]), len(raw)]
        each = zip(tokens, ends, strict=True)
        words = [raw[at:end].strip() for (at, kind), end in each if kind != _COMMENT]
        lower = [word.lower() for word in words]
        begin = next((at for at, word in enumerate(lower) if word in _WRITES), None)
        if begin is None:
            return
        at = begin + 1
        if lower[begin] == b"copy":
            depth = [word.count(b"(") - word.count(b")") for word in words]
            ways = [n for n, word in enumerate(lower) if word == b"to" and not sum(depth[:n])]
            if not ways:
                return  # It reads a file.
            at = ways[-1] + 1
        while at < len(words) and lower[at] in _BEFORE_TARGET:
            at += 1
        target = words[at].decode() if at < len(words) else ""
        behind = words[at + 1] if at + 1 < len(words) else b";"
        if not target.startswith("'") or not re.match(rb"[\w(;]", behind):
            text = f"expected a path in single quotes as the file to write, found {target}"
            raise ConfigError(f"query: {text}", "query")
        for at, word in enumerate(lower):
            given = b" ".join(words[at + 1 : at + 3])
            if word.strip(b'"') in _NAME_OPTIONS and not _PLAIN_NAME.match(given):
                text = f"expected a name without / in single quotes, found {given.decode()}"
                raise ConfigError(f"query: {word.decode()}: {text}", "query")
        path = _SCHEME.sub("", target[1:-1].replace("''", "'"))
        home = os.path.expanduser(path)  # noqa: PTH111 - which raises where a user is unknown
        self.stores.check_outside("query", home, with_parents=True)

    def run(self, query: str) -> duckdb.DuckDBPyRelation | None:
        """The rows of a query; ``None`` where a statement has none."""
        words = query.split()
        if words[:1] == [".schema"] and len(words) > 1:
            query = f"describe {words[1]}"
        elif words == [".schema"]:
            each = [(name, *row) for name in sorted([*TABLES, _TEXT]) for row in _described(name)]
            return self._values(("table_name", *_DESCRIPTION), each)
        elif words == [".tables"]:
            query = "show tables"
        elif query.lstrip().startswith("."):
            text = f"expected .tables, .schema or .schema TABLE, got {' '.join(words)}"
            raise ConfigError(f"query: {text}", "query")
        if found := _DESCRIBE.fullmatch(query):
            name = found[1].lower()
            if name in {*TABLES, _TEXT}:
                return self._values(_DESCRIPTION, _described(name))
        if _SHOW.fullmatch(query):
            return self._values(("name",), [(name,) for name in sorted([*TABLES, _TEXT])])
        query = self._by_key(query)
        found = _EXPLAIN.fullmatch(query)
        relation = self.connection.sql(query)
        if found is None:
            return relation
        rows: list[tuple[str, ...]] = list(relation.fetchall())
        # All others would do what they say.
        inner = [one.type for one in self.connection.extract_statements(found[2])]
        if found[1] is None and inner == [duckdb.StatementType.SELECT]:
            self.stores.scans.clear()
            self.stores.plans_only = True
            try:
                self.connection.sql(found[2]).fetchall()
            finally:
                self.stores.plans_only = False
        rows += [("read", scan) for scan in dict.fromkeys(self.stores.scans)]
        return self._values(("explain_key", "explain_value"), rows)

    def _by_key(self, query: str) -> str:
        """The query, with the index asked where a key must be in ``keys``."""
        explain = _EXPLAIN.fullmatch(query)
        asked = query if explain is None else explain[2]
        with self.connection.cursor() as cursor:
            (tree,) = cursor.execute("select json_serialize_sql(?::varchar)", [asked]).fetchall()[0]
        if re.search(r'"key":\s*"messages"', tree, re.IGNORECASE):
            return query  # A subquery of that name.
        if self._view_of_messages() != self._own_view:
            return query
        raw = text = asked.encode()
        try:
            selects = list(_selects(json.loads(tree)))
        except RecursionError:
            return query
        tables = [(one["from_table"], one["where_clause"]) for one in selects]
        for table, clause in sorted(tables, key=lambda one: -one[0]["query_location"]):
            where, alias = table["query_location"], table["alias"] or "messages"
            name = alias.replace('"', '""').encode()
            texts = (_text_in_keys(one, alias.lower()) for one in _all_of(clause))
            if (span := next(filter(None, texts), None)) is not None:
                by_key = b'messages_by_key(%s) as "%s"' % (raw[slice(*span)], name)
                end = where + table["query_location_length"]
                text = text[:where] + by_key + text[end:]
        return query[: len(query) - len(asked)] + text.decode()

    def _view_of_messages(self) -> list[Any]:
        query = "select view_oid from duckdb_views() where view_name = 'messages'"
        return self.connection.execute(query).fetchall()

    def _values(
        self, names: tuple[str, ...], rows: list[tuple[str, ...]]
    ) -> duckdb.DuckDBPyRelation:
        each = ", ".join([f"({', '.join('?' * len(names))})"] * len(rows))
        text = f"select * from (values {each}) t({', '.join(names)})"  # noqa: S608 - our own names
        return self.connection.sql(text, params=[cell for row in rows for cell in row])


def _selects(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """The parts of a query that select from messages alone, in their order."""
    if isinstance(tree, dict):
        match tree:
            case {
                "type": "SELECT_NODE",
                "from_table": {
                    "type": "BASE_TABLE",
                    "table_name": "messages",
                    "schema_name": "",
                    "catalog_name": "",
                    "sample": None,
                    "column_name_alias": [],
                    "query_location": int(at),
                },
            } if at < _MOST_SQL:
                yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from _selects(inner)


def _all_of(condition: Any) -> list[Any]:  # noqa: ANN401
    """The conditions that must all hold."""
    match condition:
        case {"type": "CONJUNCTION_AND", "children": list(parts)}:
            return [one for part in parts for one in _all_of(part)]
    return [condition]


def _text_in_keys(condition: Any, table: str) -> tuple[int, int] | None:  # noqa: ANN401
    """Where a condition has the text that must be in ``keys`` of a table; begin and end."""
    match condition:
        case {"function_name": name, "arguments": [{"expression": left}, {"expression": right}]}:
            if name not in _CONTAINS:
                return None
            match left, right:
                case {"column_names": [*column]}, {
                    "literal": {"kind": "STRING"},
                    "query_location": int(at),
                    "query_location_length": int(length),
                } if [part.lower() for part in column] in (["keys"], [table, "keys"]):
                    return at, at + length
    return None


def _without_end(statement: str) -> str:
    """A statement without its semicolon, and comments behind it."""
    tokens = duckdb.tokenize(statement)
    while tokens and tokens[-1][1] == duckdb.token_type.comment:
        tokens.pop()
    end = tokens[-1][0] if tokens else len(statement)
    # Offsets are those of bytes.
    raw = statement.encode()
    return raw[:end].decode() if raw[end : end + 1] == b";" else statement


def _described(table: str) -> list[tuple[str, ...]]:
    columns = columns_of("messages" if table == _TEXT else table)
    if table == _TEXT:
        columns["body"] = "VARCHAR", columns["body_text"][1]
    return [(name, kind, meaning) for name, (kind, meaning) in columns.items()]


def _by_broker(paths: list[str]) -> dict[str, str]:
    """The stores by name of their broker, or by path where two have the same."""
    if not paths:
        raise ConfigError("paths: expected a store, got none", "paths")
    real = [*map(os.path.realpath, paths)]
    if twice := [path for path in paths if real.count(os.path.realpath(path)) > 1]:
        raise ConfigError(f"paths: {twice[0]} is named twice", "paths")
    names = [broker_of(path) for path in paths]
    unique = len(set(names)) == len(names)
    return dict(zip(map(in_utf8, names if unique else paths), paths, strict=True))


def _zone_name(connection: duckdb.DuckDBPyConnection) -> str:
    """The zone in force, as DuckDB knows it."""
    name, rules = zone()
    known = connection.execute("select name from pg_timezone_names()").fetchall()
    if (name,) in known:
        return name
    now = zone().local(datetime.now(UTC))
    hours, rest = divmod(-(now.utcoffset() or timedelta()), timedelta(hours=1))
    text = f"DuckDB knows no time zone {name}; name one, as Asia/Kolkata, in --tz or TZ"
    if rest or (f"Etc/GMT{hours:+d}",) not in known:
        raise ConfigError(f"--tz: {text}", "tz")
    if rules is None:
        warnings.warn(f"{text}: it is {str(now)[-6:]} all year", RuntimeWarning, stacklevel=2)
    return f"Etc/GMT{hours:+d}"
