from collections.abc import Iterator
from typing import Any, Final, final

import polars as pl
import pyarrow as pa

@final
class ArrowSchema:
    """An Arrow schema, for anything that takes ``__arrow_c_schema__``."""

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow PyCapsule interface."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class ArrowScan:
    """Rows of a store as an Arrow stream, read anew by each consumer.

    polars, DuckDB, pandas and pyarrow take it as it is. No file is open between two consumers.
    """

    @property
    def schema(self) -> ArrowSchema:
        """The columns that the stream has."""
    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow PyCapsule interface."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A new stream over all rows, as a capsule.

        Args:
            requested_schema: A schema capsule; where it asks for view types (``string_view``,
                ``binary_view``) the stream has them.
        """
    def read_all(self) -> pa.Table:
        """All rows at once: a ``pyarrow.Table``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """

    def to_table(self) -> pa.Table:
        """All rows at once: a ``pyarrow.Table``, as ``read_all``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas has no types
        """All rows at once: a ``pandas.DataFrame``.

        Raises:
            ModuleNotFoundError: pyarrow or pandas is not installed.
        """

    def to_polars(self) -> pl.DataFrame:
        """All rows at once: a ``polars.DataFrame``.

        Raises:
            ModuleNotFoundError: polars is not installed.
        """

    def _narrowed(
        self, keys: list[str] | None, physical_offsets: list[int] | None, verify_crc: bool, /
    ) -> ArrowScan:
        """The same scan, of messages with one of the keys, and at sorted physical offsets only."""

    def _json_lines(self) -> Iterator[tuple[bytes, int, int, list[tuple[int, int | None, str]]]]:
        """Batches of the column ``record`` as lines of JSON.

        Each is a tuple of the lines, the number of messages, their bytes, and begin, length and
        reason of each damaged range.
        """

    # Batches of rows, one at a time: each a ``pyarrow.RecordBatch``.
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

ARROW_SCHEMA: Final[ArrowSchema]
"""The columns of a message, all of them, in the order in which a scan gives them."""
