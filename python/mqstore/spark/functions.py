"""RocketMQ's own functions over columns, for Python and, after ``register``, for SQL.

Each is an Arrow UDF: a batch of rows goes to Rust and comes back as one array, without a Python
object for any row. A null argument gives null.

>>> from mqstore.spark.functions import mq_tags_code
>>> frame.select(mq_tags_code("tags"))  # doctest: +SKIP
"""

import functools
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from mqstore._native import _array_function
from mqstore.errors import UnsupportedError

try:
    from pyspark.sql.pandas.functions import arrow_udf
except ImportError:
    raise UnsupportedError(
        "the SQL functions mq_* need Spark 4.1 or newer; instead call mqstore.decode, "
        "mqstore.tags_code and the others in a pyspark.sql.functions.udf of your own",
        "mqstore.spark.functions",
        "",
    ) from None

__all__ = [
    "mq_body",
    "mq_crc32",
    "mq_decode",
    "mq_encode",
    "mq_java_hash",
    "mq_key_hash",
    "mq_parse_message_id",
    "mq_properties",
    "mq_sys_flag",
    "mq_tags_code",
]


def mq_decode(raw: Column | str) -> Column:
    """Whole commit log records as structs of a message's columns.

    The fields are the columns of the source but ``broker`` and ``error``, with ``raw_body``.

    Args:
        raw: Binary: one record each, from its size field to the end of its properties, as in
            ``table=raw``.

    Returns:
        A struct; null for bytes that are not exactly one record, whose body does not have the
        checksum that the record names, or whose body cannot be decompressed (``mqstore.decode``
        says why).
    """
    return _udf("mq_decode")(raw)


def mq_encode(message: Column | str) -> Column:
    """The commit log records of messages, byte for byte as RocketMQ writes them.

    What ``mq_decode`` read comes back the same where a map can hold its properties: each name
    once, no empty value.

    Args:
        message: A struct with the columns of the source by name, in any order. ``topic``, ``body``
            or ``raw_body``, ``queue_offset``, ``physical_offset``, ``store_timestamp`` and
            ``store_host`` must be there and not null. With ``raw_body`` the stored bytes are taken
            and ``sys_flag`` says how they are compressed; a record whose properties have
            ``__CRC32#`` gets its checksum anew.

    Returns:
        Binary; null for a null struct only. The query fails with ``InvalidMessageError``, which
        names field and row, for a message that no record can hold, and with ``ValueError`` or
        ``TypeError`` for a struct that is no message's.
    """
    return _udf("mq_encode")(message)


def mq_properties(raw: Column | str) -> Column:
    """Property strings as maps (``MessageDecoder#string2messageProperties``).

    Args:
        raw: Binary: ``name 0x01 value 0x02`` again and again, as in a record.

    Returns:
        A map of strings; null for more than 32,767 bytes, which no record holds. Of a name given
        twice the later value counts; what is no pair is left out, and what is no UTF-8 is shown as
        U+FFFD.
    """
    return _udf("mq_properties")(raw)


def mq_body(raw_body: Column | str, sys_flag: Column | str) -> Column:
    """Bodies as producers sent them.

    Args:
        raw_body: Binary: the body as it is stored.
        sys_flag: Integer: the record's flags, which say how the body is compressed.

    Returns:
        Binary; null where the body cannot be decompressed, or comes to more than 64 MiB.
    """
    return _udf("mq_body")(raw_body, sys_flag)


def mq_crc32(values: Column | str) -> Column:
    """The checksum that a record stores of its body (``UtilAll#crc32``): never negative.

    Args:
        values: Binary.

    Returns:
        Integer.
    """
    return _udf("mq_crc32")(values)


def mq_java_hash(text: Column | str) -> Column:
    """``String#hashCode`` of texts.

    Args:
        text: Strings.

    Returns:
        Integer.
    """
    return _udf("mq_java_hash")(text)


def mq_tags_code(tags: Column | str) -> Column:
    """The codes of tags in a consume queue (``MessageExtBrokerInner#tagsString2tagsCode``).

    Args:
        tags: Strings.

    Returns:
        Bigint; 0 for an empty text, null for null (a message without a tag has code 0:
        ``coalesce(mq_tags_code(tags), 0)``).
    """
    return _udf("mq_tags_code")(tags)


def mq_key_hash(topic: Column | str, key: Column | str) -> Column:
    """The hashes of ``topic#key`` in an index file (``IndexFile#indexKeyHashMethod``).

    Args:
        topic: Strings.
        key: Strings: one key each.

    Returns:
        Integer, never negative; null where either is null.
    """
    return _udf("mq_key_hash")(topic, key)


def mq_parse_message_id(message_id: Column | str) -> Column:
    """Decodes message ids: broker and offset (``MessageDecoder#decodeMessageId``).

    Args:
        message_id: Strings of 32 or 56 hexadecimal digits.

    Returns:
        ``struct<host string, port int, physical_offset bigint>``; null for a text that is no id.
    """
    return _udf("mq_parse_message_id")(message_id)


def mq_sys_flag(sys_flag: Column | str) -> Column:
    """Decodes the bits of sys flags (``MessageSysFlag``).

    Args:
        sys_flag: Integer.

    Returns:
        A struct of ``transaction`` (``none``, ``prepared``, ``commit``, ``rollback``),
        ``compression`` (``none``, ``zlib``, ``lz4``, ``zstd``; null for bits that name no method)
        and the booleans ``compressed``, ``multi_tags``, ``born_host_v6``, ``store_host_v6``,
        ``need_unwrap``, ``inner_batch``.
    """
    return _udf("mq_sys_flag")(sys_flag)


def register_functions(spark: SparkSession) -> None:
    """Makes all functions known to a session's SQL, by the same names."""
    for name in __all__:
        spark.udf.register(name, _udf(name))


def _struct(name: str, of: pa.DataType) -> T.StructType:
    """The result of a function for columns of a type."""
    made = pa.array(_array_function(name, pa.array([], of)))
    return from_arrow_schema(pa.schema(list(made.type)))


_RETURNS: Mapping[str, T.DataType] = {
    "mq_body": T.BinaryType(),
    "mq_crc32": T.IntegerType(),
    "mq_decode": _struct("mq_decode", pa.binary()),
    "mq_encode": T.BinaryType(),
    "mq_java_hash": T.IntegerType(),
    "mq_key_hash": T.IntegerType(),
    "mq_parse_message_id": _struct("mq_parse_message_id", pa.string()),
    "mq_properties": T.MapType(T.StringType(), T.StringType()),
    "mq_sys_flag": _struct("mq_sys_flag", pa.int32()),
    "mq_tags_code": T.LongType(),
}


@functools.cache
def _udf(name: str) -> Callable[..., Column]:
    # It runs in a worker. Spark reads the hints, so they are no strings.
    def function(*columns: pa.Array) -> pa.Array:
        return _array_function(name, *columns)

    # Name in Spark's plan.
    function.__name__ = name
    # Spark's stub wants the kind of function that it finds out from the hints.
    udf: Callable[..., Column] = arrow_udf(function, _RETURNS[name])  # type: ignore[call-overload]
    return udf
