"""The terminal of the README: ``mqstore doctor`` on a broken store, as it is printed today.

``MQSTORE_PICTURES=1`` writes the picture anew.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from helpers.broken_states import make_healthy
from helpers.running import on_terminal

if TYPE_CHECKING:
    import pytest

PICTURE = Path(__file__).parents[2] / "docs/images/doctor.svg"
PLACE = "/data/store"
# The reader's own font: the usual template loads one.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw(ansi: str, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(ansi), soft_wrap=False)
    return console.export_svg(title="mqstore", code_format=FORMAT, unique_id="doctor")


def test_the_picture_of_doctor_is_made_of_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_healthy(root)
    for file in (root / "consumequeue/orders/1").iterdir():
        file.unlink()
    (root / "config/topics.json").write_text("")
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, output, _ = on_terminal(["doctor", str(root)])
    assert code == 1
    text = output.decode().replace(str(root), PLACE).replace("\r\n", "\n")
    picture = draw(f"$ mqstore doctor {PLACE}\n{text}", 110)
    if os.environ.get("MQSTORE_PICTURES"):
        PICTURE.write_text(picture)
    assert "cure" in text
    assert PICTURE.read_text() == picture
