"""`editloupe schema`: the form of what a run folder holds."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from editloupe.cli.output import print_json


def schema(
    what: Annotated[
        Literal["trace", "findings", "run"],
        typer.Argument(help="A line of a trace, a line of findings.jsonl, or run.json."),
    ],
) -> int:
    """Print the JSON Schema of what a run folder holds."""
    from editloupe.exports.schema import schema as made

    print_json(made(what), indent=2)
    return 0
