from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import Protocol, TypeAlias, type_check_only

_Path: TypeAlias = str | PathLike[str]
_Time: TypeAlias = int | datetime
_Tags: TypeAlias = str | None
_Keys: TypeAlias = str | Iterable[str]
_Properties: TypeAlias = Mapping[str, str] | bytes

@type_check_only
class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@type_check_only
class _ArrowArray(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
