"""``metrics``: the store's state in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqstore.cli.options import config_option, output_options, read_argument, storage_options_of
from mqstore.errors import needs
from mqstore.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from mqstore.cli.output import Output


def _read_labels(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    value: tuple[str, ...],
) -> dict[str, str]:
    labels = {}
    for pair in value:
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        labels[name] = text
    return labels


@click.command("metrics", short_help="Print metrics for Prometheus.")
@read_argument()
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=_read_labels,
    metavar="NAME=VALUE",
    help="A label for every metric, such as cluster=a; may be given several times.",
)
@click.option("--backup", metavar="TARGET", help="A backup of the store, to measure it too.")
@config_option
@output_options
@click.pass_context
def metrics_command(
    ctx: click.Context,
    output: Output,
    store: str,
    labels: dict[str, str],
    backup: str | None,
    config: str | None,
) -> None:
    """Print the store's metrics in Prometheus' text format, named as a broker names them.

    Disk use, bytes behind in flushing and dispatching, age of the oldest message, messages by
    topic, and how far each consumer group is behind.
    """
    with needs("metrics"):
        from prometheus_client import CollectorRegistry, generate_latest

        from mqstore.metrics import StoreCollector
    collector = StoreCollector(
        store, config=config, labels=labels, backup=backup, backup_options=storage_options_of(ctx)
    )
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
