"""Heavy modules are imported only by the command that needs them."""

import subprocess
import sys

HEAVY = {
    *("pyarrow", "pyspark", "polars", "pandas", "numpy", "duckdb"),
    *("google.protobuf", "grpc_tools", "fastavro"),
    *("plotly", "jinja2", "prometheus_client", "rich", "asyncio"),
}


def imported(code):
    """The heavy modules that are there once the code has run."""
    shown = f"import sys; print(*sorted({HEAVY!r} & set(sys.modules)))"
    run = [sys.executable, "-c", f"{code}\n{shown}"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def test_the_library():
    assert imported("import mqstore") == []


def test_help():
    code = "from mqstore.cli import main; assert main(['--help']) == 0"
    assert imported(code) == []


def test_a_command_that_prints_little(store):
    code = f"from mqstore.cli import main; main(['checkpoint', {str(store)!r}])"
    assert imported(code) == []


def test_the_searched_text_can_be_seen():
    assert "jinja2" in imported("import jinja2")
