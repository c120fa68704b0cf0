"""Arrow's types of Spark's, in every version of Spark."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from pyspark.sql.pandas import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_HAS_ZONE = "timezone" in inspect.signature(types.to_arrow_schema).parameters


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark wants of batches, times in UTC as they are before Spark 4.2 anyway."""
    return types.to_arrow_schema(schema, **({"timezone": "UTC"} if _HAS_ZONE else {}))
