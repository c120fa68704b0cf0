"""The scripts in ``examples/`` run, in the session of the tests."""

from __future__ import annotations

import runpy
import tomllib
from datetime import UTC, datetime, timedelta
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


def test_each_order_is_once_in_its_day_however_often_it_is_read(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    day = datetime(2026, 3, 1, tzinfo=UTC)

    def append(broker: str, numbers: range) -> None:
        with mqstore.open(tmp_path / broker, "a", config=TINY) as store:
            store.append_many(
                message(
                    "orders",
                    body=b'{"id": %d, "customer": "c", "amount": 1.50}' % n if n % 5 else b"{",
                    unique_key=f"U{n}",
                    store_timestamp_ms=day + timedelta(hours=n),
                )
                for n in numbers
            )

    append("broker-a", range(40))
    append("broker-b", range(30, 60))
    for last in (60, 60, 80):
        append("broker-b", range(60, last))
        run(monkeypatch, "daily_orders.py", f"{tmp_path}/broker-*", tmp_path / "out")
        orders, rejected = capsys.readouterr().out.splitlines()[-2:]
        assert orders == f"orders {last - last // 5}"
        assert rejected == f"rejected {(last + 10) // 5}"
    rows = spark.read.parquet(f"{tmp_path}/out/orders")
    assert dict(rows.dtypes)["amount"] == "decimal(12,2)"
    assert sorted(row["id"] for row in rows.collect()) == [n for n in range(80) if n % 5]
    assert rows.where("broker = 'broker-a'").count() == 32
    days = [row["date"].day for row in rows.groupBy("date").count().sort("date").collect()]
    assert days == [1, 2, 3, 4]


def test_the_pipelines_example_is_a_configuration() -> None:
    given = tomllib.loads((EXAMPLES / "ingest.toml").read_text(encoding="utf-8"))
    settings = PipelineConfig.load(given)
    assert settings.path == "/lake/messages"
    assert settings.interval == "1 minute"
    assert "maxBytesPerTrigger" in settings.options()
