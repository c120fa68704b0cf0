"""Shape of the Python package: few modules on its own level, the rest in rooms, no circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "mqstore"
MOST = 14


def name_of(path: Path) -> str:
    """Dotted name of a module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def at_import(node: ast.AST):
    """Statements that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            child = ast.Module(child.orelse, [])
        yield child
        yield from at_import(child)


def imports(text: str, known) -> set[str]:
    """Modules of the package that a module imports when it is imported itself."""
    found = set()
    for node in at_import(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below
            if below - {"mqstore._native", *known}:
                found.add(node.module)
    return found & set(known)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other; empty without any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_package_has_few_modules_on_its_own_level():
    names = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(names) <= MOST, f"{len(names)} modules; put one into a room: {', '.join(names)}"


def test_package_has_no_import_circle():
    graph = {name: imports(path.read_text("utf-8"), MODULES) for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 200
    assert not (found := circle(graph)), f"import inside a function, or move: {' <- '.join(found)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a.b", {"a.b"}),
        ("from a import b, c", {"a", "a.b"}),
        ("from a.b import f", {"a.b"}),
        ("from mqstore import _native", set()),
        ("try:\n    import a\nexcept ImportError:\n    pass", {"a"}),
        ("def f():\n    import a", set()),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import a.b", {"a.b"}),
    ],
)
def test_imports_are_those_at_import_time(text, expected):
    assert imports(text, {"a", "a.b", "mqstore"}) == expected


def test_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    assert circle({"a": {"b"}, "b": {"c"}}) == []
