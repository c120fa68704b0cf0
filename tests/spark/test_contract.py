"""What Spark asks of a source, without a JVM."""

from __future__ import annotations

import pickle

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema

import mqstore
from mqstore.spark.schema import message_schema
from mqstore.spark.source import MqStoreDataSource


def test_schema_is_the_arrow_schema_to_nullability_and_child_names() -> None:
    assert to_arrow_schema(message_schema(), timezone="UTC").equals(pa.schema(mqstore.ARROW_SCHEMA))


def test_source_travels(tmp_path) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        store.append("orders", b"one")
    source = MqStoreDataSource(CaseInsensitiveDict({"path": str(tmp_path / "store")}))
    reader = pickle.loads(pickle.dumps(source)).reader(schema=source.schema())
    rows = []
    for part in reader.partitions():
        reader, part = pickle.loads(pickle.dumps((reader, part)))
        rows += [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["topic"] for row in rows] == ["orders"]
