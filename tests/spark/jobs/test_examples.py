"""The scripts in ``examples/`` run, in the session of the tests."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import mqstore
from helpers.stores import TINY, message
from mqstore.spark.ingest import PipelineConfig
from mqstore.spark.stream import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", [name, *(str(argument) for argument in arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_scripts_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("broker-a", "broker-b"):
        with mqstore.open(tmp_path / name, "a", config=TINY) as store:
            store.append_many([message(f"T{n % 2}", body=b"%d" % n, tags="x") for n in range(20)])
    stores = f"{tmp_path}/broker-*"
    run(monkeypatch, "functions.py", tmp_path / "broker-a")
    shown = capsys.readouterr().out
    assert "|127.0.0.1|T0   |120      |none       |10      |" in shown
    run(monkeypatch, "write_stores.py", stores, "T1", tmp_path / "new")
    assert capsys.readouterr().out.split() == [
        *(str(tmp_path / "new" / "broker-a"), "10"),
        *(str(tmp_path / "new" / "broker-b"), "10"),
    ]
    if not HAS_LIMITS:
        with pytest.raises(StreamingQueryException, match=r"maxBytesPerTrigger needs Spark 4\.2"):
            run(monkeypatch, "stream.py", stores, tmp_path / "out")
        return
    for _ in range(2):
        run(monkeypatch, "stream.py", stores, tmp_path / "out")
        assert capsys.readouterr().out.splitlines()[-1] == "40 messages"


def test_the_pipelines_example_is_a_configuration() -> None:
    given = tomllib.loads((EXAMPLES / "ingest.toml").read_text(encoding="utf-8"))
    settings = PipelineConfig.load(given)
    assert settings.path == "/lake/messages"
    assert settings.interval == "1 minute"
    assert "maxBytesPerTrigger" in settings.options()
