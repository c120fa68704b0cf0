"""Reading a store that a broker is writing, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import DataSourceStreamReader

    from mqstore.spark.options import ReadOptions

__all__ = ["make_stream_reader"]


def make_stream_reader(options: ReadOptions, columns: Sequence[str]) -> DataSourceStreamReader:
    """The stream reader for some options and columns."""
    raise UnsupportedError(
        f"{options.paths[0]}: streams of {len(columns)} columns are not there yet",
        "stream",
        options.paths[0],
    )
