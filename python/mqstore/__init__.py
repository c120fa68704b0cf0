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

from mqstore._lazily import lazily
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
from mqstore.store import Store, open  # noqa: A004 - `mqstore.open` is the public name

if TYPE_CHECKING:
    from mqstore import aio as aio
    from mqstore import duckdb as duckdb
    from mqstore import metrics as metrics
    from mqstore import polars as polars
    from mqstore import spark as spark
    from mqstore.backup.moment import snapshots
    from mqstore.backup.restoring import RestoreReport, restore
    from mqstore.backup.snapshot import Snapshot
    from mqstore.backup.syncing import SyncReport, sync
    from mqstore.backup.upkeep import PruneReport, check_backup, prune
    from mqstore.care.checks import doctor, verify
    from mqstore.care.pending import (
        DeadLetters,
        HalfMessage,
        OverdueMessage,
        PendingReport,
        WaitingRetries,
        pending,
    )
    from mqstore.care.preflight import PreflightNote, PreflightReport, preflight
    from mqstore.care.stats import StoreStats, Totals, stats
    from mqstore.care.upkeep import (
        CleanedFile,
        CleanReport,
        RebuildReport,
        RebuiltQueue,
        RebuiltTopic,
        UnreadMessages,
        clean,
        rebuild,
        recover,
    )
    from mqstore.care.why import WhyAnswer, WhyPlace, WhyReport, why
    from mqstore.config import ConfigWarning, StoreConfig
    from mqstore.database import sql
    from mqstore.exchange.copying import CopyReport, Difference, DiffReport, QueueDiff, copy, diff
    from mqstore.exchange.matching import LeftAsIs
    from mqstore.exchange.salvaging import (
        PassedOver,
        SalvageConflict,
        SalvagedFile,
        SalvageProblem,
        SalvageReport,
        salvage,
    )
    from mqstore.exchange.transfer import ExportReport, ImportReport, export_store, import_store
    from mqstore.files.remote import IoCounts
    from mqstore.groups.group import ConsumerGroup
    from mqstore.groups.processing import Processed
    from mqstore.html_report import report
    from mqstore.replaying.replay import replay, resend
    from mqstore.replaying.report import (
        FirstMessage,
        ReplayFailure,
        ReplayRefusal,
        ReplayReport,
        ReplayTopic,
    )
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
    "FirstMessage",
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
    "IoCounts",
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
    "PruneReport",
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
    "ReplayFailure",
    "ReplayRefusal",
    "ReplayReport",
    "ReplayTopic",
    "RestoreReport",
    "SalvageConflict",
    "SalvageProblem",
    "SalvageReport",
    "SalvagedFile",
    "Snapshot",
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
    "SyncReport",
    "Totals",
    "UnreadMessages",
    "UnsupportedError",
    "VerifyReport",
    "WaitingRetries",
    "WhyAnswer",
    "WhyPlace",
    "WhyReport",
    "__version__",
    "check_backup",
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
    "prune",
    "read_config_json",
    "rebuild",
    "recover",
    "replay",
    "report",
    "resend",
    "restore",
    "salvage",
    "snapshots",
    "sql",
    "stats",
    "sync",
    "tags_code",
    "verify",
    "why",
]

# Loaded on first use: modules that need msgspec, dataclasses or an extra.
__getattr__ = lazily(
    __name__,
    {
        "backup.moment": "snapshots",
        "backup.restoring": "RestoreReport restore",
        "backup.snapshot": "Snapshot",
        "backup.syncing": "SyncReport sync",
        "backup.upkeep": "PruneReport check_backup prune",
        "care.checks": "doctor verify",
        "care.pending": (
            "DeadLetters HalfMessage OverdueMessage PendingReport WaitingRetries pending"
        ),
        "care.preflight": "PreflightNote PreflightReport preflight",
        "care.stats": "StoreStats Totals stats",
        "care.upkeep": (
            "CleanReport CleanedFile RebuildReport RebuiltQueue RebuiltTopic UnreadMessages "
            "clean rebuild recover"
        ),
        "care.why": "WhyAnswer WhyPlace WhyReport why",
        "config": "ConfigWarning StoreConfig",
        "database": "sql",
        "exchange.copying": "CopyReport DiffReport Difference QueueDiff copy diff",
        "exchange.matching": "LeftAsIs",
        "exchange.salvaging": (
            "PassedOver SalvageConflict SalvageProblem SalvageReport SalvagedFile salvage"
        ),
        "exchange.transfer": "ExportReport ImportReport export_store import_store",
        "files.remote": "IoCounts",
        "groups.group": "ConsumerGroup",
        "groups.processing": "Processed",
        "html_report": "report",
        "replaying.replay": "replay resend",
        "replaying.report": "FirstMessage ReplayFailure ReplayRefusal ReplayReport ReplayTopic",
        "results": (
            "Diagnosis DoctorReport Finding GroupFate LostInQueue QuarantinedMessage "
            "QueryResult RecoveryReport VerifyReport"
        ),
        "rocksdb.converting": "ConvertReport convert",
    },
    ("aio", "duckdb", "metrics", "polars", "spark"),
)


def __dir__() -> list[str]:
    return __all__
