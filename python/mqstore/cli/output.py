"""Output of the commands: text for people, JSON for programs, no control characters.

Data goes to standard output and everything else to standard error. A store's bytes are not trusted:
control and direction characters are escaped wherever a terminal may show them, in JSON too.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from mqstore.results import as_document, json_bytes
from mqstore.text import UNSAFE, count_text, day_text, escape, minute_text, size_text, time_text
from mqstore.text.zone import zone

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import click

T = TypeVar("T")
Format: TypeAlias = Literal["text", "json", "jsonl"]
Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = "Iterator[Row]"
Lines: TypeAlias = "Iterator[str]"

# How many rows decide how wide the columns are; what follows is printed as it comes.
_ROWS_MEASURED = 500


def on_terminal(*, standard_error: bool = False) -> bool:
    """Whether people look at what is printed, and not a program."""
    stream = sys.stderr if standard_error else sys.stdout
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_colour() -> bool:
    """Whether text may be coloured (https://no-color.org)."""
    return on_terminal() and not os.environ.get("NO_COLOR")


def note(text: str) -> None:
    """One line that is not data, on standard error."""
    print(escape(text), file=sys.stderr)  # noqa: T201 - this is the door out


class OutputClosedError(Exception):
    """The reader of standard output has gone: end silently."""


def _json_spelt(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def to_json(value: object, *, indent: int = 0) -> str:
    """One JSON document, with the same characters escaped as JSON escapes them."""
    encoded = json_bytes(value)
    if indent:
        encoded = msgspec.json.format(encoded, indent=indent)
        # The line breaks are the layout's own; inside of strings they are escaped already.
        return "\n".join(UNSAFE.sub(_json_spelt, line) for line in encoded.decode().split("\n"))
    if b"\n" in encoded or b"\t" in encoded or b"\r" in encoded:
        # The layout of a part that was taken over as it stands: inside of strings there is none.
        encoded = msgspec.json.format(encoded, indent=-1)
    return UNSAFE.sub(_json_spelt, encoded.decode())


def known(values: Iterable[T | None]) -> list[T]:
    """The values that are not ``None``."""
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table for people.

    Attributes:
        name: The field of a row that it shows.
        text: How a value is shown.
        right: Whether it is set flush right, as numbers are.
        title: Heading; ``None`` derives it from the name.
    """

    name: str
    text: Callable[..., str] = str
    right: bool = False
    title: str | None = None

    @property
    def head(self) -> str:
        """Heading of the column: its title, and of times the zone where it is not UTC."""
        title = self.name.upper() if self.title is None else self.title
        if self.text not in {time_text, minute_text, day_text} or zone().name == "UTC":
            return title
        return f"{title} ({zone().name})"

    def show(self, row: object) -> str:
        """The column's cell of a row, which is a mapping or has the field."""
        value = row.get(self.name) if isinstance(row, Mapping) else getattr(row, self.name)
        return "-" if value is None else escape(self.text(value))


_ALIKE = {
    column.name: column
    for column in (
        Column("queue_id", right=True, title="QUEUE"),
        Column("queue_offset", right=True, title="OFFSET"),
        Column("min_offset", right=True, title="MIN"),
        Column("max_offset", right=True, title="MAX"),
        Column("physical_offset", right=True, title="PHYSICAL"),
        Column("store_timestamp_ms", time_text, title="STORED"),
        Column("first_store_timestamp_ms", time_text, title="FIRST"),
        Column("last_store_timestamp_ms", time_text, title="LAST"),
        Column("keys", " ".join),
        Column("unique_key", title="UNIQUE KEY"),
        Column("messages", count_text, right=True),
        Column("queues", count_text, right=True),
        Column("bytes", size_text, right=True),
    )
}


def columns(*columns: str | Column) -> tuple[Column, ...]:
    """Columns of a table; a name alone is that of a field which every command shows alike."""
    return tuple(
        _ALIKE.get(column, Column(column)) if isinstance(column, str) else column
        for column in columns
    )


class Output:
    """Standard output in one of the formats.

    Args:
        form: ``"text"``, ``"json"`` (one document) or ``"jsonl"`` (a document for each row).
    """

    def __init__(self, form: Format) -> None:
        self.form = form
        self.pager: Pager | None = None

    def line(self, text: str = "") -> None:
        """One line of text as it is; whatever came out of a store is escaped before."""
        self._write(text + "\n")

    def raw(self, data: bytes) -> None:
        """Bytes as they are, for a program."""
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise OutputClosedError from None

    def flush(self) -> None:
        """Sends out what is held back."""
        try:
            sys.stdout.flush()
            if self.pager is not None:
                self.pager.flush()
        except BrokenPipeError:
            raise OutputClosedError from None

    def document(
        self, document: object, text: Callable[[], Iterable[str]], *, rows: str | None = None
    ) -> None:
        """One document.

        Args:
            document: Value for ``--json``, or a report with its fields.
            text: Gives the lines that people get.
            rows: The field of it that is a list of rows, which ``--jsonl`` has alone.
        """
        if self.form == "text":
            for line in text():
                self.line(line)
            return
        shown = as_document(document)
        if self.form == "json":
            self.line(to_json(shown, indent=2))
        elif rows is None:
            self.line(to_json(shown))
        else:
            self.rows(shown[rows])

    def rows(self, rows: Iterable[object], columns: Sequence[Column] = ()) -> int:
        """Rows: a table, one JSON array, or a JSON document each.

        Args:
            rows: Mappings, or objects with the fields, each written when it is produced.
            columns: The table that people get.

        Returns:
            How many there were.
        """
        if self.form == "jsonl":
            return self._each(map(_row_json, rows))
        if self.form == "json":
            return self._array(map(_row_json, rows))
        return self._table(rows, columns)

    def _write(self, text: str) -> None:
        try:
            if self.pager is not None:
                self.pager.write(text)
            else:
                sys.stdout.write(text)
        except BrokenPipeError:
            raise OutputClosedError from None

    def _each(self, lines: Iterable[str]) -> int:
        count = 0
        for line in lines:
            self.line(line)
            count += 1
        return count

    def _array(self, rows: Iterable[str]) -> int:
        count = 0
        try:
            for row in rows:
                self._write(("[\n" if count == 0 else ",\n") + row)
                count += 1
        finally:
            # Closed when damage ends the rows too: what was given is one document all the same.
            self.line("\n]" if count else "[]")
        return count

    def _table(self, rows: Iterable[object], columns: Sequence[Column]) -> int:
        cells = ([column.show(row) for column in columns] for row in rows)
        measured = list(itertools.islice(cells, _ROWS_MEASURED))
        if not measured:
            return 0
        short = self.pager is None or self.pager.fits(len(measured) + 1)
        set_by_rich = in_colour() and short and len(measured) < _ROWS_MEASURED
        if set_by_rich and _rich_table(measured, columns):
            return len(measured)
        widths = _widths(measured, columns)
        return self._each(_set_all(itertools.chain(measured, cells), columns, widths)) - 1


def _row_json(row: object) -> str:
    return to_json(row if isinstance(row, Mapping) else as_document(row))


def table_lines(rows: Iterable[object], columns: Sequence[Column]) -> Lines:
    """The lines of a small table, to stand among other text."""
    cells = [[column.show(row) for column in columns] for row in rows]
    return _set_all(cells, columns, _widths(cells, columns))


def _set_all(
    rows: Iterable[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]
) -> Lines:
    """The head of a table, and its rows."""
    heads = [column.head for column in columns]
    return (_set(cells, columns, widths) for cells in itertools.chain([heads], rows))


def _widths(rows: Sequence[Sequence[str]], columns: Sequence[Column]) -> list[int]:
    return [
        max([len(column.head), *(len(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]


def _set(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    placed = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return "  ".join(placed).rstrip()


def _rich_table(rows: Sequence[Sequence[str]], columns: Sequence[Column]) -> bool:
    """Shows the table through rich, where that is installed and the terminal wide enough."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    console = Console()
    widths = _widths(rows, columns)
    if sum(widths) + 2 * (len(widths) - 1) > console.width:
        return False
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.head), justify="right" if column.right else "left", no_wrap=True
        )
    for row in rows:
        # Text, and not str: no cell is read as markup.
        table.add_row(*map(Text, row))
    console.print(table)
    return True


_META = "mqstore.no_pager"
_off = False


def set_paging(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Takes what ``--no-pager`` says, before the command or behind it."""
    global _off
    _off = value or bool(ctx.meta.get(_META))
    ctx.meta[_META] = _off


class Pager:
    """Standard output on a terminal; once the screen is full a pager shows all of it.

    Lines before that are printed as they come, so that a slow command shows its first ones. There
    is no pager where standard input or output is no terminal.
    """

    def __init__(self) -> None:
        self._command = _command()
        self._size = shutil.get_terminal_size()
        self._held: list[str] = []
        self._rows = 0
        self._process: subprocess.Popen[bytes] | None = None

    def fits(self, rows: int) -> bool:
        """Whether so many rows are shown without the pager."""
        return self._command is None or self._rows + rows < self._size.lines

    def write(self, text: str) -> None:
        """Writes text.

        Raises:
            BrokenPipeError: The reader has left the pager, or closed standard output.
        """
        if self._command is not None and self._process is None:
            self._held.append(text)
            width = max(self._size.columns, 1)
            self._rows += sum(1 + max(len(line) - 1, 0) // width for line in text.splitlines())
            if self._rows >= self._size.lines:
                self._start(self._command)
                return
        if self._process is None:
            sys.stdout.write(text)
        else:
            self._send(text)

    def flush(self) -> None:
        """Sends out what is held back."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.flush()
        sys.stdout.flush()

    def close(self) -> None:
        """Waits until the reader has left the pager."""
        if self._process is None:
            return
        with suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        while True:
            # Ctrl-C belongs to the pager.
            with suppress(KeyboardInterrupt):
                self._process.wait()
                break
        self._process = self._command = None

    def _start(self, command: list[str]) -> None:
        sys.stdout.flush()
        environment = {"LESS": "R", "LV": "-c"} | os.environ
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own pager
                command, stdin=subprocess.PIPE, env=environment
            )
        except OSError:
            self._command = None
            sys.stdout.write(self._held[-1])
        else:
            self._send("".join(self._held))
        self._held.clear()

    def _send(self, text: str) -> None:
        assert self._process is not None  # noqa: S101 - the caller has looked
        assert self._process.stdin is not None  # noqa: S101 - made with a pipe
        self._process.stdin.write(text.encode(sys.stdout.encoding, "backslashreplace"))


def _command() -> list[str] | None:
    """The pager's command; ``None`` where there is to be none."""
    if _off or not on_terminal() or not sys.stdin.isatty():
        return None
    name = "MQSTORE_PAGER" if "MQSTORE_PAGER" in os.environ else "PAGER"
    try:
        command = shlex.split(os.environ.get(name, "less"))
    except ValueError as error:
        note(f"mqstore: {name} is no command: {error}; no pager is used")
        return None
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return None
    return command
