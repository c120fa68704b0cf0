"""The rule that no skip goes unnoticed, on a small run of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

RUN = """
import pytest

def test_fine():
    pass

@pytest.mark.skip(reason="[no-jdk] install a JDK")
@pytest.mark.parametrize("case", range(3))
def test_against_java(case):
    pass
"""


def run(folder: Path, source: str, **environment: str) -> tuple[int, str]:
    """Exit code and output of a pytest run over ``source`` with the rule in force."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MQSTORE_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "."],
        cwd=folder,
        env=clean | environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_person_may_skip_and_is_told_what_was_skipped(tmp_path: Path) -> None:
    code, output = run(tmp_path, RUN)
    assert code == 0, output
    assert "skipped: 3" in output
    assert "test_it.py::test_against_java (3 times): [no-jdk] install a JDK" in output
    assert "not allowed" not in output


def test_a_strict_run_fails_on_a_skip_that_nobody_named(tmp_path: Path) -> None:
    code, output = run(tmp_path, RUN, MQSTORE_STRICT_SKIPS="1", MQSTORE_ALLOW_SKIP="no-maven")
    assert code == 1, output
    assert output.count("not allowed here: test_it.py::test_against_java[") == 3


@pytest.mark.parametrize(
    "names", ["no-jdk", "no-maven, no-jdk", "test_it.py", "test_it.py::test_against_java"]
)
def test_a_strict_run_passes_where_the_skip_is_named(tmp_path: Path, names: str) -> None:
    code, output = run(tmp_path, RUN, MQSTORE_STRICT_SKIPS="1", MQSTORE_ALLOW_SKIP=names)
    assert code == 0, output
    assert "skipped: 3" in output


@pytest.mark.parametrize(
    "source",
    [
        'import pytest\npytest.skip("whole file", allow_module_level=True)',
        'import pytest\npytest.importorskip("no_such_module_here")',
        'import pytest\n@pytest.mark.xfail(reason="not done")\ndef test_it():\n    assert False',
        "import pytest\n@pytest.mark.skip\ndef test_it():\n    pass",
    ],
    ids=["file", "import", "xfail", "no-reason"],
)
def test_no_form_of_skip_escapes(tmp_path: Path, source: str) -> None:
    code, output = run(
        tmp_path,
        f"{source}\ndef test_fine():\n    pass",
        MQSTORE_STRICT_SKIPS="1",
        MQSTORE_ALLOW_SKIP="untagged",
    )
    assert code == 1, output
    assert "not allowed here" in output


def test_a_run_without_skips_says_so(tmp_path: Path) -> None:
    code, output = run(tmp_path, "def test_fine():\n    pass", MQSTORE_STRICT_SKIPS="1")
    assert code == 0, output
    assert "skipped: none" in output
