# Types of the names that ``__init__.py`` loads on first use; the docstring is there.

from mqstore import aio as aio
from mqstore import duckdb as duckdb
from mqstore import metrics as metrics
from mqstore import polars as polars
from mqstore import spark as spark
from mqstore._native import ARROW_SCHEMA as ARROW_SCHEMA
from mqstore._native import AppendResult as AppendResult
from mqstore._native import AppendSummary as AppendSummary
from mqstore._native import ArrowScan as ArrowScan
from mqstore._native import ArrowSchema as ArrowSchema
from mqstore._native import Checkpoint as Checkpoint
from mqstore._native import CommitLog as CommitLog
from mqstore._native import ConsumeQueue as ConsumeQueue
from mqstore._native import Damage as Damage
from mqstore._native import GroupOffset as GroupOffset
from mqstore._native import IndexEntry as IndexEntry
from mqstore._native import IndexFile as IndexFile
from mqstore._native import IndexHeader as IndexHeader
from mqstore._native import Message as Message
from mqstore._native import MessageId as MessageId
from mqstore._native import MessageScan as MessageScan
from mqstore._native import OffsetLists as OffsetLists
from mqstore._native import QueueEntry as QueueEntry
from mqstore._native import QueueInfo as QueueInfo
from mqstore._native import ReadResult as ReadResult
from mqstore._native import StoredMessage as StoredMessage
from mqstore._native import __version__ as __version__
from mqstore._native import decode as decode
from mqstore._native import encode as encode
from mqstore._native import inventory as inventory
from mqstore._native import java_hash as java_hash
from mqstore._native import key_hash as key_hash
from mqstore._native import lock_state as lock_state
from mqstore._native import parse_message_id as parse_message_id
from mqstore._native import read_config_json as read_config_json
from mqstore._native import tags_code as tags_code
from mqstore.backup.moment import snapshots as snapshots
from mqstore.backup.restoring import RestoreReport as RestoreReport
from mqstore.backup.restoring import restore as restore
from mqstore.backup.snapshot import Snapshot as Snapshot
from mqstore.backup.syncing import SyncReport as SyncReport
from mqstore.backup.syncing import sync as sync
from mqstore.backup.upkeep import PruneReport as PruneReport
from mqstore.backup.upkeep import check_backup as check_backup
from mqstore.backup.upkeep import prune as prune
from mqstore.care.checks import doctor as doctor
from mqstore.care.checks import verify as verify
from mqstore.care.pending import DeadLetters as DeadLetters
from mqstore.care.pending import HalfMessage as HalfMessage
from mqstore.care.pending import OverdueMessage as OverdueMessage
from mqstore.care.pending import PendingReport as PendingReport
from mqstore.care.pending import WaitingRetries as WaitingRetries
from mqstore.care.pending import pending as pending
from mqstore.care.preflight import PreflightNote as PreflightNote
from mqstore.care.preflight import PreflightReport as PreflightReport
from mqstore.care.preflight import preflight as preflight
from mqstore.care.stats import StoreStats as StoreStats
from mqstore.care.stats import Totals as Totals
from mqstore.care.stats import stats as stats
from mqstore.care.upkeep import CleanedFile as CleanedFile
from mqstore.care.upkeep import CleanReport as CleanReport
from mqstore.care.upkeep import RebuildReport as RebuildReport
from mqstore.care.upkeep import RebuiltQueue as RebuiltQueue
from mqstore.care.upkeep import RebuiltTopic as RebuiltTopic
from mqstore.care.upkeep import UnreadMessages as UnreadMessages
from mqstore.care.upkeep import clean as clean
from mqstore.care.upkeep import rebuild as rebuild
from mqstore.care.upkeep import recover as recover
from mqstore.care.why import WhyAnswer as WhyAnswer
from mqstore.care.why import WhyPlace as WhyPlace
from mqstore.care.why import WhyReport as WhyReport
from mqstore.care.why import why as why
from mqstore.config import ConfigWarning as ConfigWarning
from mqstore.config import StoreConfig as StoreConfig
from mqstore.database import sql as sql
from mqstore.errors import ConfigError as ConfigError
from mqstore.errors import CorruptionError as CorruptionError
from mqstore.errors import FlushTimeoutError as FlushTimeoutError
from mqstore.errors import InvalidMessageError as InvalidMessageError
from mqstore.errors import MessageNotFoundError as MessageNotFoundError
from mqstore.errors import NotAStoreError as NotAStoreError
from mqstore.errors import NotDispatchedError as NotDispatchedError
from mqstore.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
from mqstore.errors import StoreClosedError as StoreClosedError
from mqstore.errors import StoreError as StoreError
from mqstore.errors import StoreIOError as StoreIOError
from mqstore.errors import StoreLockedError as StoreLockedError
from mqstore.errors import StorePoisonedError as StorePoisonedError
from mqstore.errors import StoreReadOnlyError as StoreReadOnlyError
from mqstore.errors import UnsupportedError as UnsupportedError
from mqstore.exchange.copying import CopyReport as CopyReport
from mqstore.exchange.copying import Difference as Difference
from mqstore.exchange.copying import DiffReport as DiffReport
from mqstore.exchange.copying import QueueDiff as QueueDiff
from mqstore.exchange.copying import copy as copy
from mqstore.exchange.copying import diff as diff
from mqstore.exchange.matching import LeftAsIs as LeftAsIs
from mqstore.exchange.salvaging import PassedOver as PassedOver
from mqstore.exchange.salvaging import SalvageConflict as SalvageConflict
from mqstore.exchange.salvaging import SalvagedFile as SalvagedFile
from mqstore.exchange.salvaging import SalvageProblem as SalvageProblem
from mqstore.exchange.salvaging import SalvageReport as SalvageReport
from mqstore.exchange.salvaging import salvage as salvage
from mqstore.exchange.transfer import ExportReport as ExportReport
from mqstore.exchange.transfer import ImportReport as ImportReport
from mqstore.exchange.transfer import export_store as export_store
from mqstore.exchange.transfer import import_store as import_store
from mqstore.files.remote import IoCounts as IoCounts
from mqstore.groups.group import ConsumerGroup as ConsumerGroup
from mqstore.groups.processing import Processed as Processed
from mqstore.html_report import report as report
from mqstore.replaying.replay import replay as replay
from mqstore.replaying.replay import resend as resend
from mqstore.replaying.report import FirstMessage as FirstMessage
from mqstore.replaying.report import ReplayFailure as ReplayFailure
from mqstore.replaying.report import ReplayRefusal as ReplayRefusal
from mqstore.replaying.report import ReplayReport as ReplayReport
from mqstore.replaying.report import ReplayTopic as ReplayTopic
from mqstore.results import Diagnosis as Diagnosis
from mqstore.results import DoctorReport as DoctorReport
from mqstore.results import Finding as Finding
from mqstore.results import GroupFate as GroupFate
from mqstore.results import LostInQueue as LostInQueue
from mqstore.results import QuarantinedMessage as QuarantinedMessage
from mqstore.results import QueryResult as QueryResult
from mqstore.results import RecoveryReport as RecoveryReport
from mqstore.results import VerifyReport as VerifyReport
from mqstore.rocksdb.converting import ConvertReport as ConvertReport
from mqstore.rocksdb.converting import convert as convert
from mqstore.status import GetStatus as GetStatus
from mqstore.status import PutStatus as PutStatus
from mqstore.store import Store as Store
from mqstore.store import open as open  # noqa: A004 - `mqstore.open` is the public name

# As at runtime: the modules above are not in it.
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
