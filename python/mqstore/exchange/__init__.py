"""A store's messages on their way: into files and back, into another store, beside another store's.

Configuration and consumer offsets go with them.
"""

from __future__ import annotations

from mqstore.exchange.copying import copy, diff
from mqstore.exchange.exporting import export_store
from mqstore.exchange.importing import import_store
from mqstore.exchange.reports import (
    CopyReport,
    Difference,
    DiffReport,
    ExportReport,
    ImportReport,
    LeftAsIs,
    QueueDiff,
)
from mqstore.exchange.salvaging import (
    PassedOver,
    SalvageConflict,
    SalvagedFile,
    SalvageProblem,
    SalvageReport,
    salvage,
)

__all__ = [
    "CopyReport",
    "DiffReport",
    "Difference",
    "ExportReport",
    "ImportReport",
    "LeftAsIs",
    "PassedOver",
    "QueueDiff",
    "SalvageConflict",
    "SalvageProblem",
    "SalvageReport",
    "SalvagedFile",
    "copy",
    "diff",
    "export_store",
    "import_store",
    "salvage",
]
