"""Writing new stores, one for each task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["make_writer"]


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceWriter:
    """The writer for some options and columns."""
    raise UnsupportedError(
        f"writing {len(schema)} columns (overwrite={overwrite}) to {options.get('path')} "
        "is not there yet",
        "write",
        options.get("path", ""),
    )
