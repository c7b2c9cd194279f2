"""`editloupe gate`: does a run hold what is required of it, as an exit code."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.cli.options import Columns, HumanFile
from editloupe.cli.output import command, fail, note, out, plain, print_json, say, warn
from editloupe.errors import ConfigError, StorageError
from editloupe.figures import gate as gates
from editloupe.figures import render
from editloupe.figures.columns import column_of, join
from editloupe.figures.gate import People
from editloupe.figures.gate_junit import write_gate_junit
from editloupe.figures.human_labels import read_people
from editloupe.figures.judged import Judged, chosen
from editloupe.runs.store import RunStore
from editloupe.stats.table import simple

FAILED = 100
"""Exit code of a requirement that does not hold; no other ending has it."""

UNDEFINED = 2


def gate(
    run: Annotated[Path | None, Argument(metavar="RUN", help="A run folder.", show_default=False)] = None,
    require: Annotated[
        list[str] | None, Option(help="METRIC>=NUMBER (or <=, >, <), such as 'mean(if)>=60'; may be repeated.")
    ] = None,
    judge: Annotated[
        str | None,
        Option(help="One judge of the run: its name, its URI, or the beginning of its id. Default: each must hold."),
    ] = None,
    editor: Annotated[str | None, Option(help="One editor's samples alone. Default: all together.")] = None,
    human: HumanFile = None,
    columns: Columns = None,
    junit: Annotated[Path | None, Option(metavar="FILE", help="Write JUnit XML.")] = None,
    summary: Annotated[
        Path | None,
        Option(
            metavar="FILE", envvar="GITHUB_STEP_SUMMARY", show_envvar=True, help="Append a Markdown table to this file."
        ),
    ] = None,
    metrics: Annotated[bool, Option("--metrics", help="List what a requirement may speak of.")] = False,
    as_json: Annotated[bool, Option("--json", help="JSON on standard output.")] = False,
) -> int:
    """Check a run against requirements: 0 all hold, 100 one does not, 2 one has no figure. No model is asked."""
    if metrics:
        for form, meaning in gates.METRICS.items():
            say(form, "bold")
            out().print(plain(f"    {meaning}"))
        return 0
    if run is None:
        raise ConfigError("RUN is missing: name the run folder to look at (editloupe gate --help)")
    if not require:
        raise ConfigError(
            "nothing is required; add --require 'unjudged<=0.02' (editloupe gate --metrics lists what there is)"
        )
    store = RunStore.read(run)
    rubric = store.metric_set()
    requirements = [gates.parse(text, rubric) for text in require]
    if human is not None and not any(r.human for r in requirements):
        raise ConfigError("--human is given and no requirement speaks of people; add --require 'kappa(human)>=0.6'")
    warn(store.problems)
    checked = []
    judges = chosen(store, judge)
    for judged in judges:
        which = judged if editor is None else gates.of_editor(judged, editor)
        people = partial(_people, store, judged, human, columns, editor)
        checked += list(gates.check(which, requirements, people))
    failed = [one for one in checked if one.verdict == "failed"]
    undefined = [one for one in checked if one.verdict == "undefined"]
    code = FAILED if failed else UNDEFINED if undefined else 0
    title = f"{len(checked) - len(failed) - len(undefined)} of {len(checked)} requirements hold"
    if as_json:
        print_json({"exit": code, "checked": [one.to_json() for one in checked]})
    else:
        say(f"Run: {run}", "bold")
        out().print(render.terminal(gates.table(checked, title)))
        for one in (*failed, *undefined):
            fail(f"{one.summary} [{one.judge}]")
            if one.worst:
                note(f"  by {', '.join(one.worst)}; look at the first: {command('show', run, one.worst[0])}")
    if junit is not None:
        write_gate_junit(checked, junit)
    if summary is not None:
        try:
            summary.parent.mkdir(parents=True, exist_ok=True)
            with summary.open("a", encoding="utf-8", errors="replace") as file:
                file.write(render.markdown(gates.table(checked, f"Gate of {run}: {title}")) + "\n")
                if named := [one for one in failed if one.worst]:
                    rows = [(one.name, ", ".join(one.worst), command("show", run, one.worst[0])) for one in named]
                    file.write(
                        render.markdown(simple("worst", "Failed by", ("Requirement", "Samples", "Look"), rows)) + "\n"
                    )
        except OSError as error:
            raise StorageError(f"{summary} cannot be written: {error.strerror or error}") from error
    return code


def _people(store: RunStore, judged: Judged, human: Path | None, columns: str | None, editor: str | None) -> People:
    """The judge's column with people's ratings. Raises ConfigError if there are none, or nothing meets."""
    column = column_of(judged)
    items, joined = join(column.items, read_people(store, human, columns), where=f"the run {judged.folder}", closed=True)
    warn(joined.notes)
    return column, {key: item for key, item in items.items() if editor is None or key[0] == editor}, joined
