"""Purpose of a checkpoint: the options that decide which rows come, and the layout of its tables.

It stands in the checkpoint of a stream, and in the books of a pipeline or of micro batches. Another
purpose under the same checkpoint would lose rows or mix tables without a word, so it is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mqstore.errors import ConfigError
from mqstore.spark.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqstore.spark.options import ReadOptions

Purpose = dict[str, Any]
"""``version``, ``layout`` of a pipeline, and each option that is not at its default."""
_VERSION = 1
_NEW = "begin with a new checkpoint"


def purpose_of(options: ReadOptions, layout: Mapping[str, Any] | None = None) -> Purpose:
    """The purpose of a checkpoint that a stream makes.

    Args:
        options: Options of the stream.
        layout: Layout of a pipeline's tables; that of the option ``kept`` where left out.
    """
    if layout is None:
        layout = (options.kept or {}).get("layout")
    values = {row.name: getattr(options, row.field) for row in OPTIONS.values() if row.kept}
    defaults = {row.name: row.default for row in OPTIONS.values()}
    given = {
        # The order of names chooses no rows.
        name: sorted(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != defaults[name]
    }
    made = {"version": _VERSION, **given, **({"layout": layout} if layout else {})}
    purpose: Purpose = json.loads(json.dumps(made))
    return purpose


def changed(kept: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """What differs, by name: the value before and the value now; a layout's names one by one."""
    before, after = _flat(kept), _flat(now)
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def check_purpose(
    kept: object, now: Mapping[str, Any], where: str, then: str = f"or {_NEW}"
) -> None:
    """Whether a checkpoint is for what is asked of it.

    Args:
        kept: The purpose that the checkpoint has; ``None`` was made before they were kept.
        now: The purpose now.
        where: The checkpoint, for the error.
        then: The other way out, beside the old value.

    Raises:
        ConfigError: Something differs.
    """
    if kept is None:
        return
    if not isinstance(kept, dict) or type(kept.get("version")) is not int:
        raise ConfigError(f"{where}: {str(kept)[:200]} is not of this source", "path")
    if kept["version"] > _VERSION:
        raise ConfigError(
            f"{where} was made by a newer mqstore; nothing was written. Use that one, or {_NEW}",
            "path",
        )
    for name, (before, after) in changed(kept, now).items():
        raise ConfigError(
            f"{name}: {where} was made with {_shown(before)}, and now it is {_shown(after)}; "
            f"nothing was written. Bring the old value back, {then}",
            name,
        )


def _flat(purpose: Mapping[str, Any]) -> dict[str, Any]:
    layout = purpose.get("layout")
    options = {f"option {name}": value for name, value in purpose.items() if name in OPTIONS}
    return options | ({f"[sink] {name}": value for name, value in layout.items()} if layout else {})


def _shown(value: object) -> str:
    return "none" if value is None else json.dumps(value)
