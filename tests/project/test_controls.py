"""Each bug of tests/rust/controls.toml can be planted; `make controls` shows that tests find it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def controls() -> ModuleType:
    spec = importlib.util.spec_from_file_location("controls", ROOT / "scripts/controls.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_each_bug_is_planted_in_one_place(controls: ModuleType) -> None:
    texts = controls.sources()
    for bug in controls.bugs():
        before = dict(texts)
        controls.plant(bug, texts)
        changed = [path for path in texts if texts[path] != before[path]]
        assert changed
        assert all(f'crate::planted("{bug.name}")' in texts[path] for path in changed)


def test_each_bug_names_itself_and_a_test(controls: ModuleType) -> None:
    bugs = controls.bugs()
    assert len(bugs) == len({bug.name for bug in bugs}) >= 24
    for bug in bugs:
        file, _, name = bug.test.rpartition("::")
        text = (ROOT / f"tests/rust/{file}.rs").read_text(encoding="utf-8")
        assert re.search(rf"#\[test\]\nfn {name}\(\) {{", text), bug.test
        assert all("PLANTED" in edit.new for edit in bug.edits), bug.name


def test_an_edit_that_leads_to_no_place_or_two_is_refused(controls: ModuleType) -> None:
    source = "fn a() {\n    same();\n}\n\nfn b() {\n    same();\n}\n"
    for edit, count in [
        (controls.Edit("PLANTED", old="same();"), 2),
        (controls.Edit("PLANTED", fn="c"), 0),
        (controls.Edit("PLANTED", fn="a", old="other"), 0),
    ]:
        with pytest.raises(controls.PlantError, match=f"found {count}"):
            controls.plant(controls.Bug("bug", "test", (edit,)), {Path("src/x.rs"): source})
    texts = {Path("src/x.rs"): source}
    controls.plant(
        controls.Bug("bug", "t", (controls.Edit("PLANTED;", fn="b", old="same();"),)), texts
    )
    assert texts[Path("src/x.rs")].count("same();") == 1


def test_no_bug_is_planted_in_the_source_itself() -> None:
    assert not [p for p in (ROOT / "src").rglob("*.rs") if "planted(" in p.read_text("utf-8")]
    assert "planted" not in (ROOT / "Cargo.toml").read_text("utf-8")
