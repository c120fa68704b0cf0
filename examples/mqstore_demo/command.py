"""``demo``: the main job on a store of its own, shown as a table."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.messages import MessageView
from mqstore.cli.options import output_options
from mqstore.cli.output import note
from mqstore.cli.progress import progress
from mqstore.errors import needs
from mqstore.text import count_text, duration_text, rate_text, size_text, time_text
from mqstore_demo import DemoError, Step, run_own_store, run_rocketmq_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqstore.cli.output import Output
    from mqstore_demo import RocketmqAnswers


@click.command("demo")
@click.option(
    "--messages",
    "count",
    type=click.IntRange(min=1_000),
    default=200_000,
    show_default=True,
    metavar="COUNT",
    help="How many messages are written before the kill.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the store here; a temporary folder, removed at the end, if left out.",
)
@click.option(
    "--rocketmq-store",
    "archive",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="A store.tar.gz that RocketMQ wrote, to be asked too.",
)
@click.option(
    "--spark/--no-spark",
    default=True,
    help="Whether the store goes through Spark to Parquet at the end.",
)
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep the report here; it is made and thrown away if left out.",
)
@output_options
def demo_command(
    output: Output,
    count: int,
    folder: Path | None,
    archive: Path | None,
    spark: bool,  # noqa: FBT001 - click's
    page: Path | None,
) -> None:
    """Do the main job on a store of its own.

    A child process writes messages of several topics and is killed by SIGKILL. The store is
    recovered, read through by queue, by time and by key, and verified; every answer is checked.
    Cut into splits it goes through Spark to Parquet, where Spark is installed, and what is there is
    held against the store. A report of the store is made as one page. Then a store that RocketMQ
    itself wrote is opened and asked, where one is given.

    Examples:
        mqstore demo
        mqstore demo --messages 20000 --no-spark
    """
    try:
        if folder is not None:
            if folder.exists() and any(folder.iterdir()):
                raise click.BadParameter(f"{folder} is not empty", param_hint="--dir")
            folder.mkdir(parents=True, exist_ok=True)
            steps = _run(output, folder, count, page, spark=spark)
        else:
            with tempfile.TemporaryDirectory(prefix="mqstore-demo-") as temporary:
                steps = _run(output, Path(temporary), count, page, spark=spark)
        answers = None if archive is None else run_rocketmq_store(archive)
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    if output.form == "text":
        if answers is not None and archive is not None:
            _print_answers(output, archive, answers)
        return
    document: dict[str, object] = {"steps": [_document(step) for step in steps]}
    if answers is not None:
        document["rocketmq"] = _answers_document(answers)
    output.document(document, tuple)


def _run(output: Output, folder: Path, count: int, page: Path | None, *, spark: bool) -> list[Step]:
    steps: list[Step] = []

    def done(step: Step) -> None:
        steps.append(step)
        if output.form == "text":
            output.line(_line(step))
            output.flush()

    if output.form == "text":
        head = f"{'STEP':<18}{'COUNT':>10} {'':<9} {'TIME':>10}  {'RATE':<20} {'BYTES':<13}"
        output.line(head.rstrip())
    began = time.monotonic()
    with progress("writing", unit="messages") as tell:
        run_own_store(folder, count, done, tell)
    if spark:
        _run_spark(folder, done)
    _run_report(folder, page, done)
    if output.form == "text":
        output.line(f"every answer as written; {duration_text(time.monotonic() - began)} in all")
    return steps


def _run_spark(folder: Path, done: Callable[[Step], None]) -> None:
    try:
        with needs("spark", "Spark to Parquet"):
            from mqstore_demo.spark import run_spark
    except ModuleNotFoundError as error:
        note(str(error))
        return
    with progress("Spark to Parquet", unit="tasks") as tell:
        run_spark(folder, done, tell)


def _run_report(folder: Path, page: Path | None, done: Callable[[Step], None]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mqstore-demo-") as temporary:
        out = page or Path(temporary) / "report.html"
        try:
            mqstore.report(folder, out, overwrite=True)
        except ModuleNotFoundError as error:
            note(str(error))
            return
        size = out.stat().st_size
    detail = f"{size_text(size)}{'' if page is None else f' in {page}'}"
    done(Step("report", 1, "page", time.monotonic() - began, 0, detail))


def _line(step: Step) -> str:
    size = f"{size_text(int(step.size / max(step.seconds, 1e-9)))}/s" if step.size else ""
    return (
        f"{step.name:<18}{count_text(step.count):>10} {step.unit:<9} "
        f"{duration_text(step.seconds):>10}  {rate_text(step.count, step.seconds, step.unit):<20} "
        f"{size:<13} {step.detail}"
    ).rstrip()


def _document(step: Step) -> dict[str, object]:
    return {
        "step": step.name,
        "count": step.count,
        "unit": step.unit,
        "seconds": round(step.seconds, 6),
        "bytes": step.size,
        "detail": step.detail,
    }


def _print_answers(output: Output, archive: Path, answers: RocketmqAnswers) -> None:
    view = MessageView("hex", preview=16)
    output.line()
    output.line(f"A store that RocketMQ wrote ({archive}):")
    for topic, count in answers.topics.items():
        output.line(f"  topic {topic}: {count} messages")
    topic, queue_id = answers.queue
    output.line(f"  by queue, {topic}/{queue_id} from 0:")
    for message in answers.messages:
        output.line("  " + view.line(message))
    output.line(
        f"  by time, {topic}/{queue_id} at {time_text(answers.time_ms)}: "
        f"queue offset {answers.time_offset}"
    )
    output.line(f"  by key, {answers.key[0]} {answers.key[1]}:")
    for message in answers.found:
        output.line("  " + view.line(message))


def _answers_document(answers: RocketmqAnswers) -> dict[str, object]:
    view = MessageView("hex")
    topic, queue_id = answers.queue
    return {
        "topics": answers.topics,
        "by_queue": {
            "topic": topic,
            "queue_id": queue_id,
            "messages": [view.document(message) for message in answers.messages],
        },
        "by_time": {
            "topic": topic,
            "queue_id": queue_id,
            "timestamp_ms": answers.time_ms,
            "queue_offset": answers.time_offset,
        },
        "by_key": {
            "topic": answers.key[0],
            "key": answers.key[1],
            "messages": [view.document(message) for message in answers.found],
        },
    }
