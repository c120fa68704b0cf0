"""The native extension: what Rust gives to Python.

Each file ``_name.pyi`` declares what ``src/py/name.rs`` defines. This file stands for
``src/py/mod.rs``, and ``_types.pyi`` holds the types that several of them share. A class with
methods in several Rust files groups its members under the name of each. The files exist for type
checkers only: import from ``mqstore._native``.

Names without an underscore are re-exported by ``mqstore``, which adds what is better said in
Python: ``mqstore.open``, ``mqstore.StoreConfig``, the exceptions and the reports.

Conventions: ``_ms`` is Unix time in milliseconds and bounds of it are inclusive;
``physical_offset`` is a byte position in the whole commit log, and ranges of it are half-open;
``queue_offset`` is an entry number in one consume queue. Integers are as wide as on disk: a
number that its field cannot hold raises ``InvalidMessageError`` before anything is done, and so
does text that UTF-8 cannot hold (a lone surrogate). Bounds and offsets that are only asked for may
be any number.

Every value class here is frozen, compares by value, hashes, pickles, and has a ``repr`` that shows
at most 64 bytes of a body. Everything that touches a file or waits does so without the interpreter
lock. Python classes that the extension makes itself (it imports them by name): the exceptions of
``mqstore.errors``, ``GetStatus`` and ``PutStatus`` of ``mqstore.status``, and ``QueryResult`` of
``mqstore.results``. ``mqstore.Store`` adds the others.
"""

from typing import Final

from mqstore._native._arrays import _array_function as _array_function
from mqstore._native._arrow import OffsetLists
from mqstore._native._doctor import _swap_commands as _swap_commands
from mqstore._native._doctor import doctor, next_start
from mqstore._native._exporting import _export_columns as _export_columns
from mqstore._native._files import Checkpoint, CommitLog, ConsumeQueue, QueueEntry
from mqstore._native._functions import (
    _anchors as _anchors,
)
from mqstore._native._functions import _check_owner as _check_owner
from mqstore._native._functions import _copy_folder as _copy_folder
from mqstore._native._functions import (
    _index_slots as _index_slots,
)
from mqstore._native._functions import (
    _is_system_group as _is_system_group,
)
from mqstore._native._functions import (
    _is_system_topic as _is_system_topic,
)
from mqstore._native._functions import (
    _keep_config as _keep_config,
)
from mqstore._native._functions import (
    _load_config_json as _load_config_json,
)
from mqstore._native._functions import (
    _names_a_folder as _names_a_folder,
)
from mqstore._native._functions import (
    _other_than as _other_than,
)
from mqstore._native._functions import (
    _read_broker_line as _read_broker_line,
)
from mqstore._native._functions import _replace_file as _replace_file
from mqstore._native._functions import (
    _setting_refusal as _setting_refusal,
)
from mqstore._native._functions import (
    _settings as _settings,
)
from mqstore._native._functions import (
    _spare_page_cache as _spare_page_cache,
)
from mqstore._native._functions import (
    _store_name as _store_name,
)
from mqstore._native._functions import (
    _time_ms as _time_ms,
)
from mqstore._native._functions import (
    _timer_check as _timer_check,
)
from mqstore._native._functions import (
    _write_config_json as _write_config_json,
)
from mqstore._native._functions import (
    encode,
    inventory,
    java_hash,
    key_hash,
    lock_state,
    parse_message_id,
    read_config_json,
    tags_code,
)
from mqstore._native._group import _GroupPlaces as _GroupPlaces
from mqstore._native._index import IndexEntry, IndexFile, IndexHeader
from mqstore._native._location import _RemoteStorage as _RemoteStorage
from mqstore._native._log_scan import scan_log, scan_queue, tag_places
from mqstore._native._message import Message
from mqstore._native._message_scan import Damage, MessageScan
from mqstore._native._reading import ReadResult
from mqstore._native._rebuild import _rebuild_topics as _rebuild_topics
from mqstore._native._rebuild import _replace_folders as _replace_folders
from mqstore._native._rebuild import rebuild
from mqstore._native._requests import _Requests as _Requests
from mqstore._native._rocksdb import _count_rows as _count_rows
from mqstore._native._rocksdb import _index_rows as _index_rows
from mqstore._native._rocksdb import _LogQueues as _LogQueues
from mqstore._native._rocksdb import _offset_row as _offset_row
from mqstore._native._rocksdb import _queue_ends as _queue_ends
from mqstore._native._rocksdb import _queue_files as _queue_files
from mqstore._native._salvage import salvage
from mqstore._native._scan import ARROW_SCHEMA, ArrowScan, ArrowSchema
from mqstore._native._stats import _Survey as _Survey
from mqstore._native._stats import _survey as _survey
from mqstore._native._stats import stats
from mqstore._native._store import Store
from mqstore._native._stored import StoredMessage, decode
from mqstore._native._transfer import copy_store, diff_stores, import_messages
from mqstore._native._upkeep import clean, recover
from mqstore._native._values import AppendResult, AppendSummary, GroupOffset, MessageId, QueueInfo
from mqstore._native._values import _Pattern as _Pattern
from mqstore._native._verify import _code_text as _code_text
from mqstore._native._verify import verify

__all__ = [
    "ARROW_SCHEMA",
    "AppendResult",
    "AppendSummary",
    "ArrowScan",
    "ArrowSchema",
    "Checkpoint",
    "CommitLog",
    "ConsumeQueue",
    "Damage",
    "GroupOffset",
    "IndexEntry",
    "IndexFile",
    "IndexHeader",
    "Message",
    "MessageId",
    "MessageScan",
    "OffsetLists",
    "QueueEntry",
    "QueueInfo",
    "ReadResult",
    "Store",
    "StoredMessage",
    "clean",
    "copy_store",
    "decode",
    "diff_stores",
    "doctor",
    "encode",
    "import_messages",
    "inventory",
    "java_hash",
    "key_hash",
    "lock_state",
    "next_start",
    "parse_message_id",
    "read_config_json",
    "rebuild",
    "recover",
    "salvage",
    "scan_log",
    "scan_queue",
    "stats",
    "tag_places",
    "tags_code",
    "verify",
]

__version__: Final[str]
"""The version of the project."""
