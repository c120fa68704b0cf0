"""The wheel alone: installed into an empty environment, Spark finds the format by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]

ASK = """
import sys
from pathlib import Path
import mqstore
assert "site-packages" in mqstore.__file__, mqstore.__file__
assert Path(mqstore.__file__).with_name("_native").joinpath("__init__.pyi").exists()
assert mqstore.Store.append.__doc__
with mqstore.open(sys.argv[1], "a") as store:
    store.append_many({"topic": "T", "body": b"%d" % n} for n in range(5))
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
print("rows:", spark.read.format("mqstore").load(sys.argv[1]).count())
"""


def run(*command: str | Path, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheels(folder: Path) -> Path:
    """Folder of the wheel of this tree, which CI has built already."""
    if built := os.environ.get("MQSTORE_WHEELS"):
        return Path(built)
    maturin = (sys.executable, "-m", "maturin", "build", "--locked", "--quiet", "--out", folder)
    run(*maturin, VIRTUAL_ENV=sys.prefix)
    return folder


def test_the_wheel_alone_brings_the_format(tmp_path: Path) -> None:
    (wheel,) = wheels(tmp_path).glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", wheel)
    # Large dependencies come from here; they are not under test.
    for name in ("pyspark", "py4j", "pyarrow", "msgspec", "click", "javaproperties", "six.py"):
        have = Path(sysconfig.get_path("purelib")) / name
        if have.exists():
            (site / name).symlink_to(have)
    out = run(python, "-c", ASK, tmp_path / "store", PYSPARK_PYTHON=str(python))
    assert "rows: 5" in out
