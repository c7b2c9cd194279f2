"""`editloupe rubrics` and `schema`: what is here."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from editloupe.cli.output import print_json, say, table
from editloupe.exports.schema import File
from editloupe.exports.schema import schema as json_schema
from editloupe.rubrics import builtin_rubrics, load_rubric


def rubrics(
    rubric: Annotated[str | None, Argument(help="A built-in rubric or a .toml file, to see it whole.")] = None,
) -> None:
    """List the built-in rubrics, or show one with its labels and values, or its scales and penalties."""
    if rubric is None:
        known = {name: load_rubric(name) for name in builtin_rubrics()}
        rows = [(name, ", ".join(f"{c.name} ({c.short})" for c in one.criteria), one.title) for name, one in known.items()]
        table("Rubric", "Criteria", "Title", rows=rows)
        return
    loaded = load_rubric(rubric)
    say(f"{loaded.title} (rubric {loaded.id}, digest {loaded.digest[:12]})")
    for criterion in loaded.criteria:
        if criterion.scale is not None:
            rows = [(_span(one.low, one.high), one.name, one.text) for one in criterion.penalties]
            scale = f"{_span(criterion.scale.low, criterion.scale.high)}{', whole' * criterion.scale.whole}"
            title = f"{criterion.name} ({criterion.short}): {scale}"
            if rows:
                table("Subtract", "Fault", "When", rows=rows, title=title)
            else:
                say(f"{title}, no penalties")
            continue
        rows = [(f"{level.value:g}", level.name, level.description) for level in reversed(criterion.levels)]
        table("Value", "Label", "Means", rows=rows, title=f"{criterion.name} ({criterion.short})")


def schema(
    what: Annotated[File, Argument(help="A line of a trace, of findings.jsonl or of samples.jsonl, or run.json.")],
) -> None:
    """Print the JSON Schema of what a run folder holds."""
    print_json(json_schema(what), indent=2)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
