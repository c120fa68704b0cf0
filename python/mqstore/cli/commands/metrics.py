"""``metrics``: the store's state in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mqstore.cli.options import option, read_command, storage_options
from mqstore.errors import needs
from mqstore.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from mqstore.cli.output import Output


def _read_labels(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    labels = {}
    for pair in value:
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        labels[name] = text
    return labels


@read_command("metrics", short_help="Print metrics for Prometheus.")
@option(
    "--label labels",
    "NAME=VALUE",
    "A label for every metric, such as cluster=a; may be given several times.",
    multiple=True,
    callback=_read_labels,
)
@option("--backup", "TARGET", "A backup of the store, to measure it too.")
def metrics_command(output: Output, store: str, **options: Any) -> None:
    """Print the store's metrics in Prometheus' text format, named as a broker names them.

    Disk use, bytes behind in flushing and dispatching, age of the oldest message, messages by
    topic, and how far each consumer group is behind.
    """
    with needs("metrics"):
        from prometheus_client import CollectorRegistry, generate_latest

        from mqstore.metrics import StoreCollector
    collector = StoreCollector(store, backup_options=storage_options(), **options)
    found = list(collector.collect())
    if output.form != "text":
        output.rows(
            {"name": sample.name, "labels": sample.labels, "value": sample.value}
            for metric in found
            for sample in metric.samples
        )
        return
    registry = CollectorRegistry()
    registry.register(_Escaped(found))
    for line in generate_latest(registry).decode().split("\n")[:-1]:
        output.line(line)


class _Escaped:
    """Metrics whose labels do nothing to a terminal; what is left to escape is the format's own."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            metric.samples = [
                sample._replace(labels={name: escape(text) for name, text in sample.labels.items()})
                for sample in metric.samples
            ]
            yield metric
