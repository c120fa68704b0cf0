"""The page about reading and its example are true."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import mqstore
from mqstore.spark.options import OPTIONS, TABLES, ReadOptions
from mqstore.spark.schema import message_schema, table_schema
from mqstore.spark.values import STREAM

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def test_every_option_has_an_example_that_is_taken() -> None:
    # A name, Kafka's name, where it works, an example.
    row = r"^\| `(\w+)`[^|]* \| [^|]+ \| `(\w+)=((?:[^`|]|\\\|)+)` \|"
    rows = re.findall(row, PAGE, flags=re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(OPTIONS)
    for name, shown, value in rows:
        assert name == shown
        given = {"path": "/data/store"} | {name: value.replace("\\|", "|")}
        ReadOptions.parse(given, streaming=OPTIONS[name].where == STREAM)


def test_every_table_and_column_is_named() -> None:
    for name in message_schema().fieldNames():
        assert re.search(rf"\b{name}\b", PAGE.partition("## Columns")[2].partition("##")[0]), name
    tables = PAGE.partition("## Structures as tables")[2].partition("## On a cluster")[0]
    for table in TABLES[1:]:
        row = re.search(rf"^\| `{table}` \|.*$", tables, flags=re.MULTILINE)
        assert row is not None, table
        for name in table_schema(table).fieldNames()[1:]:
            assert re.search(rf"\b{name}\b", row[0]), (table, name)


def test_the_example_runs(spark, tmp_path, monkeypatch, capsys) -> None:
    for broker in ("broker-a", "broker-b"):
        with mqstore.open(tmp_path / broker / "store", "a") as store:
            store.append_many({"topic": "orders", "body": b"x" * 10} for _ in range(5))
    monkeypatch.setattr(sys, "argv", ["read_stores.py", str(tmp_path / "*" / "store"), "orders"])
    runpy.run_path(str(ROOT / "examples" / "read_stores.py"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("broker-a: ")
    assert lines[0].endswith(" bytes of orders")
    assert lines[3].endswith(" bytes of log, closed")
