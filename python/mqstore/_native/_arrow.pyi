from typing import final

@final
class OffsetLists:
    """A list of physical offsets for each key asked for; an Arrow array of ``list<int64>``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> list[int]: ...
    def to_pylist(self) -> list[list[int]]:
        """All lists as Python integers."""
    def __arrow_c_schema__(self) -> object:
        """The type as a capsule of the Arrow PyCapsule interface."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Type and data as capsules of the Arrow PyCapsule interface."""
    def __eq__(self, other: object, /) -> bool: ...
