"""Writing a stream: new stores for each of its batches, each batch once."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.errors import ConfigError, StoreError, UnsupportedError
from mqstore.files.durable import replace
from mqstore.spark.options import WriteOptions
from mqstore.spark.staging import Staging
from mqstore.spark.worker_check import Shipped
from mqstore.spark.writer import BAD_ROWS, StoreWriter, Written, target_of

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    raise UnsupportedError(
        "writeStream into stores needs Spark 4.1 or newer; instead write each batch in "
        "foreachBatch, as frame.write.format('mqstore').mode('overwrite') to a folder of its own",
        "writeStream",
        "",
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

_MARKER = "_mqstore-stream.json"


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The stream writer for some options and columns.

    Raises:
        ConfigError: An unknown option or column, an option that is missing, or a path that is a
            store itself.
    """
    given = {name.lower(): text for name, text in options.items()}
    checkpoint = given.pop("checkpointlocation", None)
    if checkpoint is None:
        raise ConfigError(
            "option checkpointLocation is missing: it says which query a batch belongs to",
            "checkpointLocation",
        )
    if overwrite:
        text = "outputMode complete would replace what is there; say outputMode append"
        raise ConfigError(text, "outputMode")
    if given.get("storeby", "task").strip().lower() != "task":
        text = "option storeBy: broker needs sorted rows, which a stream cannot have; leave it out"
        raise ConfigError(text, "storeBy")
    parsed = WriteOptions.parse(given)
    out, config = target_of(parsed, schema)
    query = _query(checkpoint)
    staging = Staging(str(out.absolute()), config, f"{_prefix(query)}{uuid.uuid4().hex}")
    return StreamWriter(query, StoreWriter(staging, parsed, overwrite=False))


def _prefix(query: str) -> str:
    return f"stream-{re.sub('[^0-9a-zA-Z]', '-', query)[-64:]}-"


def _query(checkpoint: str) -> str:
    """The query's id, or its checkpoint's path if that is no folder of this machine."""
    try:
        text = Path(checkpoint.removeprefix("file:"), "metadata").read_text(encoding="utf-8")
        query: str = json.loads(text)["id"]
    except (OSError, ValueError, LookupError):
        return checkpoint.rstrip("/")
    return query


@dataclass(eq=False)
class StreamWriter(Shipped, DataSourceStreamArrowWriter):
    """Writes a store for each task that has rows, and publishes those of a batch once.

    Args:
        query: The query's id.
        writer: Stages the stores.
    """

    query: str
    writer: StoreWriter

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stages a store of the rows of one task."""
        self._done()
        return self.writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Gives the stores of a batch their names, unless it has them."""
        staging = self.writer.staging
        out = Path(staging.out)
        if batchId > self._done():
            batch = f"batch-{batchId:08}"
            # A commit that was killed left them.
            half = [
                one for at in ("", f"{BAD_ROWS}/") for one in sorted(out.glob(f"{at}{batch}-*"))
            ]
            staged = []
            for one in (one for one in messages if isinstance(one, Written)):
                staged += [(f"{batch}-part-{one.partition:05}", path) for _, path in one.stores]
                staged += one.kept(batch)
            staging.publish(staged, replace=half)
            replace(out / _MARKER, json.dumps({"query": self.query, "batch": batchId}))
        self._discard()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Removes whatever a batch that failed has written."""
        self._discard()

    def _discard(self) -> None:
        """Removes what tasks have staged: they had a writer of their own."""
        for root in Path(self.writer.staging.out).glob(f"_mqstore-{_prefix(self.query)}*"):
            shutil.rmtree(root, ignore_errors=True)

    def _done(self) -> int:
        """The newest batch that was published; -1 if there is none.

        Raises:
            StoreError: The folder has the batches of another query.
        """
        marker = Path(self.writer.staging.out, _MARKER)
        if not marker.exists():
            return -1
        found = json.loads(marker.read_text(encoding="utf-8"))
        if found["query"] != self.query:
            raise StoreError(
                f"{marker.parent} has batches up to {found['batch']} of another query, "
                f"{found['query']}; nothing was written. Bring back its checkpoint, or write to a "
                "new folder"
            )
        batch: int = found["batch"]
        return batch
