"""Types of arguments that Python code looks at before Rust does."""

from __future__ import annotations

__all__ = ["expect"]


def expect(argument: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuses a value of another type.

    Raises:
        TypeError: It names the argument, what was expected and what was found.
    """
    if not (hasattr(value, "__index__") if kind is int else isinstance(value, kind)):
        raise TypeError(f"{argument}: expected {wanted}, got {type(value).__name__}")
