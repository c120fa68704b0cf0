"""Write the generated parts of the documentation; with --check only report stale ones.

A part of a page stands between ``<!-- reference: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqstore import _native
from mqstore._settings import SETTINGS, Choice, Flag, Number, Text
from mqstore.cli import command
from mqstore.spark.options import OPTIONS, WRITE_OPTIONS, ReadOptions, WriteOptions
from mqstore.spark.values import BATCH, LOG, STREAM, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]

FINDINGS = (ROOT / "src/care/finding.rs").read_text(encoding="utf-8")
CURES = dict(re.findall(r'^const (\w+): &str =\s+"([^"]+)";$', FINDINGS, flags=re.MULTILINE))
CODES = {
    code: (severities.lower().split(" | "), title, CURES.get(cure, cure.strip('"')))
    for code, severities, title, cure in re.findall(
        r'^    \w+ "(MQ-[A-Z]+-\d\d)" ([\w |]+) "([^"]+)"\s+(\w+|"[^"]+")$',
        FINDINGS,
        flags=re.MULTILINE,
    )
}
"""Severities, title and cure of each finding, by its code."""

MARK = "    # Written by `make reference` from the core's table, as are the names above.\n"
FAMILIES = sorted({code.rpartition("-")[0] for code in CODES})


def commands() -> str:
    """The page of the commands."""
    parts = []
    root = click.Context(command, info_name="mqstore", **command.context_settings)
    for name in command.list_commands(root):
        found = command.get_command(root, name)
        if found is None:
            raise SystemExit(f"no command {name}")
        context = click.Context(found, info_name=name, parent=root, max_content_width=100)
        context.terminal_width = 100
        parts.append(f"## {name}\n\n```text\n{found.get_help(context)}\n```")
    return "\n\n".join(parts)


def table(*rows: Iterable[str]) -> str:
    """A Markdown table; its first row is the head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def default(row: Option) -> str:
    """The default of an option."""
    if row.shown_default or row.default in (None, ()):
        return row.shown_default or "none"
    return f"`{str(row.default).lower()}`"


def name(row: Option) -> str:
    """An option's name, and that in Spark's Kafka source."""
    return f"`{row.name}`" + "".join(f" (`{also}`)" for also in row.also)


def where(row: Option) -> str:
    """Where an option works."""
    if row.where == STREAM:
        return "streams"
    structures = [f"`{one}`" for one in row.tables if row.narrows and one not in LOG]
    return ", ".join(["batch", *(["streams"] if row.where != BATCH else []), *structures])


def meanings(kind: type) -> dict[str, tuple[str, str]]:
    """The meaning of each option, and that in a stream, by its field: the text below that."""
    (fields,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    texts = {}
    for field, below in pairwise(fields.body if isinstance(fields, ast.ClassDef) else ()):
        match field, below:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                meaning, _, in_streams = " ".join(text.split()).partition(" In streams: ")
                texts[name] = meaning, in_streams
    return texts


def options() -> str:
    """The options of reads and streams."""
    texts = meanings(ReadOptions)
    return table(
        ("option", "works in", "example", "default", "meaning"),
        *(
            (
                name(row),
                where(row),
                f"`{row.name}={row.example}`",
                default(row),
                "streams only: see [spark-jobs.md](spark-jobs.md#streams)"
                if row.where == STREAM
                else texts[row.field][0],
            )
            for row in OPTIONS.values()
        ),
    )


def stream_options() -> str:
    """The options that only streams have, and those that mean something else there."""
    texts = meanings(ReadOptions)
    rows = [row for row in OPTIONS.values() if row.where == STREAM or texts[row.field][1]]
    rows.sort(key=lambda row: bool(texts[row.field][1]))
    return table(
        ("option", "default", "meaning"),
        *(
            (f"`{row.name}`", default(row), texts[row.field][1] or texts[row.field][0])
            for row in rows
        ),
    )


def write_options() -> str:
    """The options of writes."""
    rows, texts = WRITE_OPTIONS.values(), meanings(WriteOptions)
    return table(
        ("option", "default", "meaning"),
        *((f"`{row.name}`", default(row), texts[row.field][0]) for row in rows),
    )


def index_of(family: str) -> str:
    """The findings of a family, as a table of links."""
    rows = [(code, *row) for code, row in CODES.items() if code.startswith(family)]
    links = ((f"[{code}]({code}.md)", " or ".join(all_), title) for code, all_, title, _ in rows)
    return table(("code", "severity", "title"), *links)


def finding_page(code: str) -> str:
    """The text of a finding's page with its head made anew."""
    path = ROOT / f"docs/findings/{code}.md"
    _, begin, rest = path.read_text(encoding="utf-8").partition("## Meaning\n")
    severities, title, _ = CODES[code]
    return f"# {code}: {title}\n\nSeverity: {' or '.join(severities)}\n\n{begin}{rest}"


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/commands.md": {"commands": commands},
    "docs/spark.md": {"options": options},
    "docs/spark-jobs.md": {
        "options of writes": write_options,
        "options of streams": stream_options,
    },
    "docs/findings/index.md": {family: partial(index_of, family) for family in FAMILIES},
}


def with_parts(page: str, parts: dict[str, Callable[[], str]]) -> str:
    """The text of a page with its parts made anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, make in parts.items():
        before, begin, rest = text.partition(f"<!-- reference: {name} -->\n")
        _, end, behind = rest.partition("<!-- end -->\n")
        if not end:
            raise SystemExit(f"{page}: expected the part {begin or name!r} and its end")
        text = f"{before}{begin}\n{make()}\n\n{end}{behind}"
    return text


def documented(setting: Flag | Number | Choice | Text) -> str:
    """A setting, its meaning and its default."""
    match setting.default:
        case None:
            default = ""
        case "":
            default = " None."
        case int() as number:
            unit = getattr(setting, "unit", "port")
            default = f" {number}." if unit == "port" else f" {number:,}."
        case text:
            default = f' ``"{text}"``.' if isinstance(setting, Choice) else f" ``{text}``."
    return f"{setting.name}: {setting.doc}{'' if 'Not given: ' in setting.doc else default}"


def annotation(setting: Flag | Number | Choice | Text) -> str:
    """The type of a setting's field."""
    if isinstance(setting, Choice):
        return f"Literal[{', '.join(json.dumps(one) for one in setting.choices)}]"
    spans = setting.doc and getattr(setting, "unit", "") in ("milliseconds", "hours")
    return setting.type.__name__ + (" | timedelta" if spans else "")


def settings(text: str) -> str:
    """The module of `StoreConfig` with its settings made anew: docstring and fields."""
    fill = partial(textwrap.fill, width=100, break_on_hyphens=False, break_long_words=False)
    lines, fields = "", ""
    for setting in SETTINGS.values():
        if setting.heading:
            lines += "\n" + fill(setting.heading, initial_indent="    ", subsequent_indent="    ")
            lines, fields = lines + "\n", fields + "\n"
        if setting.doc:
            indents = {"initial_indent": " " * 8, "subsequent_indent": " " * 12}
            lines += fill(documented(setting), **indents) + "\n"
        fields += f"    {setting.name}: {annotation(setting)} | None = None\n"
    unused = ", ".join(sorted(name for name, one in SETTINGS.items() if not one.doc))
    lines += "\n    Of RocketMQ's, and without effect here; taken so that a ``broker.conf`` serves "
    lines += "both:\n"
    lines += fill(f"{unused}.", initial_indent=" " * 8, subsequent_indent=" " * 8)
    head, _, rest = text.partition("\n    Files:\n")
    _, end, middle = rest.partition("\n\n    Raises:\n")
    before, mark, rest = middle.partition(MARK)
    _, behind, tail = rest.partition("\n    def __post_init__")
    return f"{head}{lines}{end}{before}{mark}{fields[1:]}{behind}{tail}"


def with_docstrings(path: Path) -> str:
    """The text of a stub with the docstrings of the extension."""
    lines = path.read_text(encoding="utf-8").splitlines()
    nodes = [
        (name, node)
        for top in ast.parse("\n".join(lines)).body
        if isinstance(top, ast.ClassDef | ast.FunctionDef)
        for name, node in [
            ((top.name,), top),
            *(
                ((top.name, one.name), one)
                for one in (top.body if isinstance(top, ast.ClassDef) else ())
                if isinstance(one, ast.FunctionDef)
            ),
        ]
    ]
    for name, node in reversed(nodes):
        first = node.body[0]
        if ast.get_docstring(node) is None or not isinstance(first, ast.Expr):
            continue
        try:
            found = reduce(inspect.getattr_static, name, _native)
        except AttributeError:
            continue
        text = inspect.getdoc(found) or ""
        mark = 'r"""' if "\\" in text else '"""'
        body = f"{mark}{text}" + ("\n" if "\n" in text else "") + '"""'
        indented = textwrap.indent(body, " " * first.col_offset).splitlines()
        lines[first.lineno - 1 : first.end_lineno] = indented
    return "\n".join(lines) + "\n"


def generated() -> Iterator[tuple[Path, str]]:
    """Each file that is generated, whole or in parts, and its text."""
    for page, parts in PARTS.items():
        yield ROOT / page, with_parts(page, parts)
    for code in CODES:
        yield ROOT / f"docs/findings/{code}.md", finding_page(code)
    path = ROOT / "python/mqstore/config.py"
    yield path, settings(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "python/mqstore/_native").glob("*.pyi")):
        yield path, with_docstrings(path)


def main() -> int:
    """Writes or checks the files."""
    stale = [one for one in generated() if one[0].read_text(encoding="utf-8") != one[1]]
    for path, text in stale:
        if "--check" in sys.argv[1:]:
            print(f"{path}: stale; run `make reference`", file=sys.stderr)  # noqa: T201
        else:
            path.write_text(text, encoding="utf-8")
    return int("--check" in sys.argv[1:] and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
