"""`editloupe rubrics`: what is here."""

from __future__ import annotations

from typing import Annotated

import typer

from editloupe.cli.output import say, table


def rubrics(
    rubric: Annotated[str | None, typer.Argument(help="A built-in rubric or a .toml file, to see it whole.")] = None,
) -> None:
    """List the built-in rubrics, or show one with its labels and values."""
    from editloupe.rubrics import builtin_rubrics, load_rubric

    if rubric is None:
        known = {name: load_rubric(name) for name in builtin_rubrics()}
        table(
            *("Rubric", "Criteria", "Title"),
            rows=[
                (name, ", ".join(f"{c.name} ({c.short})" for c in one.criteria), one.title) for name, one in known.items()
            ],
        )
        return
    loaded = load_rubric(rubric)
    say(f"{loaded.title} (rubric {loaded.id}, digest {loaded.digest[:12]})")
    for criterion in loaded.criteria:
        table(
            *("Value", "Label", "Means"),
            rows=[(f"{level.value:g}", level.name, level.description) for level in reversed(criterion.levels)],
            title=f"{criterion.name} ({criterion.short})",
        )
