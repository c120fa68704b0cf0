"""Optional parts: there after ``import mqstore`` alone, and named by their extra where missing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = """
import tempfile
path = tempfile.mkdtemp()
with mqstore.open(path, "a", config=mqstore.StoreConfig.embedded()) as store:
    store.append("orders", b"one")
store = mqstore.open(path)
"""


def run(code, *, without=""):
    """Runs code in a new process, in which a package is not installed."""
    hidden = f"import sys\nsys.modules[{without!r}] = None\n" if without else ""
    command = [sys.executable, "-W", "error", "-c", f"{hidden}import mqstore\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "use",
    [
        "mqstore.aio.open",
        "mqstore.duckdb.relation",
        "mqstore.metrics.StoreCollector",
        "mqstore.polars.scan",
        "mqstore.spark.read",
    ],
)
def test_part_is_there_after_the_package_alone(use):
    module = use.rpartition(".")[0]
    done = run(f"import sys\nassert {module!r} not in sys.modules\n{use}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("duckdb", "mqstore.duckdb", "duckdb"),
        ("pyarrow", "mqstore.duckdb", "duckdb"),
        ("polars", "mqstore.polars", "polars"),
        ("polars", "store.scan_arrow().to_polars()", "polars"),
        ("pandas", "store.scan_arrow().to_pandas()", "pandas"),
        ("pyarrow", "store.scan_arrow().to_pandas()", "pandas"),
        ("pyarrow", "store.scan_arrow().read_all()", "parquet"),
        ("pyarrow", "iter(store.scan_arrow())", "parquet"),
        ("prometheus_client", "mqstore.metrics", "metrics"),
        ("jinja2", "mqstore.report", "report"),
        ("plotly", "mqstore.report", "report"),
        ("pyspark", "mqstore.spark.pipeline", "spark"),
        ("pyarrow", "mqstore.sync(store.path, tempfile.mkdtemp(), compress='zstd')", "parquet"),
    ],
)
def test_missing_package_is_named_with_its_extra(package, use, extra):
    done = run((STORE if "store." in use.replace("mqstore.", "") else "") + use, without=package)
    last = done.stderr.splitlines()[-1]
    assert last.partition(": ")[0].endswith("MissingPackageError"), done.stderr
    assert f"needs {package}, which is not installed" in last
    assert last.endswith(f": pip install 'mqstore[{extra}]'")


def test_extra_of_a_message_is_one_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = "".join(path.read_text("utf-8") for path in (ROOT / "python").rglob("*.py"))
    named = set(re.findall(r"\b(?:needs|install)\(\"(\w+)\"", code))
    named |= set(re.findall(r"mqstore\[(\w+)\]", code))
    assert len(named) > 6
    assert named <= project["optional-dependencies"].keys()
