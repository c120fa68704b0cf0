from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import Protocol, TypeAlias, type_check_only

from typing_extensions import Buffer

from mqstore._native._message import Message
from mqstore._native._stored import StoredMessage

_Path: TypeAlias = str | PathLike[str]
_Time: TypeAlias = int | datetime
_Tags: TypeAlias = str | None
_Keys: TypeAlias = str | Iterable[str]
_Properties: TypeAlias = Mapping[str, str] | bytes
_Queue: TypeAlias = int | None
_Row: TypeAlias = (
    tuple[str, Buffer]
    | tuple[str, Buffer, _Queue]
    | tuple[str, Buffer, _Queue, _Tags]
    | tuple[str, Buffer, _Queue, _Tags, _Keys | None]
    | tuple[str, Buffer, _Queue, _Tags, _Keys | None, str | None]
    | tuple[str, Buffer, _Queue, _Tags, _Keys | None, str | None, _Properties | None]
)
_Given: TypeAlias = Message | StoredMessage | Mapping[str, object] | _Row

@type_check_only
class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@type_check_only
class _ArrowArray(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
