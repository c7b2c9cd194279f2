"""`editloupe schema`: the form of what a run folder holds."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class What(enum.StrEnum):
    """What has a schema."""

    trace = "trace"
    findings = "findings"
    run = "run"


def schema(
    what: Annotated[What, typer.Argument(help="A line of a trace, a line of findings.jsonl, or run.json.")],
) -> int:
    """Print the JSON Schema of what a run folder holds."""
    import json

    from editloupe.exports.schema import schema as made

    typer.echo(json.dumps(made(what.value), indent=2, ensure_ascii=False))
    return 0
