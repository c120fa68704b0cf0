"""Where Spark looks for data sources by itself: it imports every package called ``pyspark_*``.

Importing this costs nothing where pyspark is missing: there is no ``DefaultSource`` then.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ModuleNotFoundError):
    from mqstore.spark.source import MqStoreDataSource as DefaultSource

    __all__ = ["DefaultSource"]
