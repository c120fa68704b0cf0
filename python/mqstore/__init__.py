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

from mqstore._lazily import lazily

# A missing extension is noticed at once, as an ImportError that names it.
from mqstore._native import __version__  # noqa: F401
from mqstore.store import Store  # noqa: F401

# Modules, each loaded on first use, with the names that the package has from there.
# `__init__.pyi` tells them to type checkers.
_NAMES = {
    "_native": (
        "ARROW_SCHEMA AppendResult AppendSummary ArrowScan ArrowSchema Checkpoint CommitLog "
        "ConsumeQueue Damage GroupOffset IndexEntry IndexFile IndexHeader Message MessageId "
        "MessageScan OffsetLists QueueEntry QueueInfo ReadResult StoredMessage __version__ "
        "decode encode inventory java_hash key_hash lock_state parse_message_id "
        "read_config_json tags_code"
    ),
    "backup.moment": "snapshots",
    "backup.restoring": "RestoreReport restore",
    "backup.snapshot": "Snapshot",
    "backup.syncing": "SyncReport sync",
    "backup.upkeep": "PruneReport check_backup prune",
    "care.checks": "doctor verify",
    "care.pending": "DeadLetters HalfMessage OverdueMessage PendingReport WaitingRetries pending",
    "care.preflight": "PreflightNote PreflightReport preflight",
    "care.stats": "StoreStats Totals stats",
    "care.upkeep": (
        "CleanReport CleanedFile RebuildReport RebuiltQueue RebuiltTopic UnreadMessages clean "
        "rebuild recover"
    ),
    "care.why": "WhyAnswer WhyPlace WhyReport why",
    "config": "ConfigWarning StoreConfig",
    "database": "sql",
    "errors": (
        "ConfigError CorruptionError FlushTimeoutError InvalidMessageError "
        "MessageNotFoundError NotAStoreError NotDispatchedError OffsetOutOfRangeError "
        "StoreClosedError StoreError StoreIOError StoreLockedError StorePoisonedError "
        "StoreReadOnlyError UnsupportedError"
    ),
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
        "Diagnosis DoctorReport Finding GroupFate LostInQueue QuarantinedMessage QueryResult "
        "RecoveryReport VerifyReport"
    ),
    "rocksdb.converting": "ConvertReport convert",
    "status": "GetStatus PutStatus",
    "store": "Store open",
}
__all__ = sorted(name for names in _NAMES.values() for name in names.split())
__getattr__ = lazily(__name__, _NAMES, ("aio", "duckdb", "metrics", "polars", "spark"))


def __dir__() -> list[str]:
    return __all__
