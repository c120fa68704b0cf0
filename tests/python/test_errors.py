"""The exceptions: their tree, what they carry, and that they travel between processes."""

import errno
import inspect
import pickle
import re

import pytest

import mqstore
from mqstore import errors

RESULT = mqstore.AppendResult(158, 158, 1, "0A09080700002A9F000000000000009E", 1700000000000)

# Arguments as the extension gives them, and the attributes that come of them.
EXAMPLES = [
    (
        errors.NotAStoreError,
        ("/a: not a store: no folder", "/a", "no folder"),
        {"path": "/a", "reason": "no folder", "filename": "/a", "errno": errno.ENOENT},
    ),
    (
        errors.StoreIOError,
        ("open /a: No space left on device", errno.ENOSPC, "/a", "open"),
        {
            "path": "/a",
            "filename": "/a",
            "op": "open",
            "errno": errno.ENOSPC,
            "strerror": "No space left on device",
        },
    ),
    (
        errors.StoreIOError,
        ("read /a: unexpected end", None, "/a", "read"),
        {"errno": None, "strerror": "read /a: unexpected end"},
    ),
    (
        errors.CorruptionError,
        ("/a: byte 7: body-crc: expected 1, found 2", "/a", 7, "body-crc", "1", "2"),
        {"path": "/a", "offset": 7, "kind": "body-crc", "expected": "1", "found": "2"},
    ),
    (
        errors.CorruptionError,
        ("byte 0: size: expected 91, found 3", None, 0, "size", "91", "3"),
        {"path": None},
    ),
    (
        errors.InvalidMessageError,
        ("properties: 32768 bytes", "properties", "PROPERTIES_SIZE_EXCEEDED", 32767),
        {
            "field": "properties",
            "status": mqstore.PutStatus.PROPERTIES_SIZE_EXCEEDED,
            "limit": 32767,
        },
    ),
    (
        errors.InvalidMessageError,
        ("topic: empty", "topic", "MESSAGE_ILLEGAL", None),
        {"status": mqstore.PutStatus.MESSAGE_ILLEGAL, "limit": None},
    ),
    (errors.ConfigError, ("max_index_num: 0", "max_index_num"), {"field": "max_index_num"}),
    (errors.StoreLockedError, ("/a/lock: locked", "/a/lock", 42), {"path": "/a/lock", "pid": 42}),
    (errors.StoreLockedError, ("/a/lock: locked", "/a/lock", None), {"pid": None}),
    (errors.StoreClosedError, ("the store is closed",), {}),
    (errors.StoreReadOnlyError, ("/a: opened read-only", "/a"), {"path": "/a"}),
    (
        errors.StorePoisonedError,
        ("/a: writing has ended: EIO", "/a", "EIO"),
        {"path": "/a", "reason": "EIO"},
    ),
    (
        errors.FlushTimeoutError,
        ("the message at 158 is stored", RESULT, 5000),
        {
            "result": RESULT,
            "timeout_ms": 5000,
            "status": mqstore.PutStatus.FLUSH_DISK_TIMEOUT,
            "errno": errno.ETIMEDOUT,
        },
    ),
    (
        errors.OffsetOutOfRangeError,
        ("9 is outside", 9, 0, 8),
        {"physical_offset": 9, "min": 0, "max": 8},
    ),
    (errors.MessageNotFoundError, ("no record begins at 3",), {}),
    (
        errors.NotDispatchedError,
        ("/a: 9 bytes", "/a", 3, 9, 5),
        {"path": "/a", "physical_offset": 3, "bytes": 9, "limit": 5},
    ),
    (
        errors.UnsupportedError,
        ("/a: RocksDB queues", "RocksDB queues", "/a"),
        {"what": "RocksDB queues", "path": "/a"},
    ),
]
IDS = [f"{kind.__name__}-{number}" for number, (kind, _, _) in enumerate(EXAMPLES)]


def test_every_class_has_an_example():
    named = {name for name in errors.__all__ if name != "StoreError"}
    assert {kind.__name__ for kind, _, _ in EXAMPLES} == named
    assert all(issubclass(getattr(errors, name), errors.StoreError) for name in errors.__all__)


@pytest.mark.parametrize(("kind", "args", "attributes"), EXAMPLES, ids=IDS)
def test_an_error_carries_its_fields(kind, args, attributes):
    error = kind(*args)
    assert str(error) == error.message == args[0]
    assert error.args == args
    for name, value in attributes.items():
        assert getattr(error, name) == value, name
    assert error.results == ()
    assert error.index is None


@pytest.mark.parametrize(("kind", "args", "attributes"), EXAMPLES, ids=IDS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_with_all_it_carries(kind, args, attributes, protocol):
    error = kind(*args)
    error.results = [RESULT]
    error.index = 3
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is kind
    assert copy.args == args
    assert str(copy) == str(error)
    assert (copy.results, copy.index) == ([RESULT], 3)
    for name, value in attributes.items():
        assert getattr(copy, name) == value, name


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.NotAStoreError, FileNotFoundError),
        (errors.StoreIOError, OSError),
        (errors.InvalidMessageError, ValueError),
        (errors.ConfigError, ValueError),
        (errors.FlushTimeoutError, TimeoutError),
        (errors.OffsetOutOfRangeError, IndexError),
        (errors.MessageNotFoundError, LookupError),
        (errors.UnsupportedError, NotImplementedError),
    ],
)
def test_it_is_also_pythons_own(kind, builtin):
    assert issubclass(kind, builtin)


def test_the_module_draws_the_tree_that_is_there():
    drawn = re.findall(r"^ *\+-- (\w+) +(?:\((\w+)\))?", inspect.getdoc(errors), re.MULTILINE)
    assert {name for name, _ in drawn} == set(errors.__all__) - {"StoreError"}
    for name, builtin in drawn:
        bases = [base.__name__ for base in getattr(errors, name).__bases__]
        assert bases == ["StoreError", *([builtin] if builtin else [])], name


def test_each_docstring_names_the_arguments():
    for name in errors.__all__:
        kind = getattr(errors, name)
        arguments = list(inspect.signature(kind.__init__).parameters)[1:]
        if name != "StoreError":
            assert f"{name}({', '.join(arguments)})" in inspect.getdoc(kind), name
