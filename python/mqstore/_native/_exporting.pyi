import pyarrow as pa

from mqstore._native._types import _ArrowArray

def _export_columns(records: _ArrowArray, /) -> pa.RecordBatch:
    """Exact times, stored properties, and records that fields do not make again: a batch."""
