"""`editloupe schema`: what the files of a run folder hold."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from editloupe.cli.output import print_json
from editloupe.exports.schema import File
from editloupe.exports.schema import schema as json_schema


def schema(
    what: Annotated[File, Argument(help="A line of a trace, of findings.jsonl or of samples.jsonl, or run.json.")],
) -> None:
    """Print the JSON Schema of what a run folder holds."""
    print_json(json_schema(what), indent=2)
