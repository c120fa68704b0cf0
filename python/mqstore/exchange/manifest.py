"""``export.json``: what an export is, so that an import can give every message its place again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from mqstore.errors import ConfigError, damaged

if TYPE_CHECKING:
    import builtins
    from pathlib import Path

    from mqstore import StoreConfig

NAME = "export.json"
Format = Literal["jsonl", "parquet", "arrow"]
FORMATS: tuple[Format, ...] = ("jsonl", "parquet", "arrow")

# RocketMQ computes positions in 63 bits; room for the largest file is left.
_MOST_OFFSET = 2**63 - 2**32

_NUMBERS = ("messages", "bytes", "min_physical_offset", "max_physical_offset")

# Settings that another store needs for equal files.
_SETTINGS = (
    "rocketmq_version",
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "max_hash_slot_num",
    "max_index_num",
    "message_index_enable",
    "message_delay_level",
    "enable_lmq",
    "enable_multi_dispatch",
    "enabled_append_prop_crc",
    "flush_disk_type",
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of ``export.json``.

    Attributes:
        mqstore_export: The version of the layout.
        format: How the messages are written.
        messages: How many there are.
        bytes: How many bytes their records have.
        complete: Whether they are all of the store.
        filters: Which messages were asked for; empty where all were.
        min_physical_offset: Where the store's log begins.
        max_physical_offset: Where it ends.
        settings: The settings that the store was written with.
        written_by: The version of mqstore.
    """

    mqstore_export: int
    format: Format
    messages: int
    bytes: int
    complete: bool
    min_physical_offset: int
    max_physical_offset: int
    filters: dict[str, object] = field(default_factory=dict)
    settings: dict[str, bool | int | str] = field(default_factory=dict)
    written_by: str = ""

    @property
    def messages_file(self) -> str:
        """The name of the file that holds the messages."""
        return f"messages.{self.format}"

    def write(self, folder: Path) -> None:
        """Writes it into the export's folder."""
        text = msgspec.json.format(msgspec.json.encode(asdict(self), enc_hook=int), indent=2)
        (folder / NAME).write_bytes(text + b"\n")

    @classmethod
    def parse(cls, path: Path, text: builtins.bytes) -> Manifest:
        """Reads it.

        Args:
            path: Where it lies.
            text: What is in it.

        Raises:
            CorruptionError: It is none.
            ConfigError: A number or a setting in it that cannot be, or another version.
        """
        try:
            manifest = msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            for name in ("mqstore_export", *_NUMBERS):
                if f"$.{name}`" in str(error):
                    problem = f"{path}: {name}: {error}; nothing was written"
                    raise ConfigError(problem, name) from None
            raise damaged(path, "json", "the description of an export", error) from None
        if manifest.mqstore_export != 1:
            problem = (
                f"{path}: mqstore_export: expected 1, the version that this mqstore reads, found "
                f"{manifest.mqstore_export}; nothing was written"
            )
            raise ConfigError(problem, "mqstore_export")
        return manifest.checked(path)

    def checked(self, path: Path) -> Manifest:
        """Itself, where its numbers and settings can be.

        Raises:
            ConfigError: One cannot.
        """
        from mqstore.config import StoreConfig

        least = {"max_physical_offset": self.min_physical_offset}
        for name in _NUMBERS:
            value = getattr(self, name)
            if not least.get(name, 0) <= value <= _MOST_OFFSET:
                expected = f"{least.get(name, 0)} to {_MOST_OFFSET}"
                raise ConfigError(
                    f"{path}: {name}: expected {expected}, found {value}; nothing was written", name
                )
        try:
            StoreConfig.from_mapping(self.settings)
        except ConfigError as error:
            text = f"{path}: settings: {error}; nothing was written"
            raise ConfigError(text, error.field) from None
        return self


def exported_settings(config: StoreConfig) -> dict[str, bool | int | str]:
    """The settings that an export takes along."""
    given = config.given()
    return {name: given[name] for name in _SETTINGS if name in given}
