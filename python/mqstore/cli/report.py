"""A report for people: a line for each of its fields."""

from __future__ import annotations

from mqstore.cli.output import Lines, as_document
from mqstore.text import count_text, escape, size_text


def report_lines(report: object) -> Lines:
    """The fields by their names, in order; lists by their length, or their names."""
    fields = as_document(report)
    width = max(map(len, fields))
    for name, value in fields.items():
        yield f"{name.replace('_', ' '):<{width}}  {_text(name, value)}"


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return size_text(value) if name.endswith("bytes") else count_text(value)
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):
            return escape(", ".join(value)) or "-"
        return count_text(len(value))
    return "-" if value is None else escape(str(value))
