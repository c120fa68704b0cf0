"""The public names are there, and every value type is a value."""

import ast
import copy
import inspect
import json
import operator
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore
import mqstore._native
from mqstore import results, status

ROOT = Path(__file__).parents[2]
STUB = [
    ast.parse(path.read_text()) for path in sorted(Path(mqstore.__file__).parent.rglob("*.pyi"))
]

# The promised names: a change here is a change for users.
MODULE = [
    "open",
    "Store",
    "StoreConfig",
    "Message",
    "StoredMessage",
    "AppendResult",
    "AppendSummary",
    "ReadResult",
    "QueryResult",
    "QueueInfo",
    "GroupOffset",
    "ConsumerGroup",
    "IndexFile",
    "IndexHeader",
    "IndexEntry",
    "OffsetLists",
    "ConsumeQueue",
    "CommitLog",
    "Checkpoint",
    "MessageId",
    "Damage",
    "ArrowScan",
    "ARROW_SCHEMA",
    "decode",
    "encode",
    "java_hash",
    "key_hash",
    "tags_code",
    "parse_message_id",
    "verify",
    "stats",
    "StoreStats",
    "UnreadMessages",
    "report",
    "VerifyReport",
    "Finding",
    "RecoveryReport",
    "GetStatus",
    "PutStatus",
    "StoreError",
    "NotAStoreError",
    "StoreIOError",
    "CorruptionError",
    "InvalidMessageError",
    "ConfigError",
    "StoreLockedError",
    "StoreClosedError",
    "StoreReadOnlyError",
    "StorePoisonedError",
    "FlushTimeoutError",
    "OffsetOutOfRangeError",
    "MessageNotFoundError",
    "NotDispatchedError",
    "UnsupportedError",
    "sync",
    "SyncReport",
    "snapshots",
    "Snapshot",
    "restore",
    "RestoreReport",
    "check_backup",
    "prune",
    "PruneReport",
]
MEMBERS = {
    "Store": """
        append append_many append_arrow flush wait_dispatched close __enter__ __exit__
        get get_by_id read offset_at query scan scan_arrow topics queues groups group refresh wait
        path mode config
        min_physical_offset max_physical_offset flushed_offset dispatched_offset recovery
    """,
    "Message": """
        topic body queue_id tags keys unique_key properties flag born_timestamp_ms born_host
        delay_level sys_flag store_timestamp_ms store_host reconsume_times
        prepared_transaction_offset
    """,
    "StoredMessage": """
        topic queue_id queue_offset physical_offset store_size flag sys_flag born_timestamp_ms
        born_timestamp born_host store_timestamp_ms store_timestamp store_host reconsume_times
        prepared_transaction_offset body_crc
        raw_body body properties raw_properties tags keys unique_key message_id transaction
        delay_level
    """,
    "AppendResult": "physical_offset store_size queue_offset message_id store_timestamp_ms",
    "AppendSummary": "count first_physical_offset end_physical_offset",
    "ReadResult": "status messages next_queue_offset min_queue_offset max_queue_offset",
    "QueryResult": """
        truncated rejected_by_hash rejected_by_time complete __len__ __getitem__ __iter__
    """,
    "QueueInfo": """
        topic queue_id min_offset max_offset kind first_store_timestamp_ms last_store_timestamp_ms
    """,
    "GroupOffset": "topic queue_id queue_offset max_offset lag",
    "ConsumerGroup": "poll messages commit seek lag ack nack process",
    "IndexFile": """
        header put put_many select select_many entries chain flush close __enter__ __exit__
    """,
    "IndexHeader": """
        begin_timestamp_ms end_timestamp_ms begin_physical_offset end_physical_offset
        hash_slot_count index_count
    """,
    "OffsetLists": "__arrow_c_array__ __len__ __getitem__ to_pylist",
    "ArrowScan": "schema __arrow_c_schema__ __arrow_c_stream__ read_all",
    "MessageId": "host port physical_offset",
    "VerifyReport": "ok findings counts to_json",
    "Finding": "code severity path offset expected found message fix",
    "RecoveryReport": "mode cut quarantined_messages rebuilt to_json",
}
SIGNATURES = {
    "open": (
        "(path, mode='r', *, config=None, timeout=None, storage=None, storage_options=None, "
        "cache_dir=None, at=None, snapshot=None)"
    ),
    "verify": (
        "(path, *, level='full', threads=None, progress=None, config=None, storage_options=None)"
    ),
    "salvage": "(source, out=None, *, progress=None, config=None, storage_options=None)",
    "import_store": "(source, path, *, config=None)",
    "copy": (
        "(path, out, *, topics=None, tags=None, keys=None, begin_ms=None, end_ms=None, "
        "renumber=False, redact=None, redact_default=None, allow_empty=False, progress=None, "
        "config=None, storage_options=None)"
    ),
    "diff": "(a, b, *, progress=None, config=None, storage_options=None)",
    "export_store": (
        "(path, target, *, format='jsonl', topics=None, tags=None, begin_ms=None, end_ms=None, "
        "on_error='raise', allow_empty=False, progress=None, config=None, storage_options=None)"
    ),
    "Store.append": (
        "(self, topic, body, *, queue_id=0, tags=None, keys=(), unique_key=None, properties=None, "
        "flag=0, born_timestamp_ms=None, born_host=None, delay_level=0, delay=None)"
    ),
    "Store.read": (
        "(self, topic, queue_id, queue_offset, *, max_messages=32, max_bytes=None, tags=None)"
    ),
    "Store.offset_at": "(self, topic, queue_id, timestamp_ms, *, boundary='lower')",
    "Store.query": (
        "(self, topic=None, key=None, *, tags=None, begin_ms=None, end_ms=None, max_messages=32, "
        "exact=True)"
    ),
    "Store.scan": (
        "(self, *, start_physical_offset=None, stop_physical_offset=None, topics=None, tags=None, "
        "begin_ms=None, end_ms=None, on_error='raise', decompress=True)"
    ),
    "Store.scan_arrow": (
        "(self, *, columns=None, batch_rows=8192, batch_bytes=8388608, start_physical_offset=None, "
        "stop_physical_offset=None, topics=None, tags=None, begin_ms=None, end_ms=None, "
        "on_error='raise', verify_crc=True, decompress=True)"
    ),
    "IndexFile.put": "(self, key, physical_offset, store_timestamp_ms)",
    "IndexFile.select": ("(self, key, *, begin_ms=0, end_ms=9223372036854775807, max_entries=32)"),
    "IndexFile": "(path, mode='r', *, slots=5000000, entries=20000000)",
    "decode": "(buffer, *, verify_crc=True)",
    "ConsumerGroup.poll": (
        "(self, topic, *, max_messages=32, tags=None, timeout_s=0, visibility_s=None, "
        "on_loss='warn')"
    ),
}
COLUMNS = [
    "broker",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "tags",
    "keys",
    "unique_key",
    "message_id",
    "properties",
    "body",
    "raw_body",
    "body_crc",
    "sys_flag",
    "flag",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "error",
]


def test_the_promised_names_are_there():
    for name in MODULE:
        assert name in mqstore.__all__, name
        assert getattr(mqstore, name) is not None
    for kind, members in MEMBERS.items():
        for member in members.split():
            assert hasattr(getattr(mqstore, kind), member), f"{kind}.{member}"


def test_every_public_name_exists_and_is_listed_once():
    assert len(set(mqstore.__all__)) == len(mqstore.__all__)
    for name in mqstore.__all__:
        assert hasattr(mqstore, name), name
    assert dir(mqstore) == sorted(mqstore.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mqstore.nonsense


@pytest.mark.parametrize("name", SIGNATURES)
def test_promised_signatures(name):
    found = inspect.signature(operator.attrgetter(name)(mqstore))
    plain = found.replace(
        parameters=[
            parameter.replace(
                annotation=parameter.empty,
                kind=parameter.POSITIONAL_OR_KEYWORD
                if parameter.kind is parameter.POSITIONAL_ONLY
                else parameter.kind,
            )
            for parameter in found.parameters.values()
        ],
        return_annotation=found.empty,
    )
    assert str(plain) == SIGNATURES[name]


def test_the_stub_names_what_the_extension_has():
    nodes = [node for tree in STUB for node in tree.body]
    listed = next(
        ast.literal_eval(node.value)
        for node in nodes
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    assert listed == sorted(listed)
    assert sorted(mqstore._native.__all__) == listed
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name in listed:
            kind = getattr(mqstore._native, node.name)
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    assert hasattr(kind, member.name), f"{node.name}.{member.name}"


def test_each_file_of_the_stub_declares_what_its_rust_file_defines():
    parts = sorted(Path(mqstore._native.__file__).with_name("_native").glob("_[!_]*.pyi"))
    rust = {
        f"_{path.parent.name if path.stem == 'mod' else path.stem}": path.read_text()
        for path in (ROOT / "src/py").rglob("*.rs")
    }
    assert parts
    for path in parts:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and hasattr(
                mqstore._native, node.name
            ):
                named = rf"\b(fn|struct) {node.name}\b|name = \"{node.name}\""
                assert re.search(named, rust[path.stem]), node.name


def test_everything_public_in_the_stub_is_documented():
    for tree in STUB:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                # One form of an overloaded function has the docstring of all.
                if any(ast.unparse(one) == "overload" for one in node.decorator_list):
                    continue
                assert ast.get_docstring(node), node.name


def test_native_classes_say_where_they_live():
    for name in mqstore._native.__all__:
        found = getattr(mqstore._native, name)
        if inspect.isclass(found):
            assert found.__module__ in {"mqstore", "mqstore._native"}, name


def test_importing_brings_nothing_heavy_along():
    code = (
        "import sys, mqstore; "
        "print(*sorted({'msgspec', 'javaproperties', 'click', 'rich', 'pyarrow', 'pyspark', "
        "'dataclasses', 'inspect', 'asyncio'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_missing_extension_is_an_import_error_that_names_it():
    # The folder of its stub is found in its place: a module without names.
    code = (
        "import sys, types; name = 'mqstore._native'; "
        "sys.modules[name] = types.ModuleType(name); import mqstore"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"^ImportError: .*'mqstore\._native'", done.stderr, re.MULTILINE), done.stderr


def test_columns():
    assert mqstore.ARROW_SCHEMA.names == COLUMNS
    assert len(mqstore.ARROW_SCHEMA) == len(COLUMNS)


def test_columns_are_those_of_sql_and_of_json():
    from mqstore.database.tables import columns_of
    from mqstore.results.documents import FIELDS

    shown = set(COLUMNS) - {"raw_body", "error"}
    assert shown <= set(columns_of("messages"))
    times = {name for name in shown if f"{name}_ms" in FIELDS}
    assert shown - times - {"body", "broker"} <= set(FIELDS)


MESSAGE = mqstore.Message(
    "orders",
    b"\x00\x01" * 100,
    queue_id=3,
    tags="paid",
    keys=["o-1", "c-7"],
    unique_key="U1",
    properties={"a": "1", "b": "2"},
    flag=-5,
    born_timestamp_ms=1_700_000_000_000,
    born_host="10.0.0.1:5",
    delay_level=2,
    store_timestamp_ms=1_700_000_000_001,
    store_host="[2001:db8::1]:10911",
    reconsume_times=1,
    prepared_transaction_offset=9,
)
RECORD = mqstore.encode(MESSAGE, physical_offset=158, queue_offset=1)
STORED = mqstore.decode(RECORD)

# Each value, and others of its kind that differ from it.
VALUES = [
    (MESSAGE, [mqstore.Message("orders", b""), mqstore.Message("other", b"\x00\x01" * 100)]),
    (
        STORED,
        [mqstore.decode(mqstore.encode(MESSAGE, physical_offset=159, queue_offset=1))],
    ),
    (mqstore.MessageId("10.9.8.7", 10911, 230), [mqstore.MessageId("10.9.8.7", 10911, 231)]),
    (
        mqstore.AppendResult(0, 158, 1, "A" * 32, 5),
        [
            mqstore.AppendResult(0, 158, 1, "B" * 32, 5),
            mqstore.AppendResult(1, 158, 1, "A" * 32, 5),
        ],
    ),
    (mqstore.AppendSummary(1, 2, 3), [mqstore.AppendSummary(1, 2, 4)]),
    (
        mqstore.ReadResult(mqstore.GetStatus.FOUND, [STORED], 2, 0, 2),
        [mqstore.ReadResult(mqstore.GetStatus.OFFSET_OVERFLOW_ONE, [], 2, 0, 2)],
    ),
    (
        mqstore.QueryResult([STORED], truncated=True, rejected_by_hash=1, rejected_by_time=2),
        [mqstore.QueryResult([STORED]), mqstore.QueryResult()],
    ),
    (
        mqstore.QueueInfo("orders", 0, 1, 9, "SimpleCQ", 5, None),
        [mqstore.QueueInfo("orders", 0, 1, 9, "SimpleCQ", 5, 6)],
    ),
    (mqstore.GroupOffset("orders", 0, 1, 9, 8), [mqstore.GroupOffset("orders", 0, 2, 9, 7)]),
    (mqstore.IndexHeader(1, 2, 3, 4, 5, 6), [mqstore.IndexHeader(1, 2, 3, 4, 5, 7)]),
    (mqstore.IndexEntry(1, 2, 3, 4, 0), [mqstore.IndexEntry(1, 2, 3, 5, 0)]),
    (
        mqstore.QueueEntry(0, 158, 91, -7),
        [mqstore.QueueEntry(0, 158, 91, -7, 2), mqstore.QueueEntry(0, 158, 91, -7, 1, 5)],
    ),
    (
        mqstore.RecoveryReport("crash", 9, 3, "size", "q", ((5, "t", 0, 1, 7),), 1, ("index",), 4),
        [mqstore.RecoveryReport("clean", 9)],
    ),
    (
        mqstore.Finding("MQ-CQ-02", "error", "consumequeue/a/0", 20, "1", "2", "1, not 2", "x"),
        [mqstore.Finding("MQ-CQ-02", "error", "consumequeue/a/0", None, "1", "2", "1, not 2", "x")],
    ),
    (
        mqstore.VerifyReport("/a", "full", ok=True, counts={"messages": 1}),
        [mqstore.VerifyReport("/a", "full", ok=True, counts={"messages": 2})],
    ),
]
IDS = [type(value).__name__ for value, _ in VALUES]


@pytest.mark.parametrize(("value", "others"), VALUES, ids=IDS)
def test_it_compares_and_hashes(value, others):
    twin = pickle.loads(pickle.dumps(value))
    assert twin == value
    assert hash(twin) == hash(value)
    assert len({value, twin}) == 1
    for other in others:
        assert other != value
        assert (other == value) is False
    assert value != "something else"
    assert value is not None


@pytest.mark.parametrize(("value", "others"), VALUES, ids=IDS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles(value, others, protocol):
    twin = pickle.loads(pickle.dumps(value, protocol))
    assert type(twin) is type(value)
    assert twin == value
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value


@pytest.mark.parametrize(("value", "others"), VALUES, ids=IDS)
def test_it_is_frozen(value, others):
    names = [name for name in dir(value) if not name.startswith("_")]
    for name in names:
        if not callable(getattr(value, name)):
            with pytest.raises((AttributeError, TypeError)):
                setattr(value, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        value.nonsense = 1


@pytest.mark.parametrize(("value", "others"), VALUES, ids=IDS)
def test_its_repr_names_it_and_is_short(value, others):
    shown = repr(value)
    assert shown.startswith(type(value).__name__ + "(")
    assert len(shown) < 1000
    assert shown.isprintable()


def test_a_repr_shows_at_most_64_bytes_of_a_body():
    message = mqstore.Message("orders", b"x" * 10_000)
    stored = mqstore.decode(
        mqstore.encode(
            message,
            physical_offset=0,
            queue_offset=0,
            store_timestamp_ms=1,
            store_host="127.0.0.1:1",
        )
    )
    for value in (message, stored):
        assert repr(value).count("x") <= 64
        assert len(repr(value)) < 1000


def test_statuses_are_rocketmqs_names():
    for enum in (status.GetStatus, status.PutStatus):
        for member in enum:
            assert member == member.name == str(member)
            assert pickle.loads(pickle.dumps(member)) is member
    assert mqstore.GetStatus.FOUND == "FOUND"


def test_a_query_result_is_a_sequence():
    result = mqstore.QueryResult([STORED, STORED], truncated=True)
    assert len(result) == 2
    assert result[0] == result[-1] == STORED
    assert result[:1] == (STORED,)
    assert list(reversed(result)) == [STORED, STORED]
    assert STORED in result
    assert result.index(STORED) == 0
    assert result.count(STORED) == 2
    with pytest.raises(IndexError):
        _ = result[2]


def test_reports_are_json():
    report = mqstore.RecoveryReport("crash", 9, 3, quarantined_messages=[(5, "t", 0, 1, 7)])
    assert report.quarantined_messages == (results.QuarantinedMessage(5, "t", 0, 1, 7),)
    (kept,) = json.loads(report.to_json())["quarantined_messages"]
    assert kept["topic"] == "t"
    assert '"mode":"crash"' in report.to_json()
    finding = VALUES[IDS.index("Finding")][0]
    verified = mqstore.VerifyReport("/a", "full", ok=False, findings=(finding,))
    assert '"ok":false' in verified.to_json()
    assert '"code":"MQ-CQ-02"' in verified.to_json()
