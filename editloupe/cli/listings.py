"""`editloupe backends`, `rubrics`: what is here."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from editloupe.cli.output import out, plain

_WHAT = {
    "baseline": ("baseline", "rules on pixels, embedded: no key, no GPU, no network; not an LMM"),
    "openai": ("openai/MODEL[?base_url=…]", "OpenAI, or any server that speaks its chat completions"),
    "scripted": ("scripted/FILE.jsonl", "replies read from a file, one a line: for tests and demonstrations"),
    "vllm": (
        "vllm/MODEL[?base_url=…]",
        "a model that vLLM serves, here on port 8000 or elsewhere; judge --launch starts it",
    ),
}


def backends() -> None:
    """List the backends that --backend takes."""
    from editloupe import plugins

    table = Table("Backend", "What it is", "From")
    for name in plugins.names("backends"):
        uri, what = _WHAT.get(name, (f"{name}/…", ""))
        table.add_row(plain(uri), plain(what), plain(plugins.origin("backends", name)))
    out().print(table)


def rubrics(
    rubric: Annotated[str | None, typer.Argument(help="A built-in rubric or a .toml file, to see it whole.")] = None,
) -> None:
    """List the built-in rubrics, or show one with its labels and values."""
    from editloupe.rubrics.model import builtin_rubrics, load_rubric

    if rubric is None:
        table = Table("Rubric", "Criteria", "Title")
        for name in builtin_rubrics():
            loaded = load_rubric(name)
            criteria = ", ".join(f"{c.name} ({c.short})" for c in loaded.criteria)
            table.add_row(plain(name), plain(criteria), plain(loaded.title))
        out().print(table)
        return
    loaded = load_rubric(rubric)
    out().print(f"{loaded.title} (rubric {loaded.id}, digest {loaded.digest[:12]})", markup=False)
    for criterion in loaded.criteria:
        table = Table("Value", "Label", "Means", title=plain(f"{criterion.name} ({criterion.short})"), title_justify="left")
        for level in reversed(criterion.levels):
            table.add_row(f"{level.value:g}", plain(level.name), plain(level.description))
        out().print(table)
