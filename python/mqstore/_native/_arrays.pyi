from mqstore._native._types import _ArrowArray

def _array_function(name: str, /, *arguments: _ArrowArray) -> _ArrowArray:
    """A function of ``mqstore.spark.functions`` on whole columns; it gives a ``pyarrow.Array``.

    Raises:
        InvalidMessageError: A message that no record can hold; a note names its row.
        TypeError: Columns of another kind or number.
        ValueError: No such function, a struct that is no message's, more than 1 GiB of a column.
    """
