"""``sql``: stores as tables of DuckDB."""

from __future__ import annotations

import contextlib
import csv
import os
import queue
import re
import shutil
import sys
import threading
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import msgspec

import mqstore
from mqstore import _native
from mqstore.cli import shared
from mqstore.cli.options import command, flag, option, read_argument
from mqstore.cli.output import Column, Output, OutputClosedError, Pager, note, on_terminal
from mqstore.cli.progress import progress
from mqstore.errors import needs
from mqstore.files.durable import new_file
from mqstore.text import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from duckdb import DuckDBPyRelation

    from mqstore.database import Session

_SUFFIXES = ("parquet", "csv", "json", "jsonl", "md")
_NUMBER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT|DECIMAL|DOUBLE|FLOAT")
_NO_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|-?(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_ROWS_MEASURED = 500
# A column of a table has at least this many characters.
_LEAST_WIDTH = 6
_BATCH_ROWS = 2048
# Time for a query to end after Ctrl-C.
_END_S = 2


class QueryError(click.ClickException):
    """SQL that DuckDB refuses, or cannot run."""

    exit_code = 2


class _Command(click.Command):
    """A command whose query may begin with a comment."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [f" {word}" if re.match(r"--\s", word) else word for word in args]
        )


@command("sql", cls=_Command, short_help="Query stores in SQL, by DuckDB.")
@read_argument("stores", nargs=-1, required=True, metavar="STORE... [QUERY]")
@flag("--csv as_csv", "Comma-separated values.")
@flag("--markdown as_markdown", "A table in Markdown.")
@option("-o --out", "FILE", f"Write a file; its suffix says how: {', '.join(_SUFFIXES)}.")
@flag("--overwrite", "Replace a file of -o that is there.")
@flag("--allow-files", "Let SQL read and write other files.")
@option("--memory memory_bytes", "SIZE", "Memory of DuckDB for the query.", default="1g")
@option("--threads", "COUNT", "Threads of DuckDB.", type=click.IntRange(1, 1024), default=2)
@option(
    "--spill",
    "FOLDER",
    "Put what does not fit into memory there; without it such a query fails.",
    type=click.Path(file_okay=False),
)
@shared.skip_damage
def sql_command(
    output: Output,
    stores: tuple[str, ...],
    as_csv: bool,
    as_markdown: bool,
    out: str | None,
    overwrite: bool,
    skip_damage: bool,
    **options: Any,
) -> int:
    """Query stores in SQL: one row for each message, queue, group, file, finding.

    QUERY is SQL of DuckDB. Without it the query is read from standard input; on a terminal there is
    a prompt. The tables are messages (messages_text has text as body), unqueued (records that no
    queue has), queues, topics, groups, group_queues, files, findings, index_entries and pending:
    ".tables" lists them, ".schema messages" explains each column, and "explain select ..." shows
    which conditions reach the store.

    Nothing is written, and SQL reads no other file. Exits with 2 where the SQL is wrong, with 1
    where a part of a store cannot be read.

    Examples:
        mqstore sql /data/store 'select topic, count(*) from messages group by all'
        mqstore sql /data/a/store /data/b/store 'from groups where lag > 0' -o lag.csv
    """
    given, query = _split(stores)
    form = _form(output, out, as_csv=as_csv, as_markdown=as_markdown)
    if overwrite and out is None:
        raise click.UsageError("--overwrite replaces the file of -o, which is missing.")
    with needs("sql", "mqstore sql"):
        from mqstore.database import Session
    # A broker that runs here needs its own pages.
    _native._spare_page_cache()  # noqa: SLF001 - our own
    session = Session(given, on_error="skip" if skip_damage else "raise", **options)
    if query is None and sys.stdin.isatty() and out is None:
        from mqstore.cli.sql_prompt import prompt

        def show(text: str) -> None:
            # A pager that is left open would read what is typed next.
            with closing(Pager()) as output.pager, contextlib.suppress(OutputClosedError):
                _show(session, text, output, form)
                output.flush()

        prompt(session, show)
        return 0
    try:
        query = _typed() if query is None else query
        if out is None:
            return _show(session, query, output, form)
        return _write(session, query, output, form, Path(out), overwrite=overwrite)
    except KeyboardInterrupt:
        # A thread of DuckDB may still read, and Python would wait for it.
        note("interrupted")
        sys.stdout.flush()
        os._exit(130)


def _typed() -> str:
    """The query from standard input."""
    try:
        query = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        text = f"standard input: expected a query in UTF-8, found another at byte {error.start}"
        raise QueryError(text) from None
    if not query.strip():
        raise QueryError("standard input: expected a query, found none")
    return query


def _write(
    session: Session, query: str, output: Output, form: str, out: Path, *, overwrite: bool
) -> int:
    """Writes the rows of a query to a file; the exit code."""
    session.stores.check_outside("out", out)
    if os.path.lexists(out) and not overwrite:
        text = "the file is there already; --overwrite replaces it"
        raise FileExistsError(17, text, str(out))
    with new_file(out, overwrite=overwrite) as temporary:
        if form == "parquet":
            return _show(session, query, output, form, temporary)
        output.pager = None
        with (
            temporary.open("w", encoding="utf-8", newline="") as file,
            contextlib.redirect_stdout(file),
        ):
            return _show(session, query, output, form)


def _split(words: tuple[str, ...]) -> tuple[list[str], str | None]:
    """The stores, and the query, which is the last word if it is no path."""
    stores = list(words)
    query = stores.pop() if _is_query(stores[-1]) else None
    if query is not None and not stores:
        text = f"STORE: {query!r} is no path; if it is the query, name the store before it"
        raise click.UsageError(text)
    if wrong := [store for store in stores if _is_query(store) and "://" not in store]:
        raise click.UsageError(f"{wrong[0]!r} is no path; the query stands last, and once")
    begins = [store for store in stores[1:] if store.lower() in _FIRST_WORDS]
    if unquoted := [word for word in begins if not os.path.exists(word)]:  # noqa: PTH110
        raise click.UsageError(
            f"{unquoted[0]!r} is no store; a query is one word: put it in quotes"
        )
    if twice := [store for store in stores if stores.count(store) > 1]:
        raise click.UsageError(f"STORE: {twice[0]} is named twice")
    return stores, query


_FIRST_WORDS = {"select", "from", "with", "describe", "explain", "show", "summarize", ".help"}


def _is_query(word: str) -> bool:
    # `Path.exists` raises for a query that is too long for a name.
    exists = os.path.exists(word)  # noqa: PTH110
    return not exists and (len(word.split()) > 1 or word in {".schema", ".tables"})


def _form(output: Output, out: str | None, *, as_csv: bool, as_markdown: bool) -> str:
    forms: list[str] = [output.form] if output.form != "text" else []
    forms += ["csv"] * as_csv + ["md"] * as_markdown
    if out is not None:
        forms.append(Path(out).suffix.removeprefix(".").lower())
        if forms[-1] not in _SUFFIXES:
            raise click.UsageError(
                f"-o: expected a suffix of {', '.join(_SUFFIXES)}; found {out!r}"
            )
        if forms[-1] in {"json", "jsonl"}:
            output.form = forms[-1]  # type: ignore[assignment]
    if len(forms) > 1:
        raise click.UsageError("--json, --jsonl, --csv, --markdown and -o exclude each other.")
    return forms[0] if forms else "text"


def _show(
    session: Session, query: str, output: Output, form: str, target: Path | None = None
) -> int:
    """Runs a query and prints its rows; the exit code."""
    with contextlib.ExitStack() as bar, closing(_Running(session, query, form)) as running:
        session.stores.advance = bar.enter_context(progress("reading"))
        for schema, kinds, batches in running.results():
            first = list(islice(batches, 1))
            if on_terminal() and target is None:
                bar.close()
            each = chain(first, batches)
            if form == "parquet":
                with _parquet_writer(target, schema) as writer:
                    for batch in each:
                        writer.write_batch(batch)
            else:
                rows = chain.from_iterable(
                    zip(*batch.to_pydict().values(), strict=False) for batch in each
                )
                _print(output, form, schema.names, kinds, rows)
    return int(session.stores.warned)


def _parquet_writer(target: Path | None, schema: pa.Schema) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for column in schema:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
    except pa.ArrowException:
        text = f"column {column.name}: Parquet has no {column.type}; cast it, as to varchar"
        raise QueryError(text) from None
    return pq.ParquetWriter(target, schema)


class _Running:
    """A query in a thread of its own, so that Ctrl-C ends it at once."""

    def __init__(self, session: Session, query: str, form: str) -> None:
        self._session, self._query, self._form = session, query, form
        self._found: queue.Queue[Any] = queue.Queue(maxsize=2)
        session.stores.begin()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def results(self) -> Iterator[tuple[pa.Schema, list[str], Iterator[pa.RecordBatch]]]:
        """Schema, DuckDB's types and rows of each statement that has rows."""
        while (head := self._take()) is not None:
            yield *head, iter(self._take, None)

    def close(self) -> None:
        """Ends the query."""
        self._session.stores.stopped = True
        if self._thread.is_alive():
            self._session.connection.interrupt()
        self._thread.join(_END_S)

    def _work(self) -> None:
        try:
            session = self._session
            if self._form == "text":
                relations = map(session.run, session.statements(self._query))
            else:
                relations = map(session.last, [self._query])
            for relation in relations:
                if relation is None:
                    continue
                reader = _shaped(relation, self._form).to_arrow_reader(_BATCH_ROWS)
                self._put((reader.schema, [str(kind) for kind in relation.types]))
                for batch in reader:
                    self._put(batch)
                self._put(None)
            self._put(None)
        except Exception as error:
            # The reader raises it.
            self._put(error)

    def _put(self, item: object) -> None:
        while not self._session.stores.stopped:
            with contextlib.suppress(queue.Full):
                return self._found.put(item, timeout=0.1)
        return None

    def _take(self) -> Any:
        item = self._found.get()
        if not isinstance(item, Exception):
            return item
        failure, self._session.stores.failure = self._session.stores.failure, None
        if isinstance(failure, mqstore.StoreError | OSError):
            # Its frames hold DuckDB's objects, which must be gone before the process ends.
            raise failure.with_traceback(None) from None
        text = re.split(r"\s+(?:LINE \d+:|Stack Trace:)", str(item))[0]
        text = " ".join(text.split())
        if "Out of Memory" in text:
            text = "the query needs more memory: --memory allows more, --spill puts it on a disk"
        line = re.search(r"^LINE (\d+):", str(item), re.MULTILINE)
        raise QueryError(f"{text} (line {line[1]})" if line else text) from None


def _shaped(relation: DuckDBPyRelation, form: str) -> DuckDBPyRelation:
    """A query's rows as DuckDB itself writes their values in a form."""
    if form == "parquet":
        # Two columns of one name get two.
        relation = relation.project("*")
        names = ['"{}"'.format(name.replace('"', '""')) for name in relation.columns]
        kinds = [
            f"::varchar as {names[at]}" * (str(kind) == "INTERVAL")
            for at, kind in enumerate(relation.types)
        ]
        return relation.project(", ".join(map(str.__add__, names, kinds)))
    if form in {"json", "jsonl"}:
        return relation.set_alias("mqstore_rows").project("to_json(mqstore_rows)")
    return relation.project("columns(*)::varchar")


def _print(
    output: Output,
    form: str,
    names: list[str],
    kinds: list[str],
    rows: Iterator[tuple[str | None, ...]],
) -> None:
    if form in {"json", "jsonl"}:
        output.rows(msgspec.Raw(_strict(row[0]).encode()) for row in rows)
    elif form == "csv":
        shown = escape if on_terminal() else str
        lines = SimpleNamespace(write=lambda text: output.line(text.removesuffix("\n")))
        writer = csv.writer(lines, lineterminator="\n")
        for row in chain([names], rows):
            writer.writerow([None if cell is None else shown(cell) for cell in row])
    elif form == "md":
        for row in chain([names, ["---"] * len(names)], rows):
            output.line(f"| {' | '.join(map(_markdown, row))} |")
    elif names == ["explain_key", "explain_value"]:
        for _, text in rows:
            for line in str(text).splitlines():
                output.line(escape(line))
    else:
        _print_table(output, names, kinds, rows)


def _strict(text: str | None) -> str:
    """JSON with null for the numbers that DuckDB writes and JSON lacks."""
    return _NO_JSON.sub(lambda found: found[1] or "null", text or "null")


def _markdown(cell: str | None) -> str:
    return re.sub(r"([\\|<>`*_\[\]])", r"\\\1", escape(cell or "")) if cell != "---" else cell


def _print_table(
    output: Output, names: list[str], kinds: list[str], rows: Iterator[tuple[str | None, ...]]
) -> None:
    """A table that fits the terminal; columns that cannot stand side by side stand in lines."""
    first = list(islice(rows, _ROWS_MEASURED))
    if not first:
        note("0 rows")
        return
    widths = [
        max(len(name), *(len(escape(row[at] or "-")) for row in first))
        for at, name in enumerate(names)
    ]
    room = shutil.get_terminal_size().columns + 2 - 2 * len(names)
    if on_terminal() and sum(widths) > room:
        if room < _LEAST_WIDTH * len(names):
            most = max(map(len, names))
            for row in chain(first, rows):
                for name, cell in zip(names, row, strict=True):
                    output.line(f"{escape(name):<{most}}  {escape('-' if cell is None else cell)}")
                output.line()
            return
        while sum(widths) > room:
            widths[widths.index(max(widths))] -= 1
    columns = [
        Column(str(at), _cut_to(width), right=_NUMBER.match(kind) is not None, title=cut(name))
        for at, (name, kind, width) in enumerate(zip(names, kinds, widths, strict=True))
        for cut in [_cut_to(width)]
    ]
    output.rows(
        ({str(at): cell for at, cell in enumerate(row)} for row in chain(first, rows)), columns
    )


def _cut_to(width: int) -> Callable[[str], str]:
    def cut(text: str) -> str:
        text = escape(text)
        return text if not on_terminal() or len(text) <= width else f"{text[: width - 1]}…"

    return cut
