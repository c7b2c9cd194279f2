"""`editloupe rubrics`: which are built in, and what one asks for."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from editloupe.cli.output import say, table
from editloupe.rubrics import builtin_rubrics, load_rubric


def rubrics(context: typer.Context) -> None:
    """List the built-in rubrics, or show one with its labels and values, or its scales and penalties."""
    if context.invoked_subcommand:
        return
    known = {name: load_rubric(name) for name in builtin_rubrics()}
    rows = [(name, ", ".join(f"{c.name} ({c.short})" for c in one.criteria), one.title) for name, one in known.items()]
    table("Rubric", "Criteria", "Title", rows=rows)


def show(name: Annotated[str, Argument(metavar="NAME|FILE", help="A built-in rubric, or a .toml file.")]) -> None:
    """Show the labels and values of a rubric, or its scales and penalties."""
    loaded = load_rubric(name)
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


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
