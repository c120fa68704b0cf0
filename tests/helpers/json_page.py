"""Holds what a command prints with ``--json`` against its section of docs/json.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/json.md"
_ROW = re.compile(r"^\| `(\S+)` \| ([^|]+?) \|", re.MULTILINE)
_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "map": dict,
    "message": dict,
    "array": list,
    "null": type(None),
}


def sections() -> dict[str, dict[str, str]]:
    """The fields of each section, with their types."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    rows = {name: _ROW.findall(text) for name, text in texts.items()}
    found = {name: dict(fields) for name, fields in rows.items()}
    unlike = [name for name, fields in rows.items() if len(set(fields)) > len(found[name])]
    assert not unlike, f"{PAGE.name}: a field has two types below {unlike}"
    for name, text in texts.items():
        if "see [Message](#message)" in text:
            found[name] = found["Message"]
    return found


def mismatches(section: str, document: Any) -> list[str]:
    """Differences between a document and the page."""
    fields = sections()[section]
    wrong: list[str] = []
    for one in document if isinstance(document, list) else [document]:
        _hold(one, "", fields, wrong)
    return sorted(set(wrong))


def _hold(value: dict[str, Any], above: str, fields: dict[str, str], wrong: list[str]) -> None:
    for name, inner in value.items():
        place = above + name
        if place not in fields:
            wrong.append(f"{place} is not documented")
            continue
        kind = fields[place].removesuffix(", optional")
        if not _fits(inner, kind):
            wrong.append(f"{place}: {inner!r} is no {kind}")
        elif isinstance(inner, dict) and kind.startswith("object"):
            _hold(inner, f"{place}.", fields, wrong)
        elif isinstance(inner, list):
            for element in inner:
                if "array of message" in kind:
                    _hold(element, "", sections()["Message"], wrong)
                elif "array of object" in kind:
                    _hold(element, f"{place}[].", fields, wrong)
    for place, kind in fields.items():
        name = place.removeprefix(above)
        direct = place.startswith(above) and not {".", "["} & set(name)
        if direct and name not in value and not kind.endswith("optional"):
            wrong.append(f"{place} is missing")


def _fits(value: Any, kind: str) -> bool:
    if kind == "any":
        return True
    for one in kind.split(" or "):
        outer, _, inner = one.partition(" of ")
        if isinstance(value, bool) and outer != "boolean":
            continue
        if isinstance(value, _KINDS[outer]):
            return not inner or all(isinstance(element, _KINDS[inner]) for element in value)
    return False
