from typing import Self, final

@final
class _Pattern:
    """A regular expression of bytes, in whatever form searched in time in proportion to the bytes.

    Args:
        pattern: In the syntax of Rust's crate regex, without lookaround and backreferences.
            ``(?u)`` in front makes it one of characters.

    Raises:
        ValueError: It is none.
    """

    def __new__(cls, pattern: str, /) -> Self: ...
    @property
    def pattern(self) -> str:
        """The expression."""
    def is_in(self, data: bytes, /) -> bool:
        """Whether it is found in the bytes."""
    def spans(self, data: bytes, stop: int, /) -> list[tuple[int, int]]:
        """Begin and end of each match in the bytes that begins before ``stop``."""
