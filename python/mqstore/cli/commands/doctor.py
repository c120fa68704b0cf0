"""``doctor``: name what is wrong with a store, and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import mqstore
from mqstore.cli.options import config_option, output_options, store_argument
from mqstore.cli.progress import progress
from mqstore.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mqstore import Diagnosis
    from mqstore.cli.output import Output


@click.command("doctor", short_help="Name what is wrong, and the cure.")
@store_argument
@config_option
@output_options
def doctor_command(output: Output, store: str, config: str | None) -> int:
    """Name the broken states that a store is in, with the evidence and the cure of each.

    Never writes. Exits with 1 where something is wrong; what is only worth knowing is printed too.
    """
    with progress("examining") as tell:
        diagnoses = mqstore.doctor(store, progress=tell, config=config)
    sick = any(diagnosis.severity != "info" for diagnosis in diagnoses)
    if output.form == "jsonl":
        output.rows(_row(diagnosis) for diagnosis in diagnoses)
    else:
        document = {
            "path": store,
            "ok": not sick,
            "diagnoses": [_row(diagnosis) for diagnosis in diagnoses],
        }
        output.document(document, lambda: _lines(diagnoses))
    return int(sick)


def _row(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "code": diagnosis.code,
        "severity": diagnosis.severity,
        "title": diagnosis.title,
        "evidence": list(diagnosis.evidence),
        "cure": diagnosis.cure,
        "fix": diagnosis.fix,
    }


def _lines(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    for diagnosis in diagnoses:
        yield f"{diagnosis.code}  {diagnosis.severity}: {escape(diagnosis.title)}"
        for line in diagnosis.evidence:
            yield f"    {escape(line)}"
        if diagnosis.cure is None:
            yield f"    what to do: {escape(diagnosis.fix)}"
        else:
            yield f"    cure: {escape(diagnosis.cure)}"
        yield ""
    if not diagnoses:
        yield "nothing is wrong"
