"""Decodes bodies for people and programs: Protobuf with and without a schema, Avro."""

from __future__ import annotations

import io
import os
import struct
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqstore._names import nearest
from mqstore.errors import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mqstore.results.documents import BodyForm

# Deeper messages are shown as bytes.
_DEEPEST = 16
_LARGEST_FIELD = 2**29 - 1
_AVRO_FILE = b"Obj\x01"
_AVRO_SINGLE_OBJECT = b"\xc3\x01"
_SINGLE_OBJECT_HEADER = 10


@dataclass(frozen=True, slots=True)
class Decoder:
    """A form of bodies that is read by a function.

    Attributes:
        form: The form's name; a JSON document has the body as ``body_<form>``.
        decode: Gives what a body holds, ``None`` where it is nothing of the kind.
    """

    form: BodyForm
    decode: Callable[[bytes], object | None]


def protobuf_fields(data: bytes, depth: int = 0) -> dict[str, object] | None:
    """Returns the fields of a Protobuf message by number; ``None`` where the bytes are no message.

    A field that is repeated is a list. Bytes are text where they are printable UTF-8, else a
    message where they can be one, else ``{"bytes": "hex"}``. A number of 4 or 8
    bytes is given as an integer and as a floating-point number.
    """
    fields: dict[str, list[object]] = {}
    at = 0
    while at < len(data):
        tag = _varint(data, at)
        if tag is None or not 1 <= tag[0] >> 3 <= _LARGEST_FIELD:
            return None
        found = _value(data, tag[1], tag[0] & 7, depth)
        if found is None:
            return None
        value, at = found
        fields.setdefault(str(tag[0] >> 3), []).append(value)
    if not fields:
        return None
    return {number: values if len(values) > 1 else values[0] for number, values in fields.items()}


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    """A number of variable length and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if value < 2**64 else None
    return None


def _value(data: bytes, at: int, wire_type: int, depth: int) -> tuple[object, int] | None:
    """A field's value and where it ends."""
    if wire_type == 0:
        return _varint(data, at)
    for number, size, integer, real in ((1, 8, "<Q", "<d"), (5, 4, "<I", "<f")):
        if wire_type == number:
            raw = data[at : at + size]
            if len(raw) < size:
                return None
            values = {"integer": struct.unpack(integer, raw)[0]}
            return values | {"float": struct.unpack(real, raw)[0]}, at + size
    length = _varint(data, at) if wire_type == 2 else None
    if length is None or length[0] > len(data) - length[1]:
        return None
    end = length[1] + length[0]
    return _bytes_value(data[length[1] : end], depth), end


def _bytes_value(raw: bytes, depth: int) -> object:
    try:
        text = raw.decode()
        if all(character.isprintable() or character in "\n\r\t" for character in text):
            return text
    except UnicodeDecodeError:
        pass
    inner = protobuf_fields(raw, depth + 1) if depth < _DEEPEST else None
    return {"bytes": raw.hex()} if inner is None else inner


def protobuf_decoder(path: str, message: str) -> Decoder:
    """Returns a decoder for messages of a Protobuf schema.

    Args:
        path: A ``.proto`` file, or a descriptor set as ``protoc --descriptor_set_out`` writes it.
        message: The message's name, with or without its package.

    Raises:
        click.UsageError: The libraries are not installed, the file cannot be read as a schema, or
            it has no such message.
    """
    with needs("protobuf"):
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        from google.protobuf.message import DecodeError
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(
            _compiled(path) if path.endswith(".proto") else _read("--proto", path)
        )
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
    except (DecodeError, TypeError) as error:
        raise click.UsageError(f"--proto: {path} is no descriptor set: {error}") from None
    names = [
        f"{file.package}.{name}".removeprefix(".")
        for file in files.file
        for one in file.message_type
        for name in _with_nested(one)
    ]
    chosen = [name for name in names if name == message or name.endswith(f".{message}")]
    if len(chosen) != 1:
        hint = (
            f"; it may be {' or '.join(chosen)}"
            if chosen
            else nearest(message, [name.rpartition(".")[2] for name in names])
        )
        raise click.UsageError(f"--message: {path} has no single message {message!r}{hint}")
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(chosen[0]))

    def decode(body: bytes) -> object | None:
        try:
            found = json_format.MessageToDict(
                kind.FromString(body), preserving_proto_field_name=True, descriptor_pool=pool
            )
        except (DecodeError, json_format.Error, RecursionError, ValueError, TypeError):
            return None
        return dict(found)

    return Decoder("protobuf", decode)


def _with_nested(message: Any) -> list[str]:
    """The names of a message and those in it."""
    nested = [name for one in message.nested_type for name in _with_nested(one)]
    return [message.name, *(f"{message.name}.{name}" for name in nested)]


def _compiled(path: str) -> bytes:
    """The descriptor set of a ``.proto`` file and all that it imports."""
    with needs("protobuf"):
        import grpc_tools
        from grpc_tools import protoc
    well_known = Path(grpc_tools.__file__).with_name("_proto")
    _read("--proto", path)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set")
        asked = ["", f"-I{Path(path).absolute().parent}", f"-I{well_known}", "--include_imports"]
        arguments = [*asked, f"--descriptor_set_out={out}", str(Path(path).absolute())]
        with _standard_error_to(Path(folder, "said")) as said:
            failed = protoc.main(arguments)
        if failed:
            why = "; ".join(said.read_text("utf-8", "replace").split("\n")).rstrip("; ")
            raise click.UsageError(f"--proto: {path} cannot be compiled: {why}")
        return out.read_bytes()


@contextmanager
def _standard_error_to(path: Path) -> Iterator[Path]:
    """Sends standard error of this process to a file; the compiler writes there from C++."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def avro_decoder(path: str) -> Decoder:
    """Returns a decoder for values of an Avro schema.

    A body may be the value alone, a single-object encoding, a container file, or begin with the 5
    bytes by which a schema registry names the schema.

    Args:
        path: The schema, a ``.avsc`` file.

    Raises:
        click.UsageError: The library is not installed, or the file is no schema.
    """
    with needs("avro"):
        import fastavro
        from fastavro.repository.base import SchemaRepositoryError
        from fastavro.schema import SchemaParseException, load_schema
    _read("--avro", path)
    try:
        schema = load_schema(path)
    except (SchemaParseException, SchemaRepositoryError, ValueError) as error:
        raise click.UsageError(f"--avro: {path} is no schema: {error}") from None

    def whole(raw: bytes) -> object | None:
        stream = io.BytesIO(raw)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception:
            return None
        return {"value": value} if stream.tell() == len(raw) else None

    def decode(body: bytes) -> object | None:
        if body.startswith(_AVRO_FILE):
            try:
                return list(fastavro.reader(io.BytesIO(body)))
            except Exception:
                return None
        headers = [0]
        if body.startswith(_AVRO_SINGLE_OBJECT):
            headers = [_SINGLE_OBJECT_HEADER]
        elif body.startswith(b"\0"):
            headers = [0, 5]
        found = next(filter(None, (whole(body[header:]) for header in headers)), None)
        return found["value"] if isinstance(found, dict) else None

    return Decoder("avro", decode)


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"{option}: {path}: {error.strerror}") from None
