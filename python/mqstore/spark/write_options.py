"""The options of a write in the format ``mqstore``: one row each, as those of ``options``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from mqstore.spark.values import BATCH, option, options_of, read_given, read_names, read_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write, parsed: a field each, with its row."""

    path: str | None = option(
        "path",
        str,
        meaning="target directory of the stores; every worker must reach it under this name",
    )
    config: str | None = option(
        "config",
        str,
        meaning='a `broker.conf`, or settings as JSON: `{"mapped_file_size_commit_log": '
        "1073741824}`",
    )
    properties_from: tuple[str, ...] = option(
        "propertiesFrom",
        read_names,
        default=(),
        meaning="columns that become properties, as texts: `region,amount`; null is left out; "
        "`properties_from=` of `write_store`",
    )
    store_by: Literal["task", "broker"] = option(
        "storeBy",
        read_one_of(("task", "broker")),
        default="task",
        where=BATCH,
        meaning="`task`: a store `part-<number>` for each task that has rows; `broker`: a store "
        "for each broker, of rows that come sorted by `broker` (`write_store` sorts them, by store "
        "time too)",
    )
    bad_rows: Literal["fail", "drop", "quarantine"] = option(
        "badRows",
        read_one_of(("fail", "drop", "quarantine")),
        default="fail",
        meaning="a row that is no message: `fail` names its number and field; `drop` leaves it out "
        "and warns; `quarantine` keeps it with both in `_bad_rows` of the target, as Parquet; "
        "`bad_rows=` of `write_store`",
    )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options as Spark hands them over; names in any case.

        Raises:
            ConfigError: No such option, or a value that it cannot have.
        """
        given = read_given(options, WRITE_OPTIONS)
        rows = [(WRITE_OPTIONS[name], text) for name, text in given.items()]
        return cls(**{row.field: row.parse(text) for row, text in rows})


WRITE_OPTIONS: Final = options_of(WriteOptions)
"""Each option of a write, by its name."""
