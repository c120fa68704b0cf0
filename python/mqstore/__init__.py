"""A fast, crash-safe message store in the file format of Apache RocketMQ, for Python and Spark.

>>> import mqstore, tempfile
>>> with mqstore.open(tempfile.mkdtemp(), "a") as store:
...     result = store.append("orders", b"paid", tags="paid", keys="o-1")
...     [message.body for message in store.query("orders", "o-1")]
[b'paid']

Names ending in ``_ms`` are Unix time in milliseconds, and bounds of it are inclusive. A
``physical_offset`` is a byte position in the whole commit log; a ``queue_offset`` is an entry
number in one consume queue. Errors of a store are subclasses of ``StoreError``
(module ``mqstore.errors``). A wrong argument raises ``TypeError`` or ``ValueError``.
"""

from typing import TYPE_CHECKING

from mqstore._native import (
    ARROW_SCHEMA,
    AppendResult,
    AppendSummary,
    ArrowScan,
    ArrowSchema,
    Checkpoint,
    CommitLog,
    ConsumeQueue,
    Damage,
    GroupOffset,
    IndexEntry,
    IndexFile,
    IndexHeader,
    Message,
    MessageId,
    MessageScan,
    OffsetLists,
    QueueEntry,
    QueueInfo,
    ReadResult,
    Store,
    StoredMessage,
    __version__,
    decode,
    encode,
    inventory,
    java_hash,
    key_hash,
    lock_state,
    parse_message_id,
    read_config_json,
    tags_code,
)
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    FlushTimeoutError,
    InvalidMessageError,
    MessageNotFoundError,
    NotAStoreError,
    NotDispatchedError,
    OffsetOutOfRangeError,
    StoreClosedError,
    StoreError,
    StoreIOError,
    StoreLockedError,
    StorePoisonedError,
    StoreReadOnlyError,
    UnsupportedError,
)
from mqstore.status import GetStatus, PutStatus
from mqstore.store import doctor, open, verify  # noqa: A004 - `mqstore.open` is the public name
from mqstore.upkeep import clean, rebuild, recover

if TYPE_CHECKING:
    from mqstore.asking import why
    from mqstore.asking_results import WhyAnswer, WhyPlace, WhyReport
    from mqstore.config import ConfigWarning, StoreConfig
    from mqstore.consuming.group import ConsumerGroup
    from mqstore.consuming.processing import Processed
    from mqstore.exchange import (
        CopyReport,
        Difference,
        DiffReport,
        ExportReport,
        ImportReport,
        LeftAsIs,
        PassedOver,
        QueueDiff,
        SalvageConflict,
        SalvagedFile,
        SalvageProblem,
        SalvageReport,
        copy,
        diff,
        export_store,
        import_store,
        salvage,
    )
    from mqstore.html_report import report
    from mqstore.pending_messages import (
        DeadLetters,
        HalfMessage,
        OverdueMessage,
        PendingReport,
        WaitingRetries,
        pending,
    )
    from mqstore.preflighting import PreflightNote, PreflightReport, preflight
    from mqstore.results import (
        Diagnosis,
        DoctorReport,
        Finding,
        GroupFate,
        LostInQueue,
        QuarantinedMessage,
        QueryResult,
        RecoveryReport,
        VerifyReport,
    )
    from mqstore.rocksdb.converting import ConvertReport, convert
    from mqstore.store_stats import StoreStats, Totals, stats
    from mqstore.upkeep_results import (
        CleanedFile,
        CleanReport,
        RebuildReport,
        RebuiltQueue,
        RebuiltTopic,
        UnreadMessages,
    )

__all__ = [
    "ARROW_SCHEMA",
    "AppendResult",
    "AppendSummary",
    "ArrowScan",
    "ArrowSchema",
    "Checkpoint",
    "CleanReport",
    "CleanedFile",
    "CommitLog",
    "ConfigError",
    "ConfigWarning",
    "ConsumeQueue",
    "ConsumerGroup",
    "ConvertReport",
    "CopyReport",
    "CorruptionError",
    "Damage",
    "DeadLetters",
    "Diagnosis",
    "DiffReport",
    "Difference",
    "DoctorReport",
    "ExportReport",
    "Finding",
    "FlushTimeoutError",
    "GetStatus",
    "GroupFate",
    "GroupOffset",
    "HalfMessage",
    "ImportReport",
    "IndexEntry",
    "IndexFile",
    "IndexHeader",
    "InvalidMessageError",
    "LeftAsIs",
    "LostInQueue",
    "Message",
    "MessageId",
    "MessageNotFoundError",
    "MessageScan",
    "NotAStoreError",
    "NotDispatchedError",
    "OffsetLists",
    "OffsetOutOfRangeError",
    "OverdueMessage",
    "PassedOver",
    "PendingReport",
    "PreflightNote",
    "PreflightReport",
    "Processed",
    "PutStatus",
    "QuarantinedMessage",
    "QueryResult",
    "QueueDiff",
    "QueueEntry",
    "QueueInfo",
    "ReadResult",
    "RebuildReport",
    "RebuiltQueue",
    "RebuiltTopic",
    "RecoveryReport",
    "SalvageConflict",
    "SalvageProblem",
    "SalvageReport",
    "SalvagedFile",
    "Store",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreIOError",
    "StoreLockedError",
    "StorePoisonedError",
    "StoreReadOnlyError",
    "StoreStats",
    "StoredMessage",
    "Totals",
    "UnreadMessages",
    "UnsupportedError",
    "VerifyReport",
    "WaitingRetries",
    "WhyAnswer",
    "WhyPlace",
    "WhyReport",
    "__version__",
    "clean",
    "convert",
    "copy",
    "decode",
    "diff",
    "doctor",
    "encode",
    "export_store",
    "import_store",
    "inventory",
    "java_hash",
    "key_hash",
    "lock_state",
    "open",
    "parse_message_id",
    "pending",
    "preflight",
    "read_config_json",
    "rebuild",
    "recover",
    "report",
    "salvage",
    "stats",
    "tags_code",
    "verify",
    "why",
]

# Modules that need msgspec or dataclasses are imported on first use.
_LATER = {
    "ConfigWarning": "mqstore.config",
    "StoreConfig": "mqstore.config",
    "ConsumerGroup": "mqstore.consuming.group",
    "Processed": "mqstore.consuming.processing",
    "Diagnosis": "mqstore.results",
    "DoctorReport": "mqstore.results",
    "GroupFate": "mqstore.results",
    "LostInQueue": "mqstore.results",
    "PreflightNote": "mqstore.preflighting",
    "PreflightReport": "mqstore.preflighting",
    "preflight": "mqstore.preflighting",
    "ConvertReport": "mqstore.rocksdb.converting",
    "convert": "mqstore.rocksdb.converting",
    "CopyReport": "mqstore.exchange",
    "Difference": "mqstore.exchange",
    "DiffReport": "mqstore.exchange",
    "LeftAsIs": "mqstore.exchange",
    "QueueDiff": "mqstore.exchange",
    "copy": "mqstore.exchange",
    "diff": "mqstore.exchange",
    "PassedOver": "mqstore.exchange",
    "SalvageConflict": "mqstore.exchange",
    "SalvageProblem": "mqstore.exchange",
    "SalvageReport": "mqstore.exchange",
    "SalvagedFile": "mqstore.exchange",
    "salvage": "mqstore.exchange",
    "ExportReport": "mqstore.exchange",
    "ImportReport": "mqstore.exchange",
    "export_store": "mqstore.exchange",
    "import_store": "mqstore.exchange",
    "Finding": "mqstore.results",
    "QuarantinedMessage": "mqstore.results",
    "QueryResult": "mqstore.results",
    "RecoveryReport": "mqstore.results",
    "VerifyReport": "mqstore.results",
    "StoreStats": "mqstore.store_stats",
    "Totals": "mqstore.store_stats",
    "stats": "mqstore.store_stats",
    "CleanReport": "mqstore.upkeep_results",
    "CleanedFile": "mqstore.upkeep_results",
    "RebuildReport": "mqstore.upkeep_results",
    "RebuiltQueue": "mqstore.upkeep_results",
    "RebuiltTopic": "mqstore.upkeep_results",
    "UnreadMessages": "mqstore.upkeep_results",
    "DeadLetters": "mqstore.pending_messages",
    "HalfMessage": "mqstore.pending_messages",
    "OverdueMessage": "mqstore.pending_messages",
    "PendingReport": "mqstore.pending_messages",
    "WaitingRetries": "mqstore.pending_messages",
    "pending": "mqstore.pending_messages",
    "report": "mqstore.html_report",
    "WhyAnswer": "mqstore.asking_results",
    "WhyPlace": "mqstore.asking_results",
    "WhyReport": "mqstore.asking_results",
    "why": "mqstore.asking",
}


def __getattr__(name: str) -> object:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # only for what comes later

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
