"""`editloupe gate`: does a run hold what is required of it, as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from editloupe.cli.arguments import HumanColumns, HumanFile, JudgeName, RunFolder, opt
from editloupe.cli.output import Form, fail, note, print_json, say, show_table, warn
from editloupe.errors import ConfigError, StorageError
from editloupe.figures import gate as gates
from editloupe.figures import render
from editloupe.figures.columns import column_of, join
from editloupe.figures.gate import Checked, People
from editloupe.figures.gate_junit import write_gate_junit
from editloupe.figures.human_labels import read_people
from editloupe.figures.judged import Judged, chosen
from editloupe.runs.store import RunStore

FAILED = 100
"""Exit code of a requirement that does not hold; no other ending has it."""

UNDEFINED = 2


def gate(
    run: RunFolder,
    require: Annotated[list[str] | None, opt("--require", "RULE", "METRIC>=NUMBER (or <=, >, <); may be repeated.")] = None,
    judge: JudgeName = None,
    editor: Annotated[str | None, opt("--editor", "NAME", "One editor's samples. Default: all together.")] = None,
    human: HumanFile = None,
    columns: HumanColumns = None,
    junit: Annotated[Path | None, opt("--junit", "FILE", "Write JUnit XML.")] = None,
    summary: Annotated[
        Path | None, opt("--summary", "FILE", "Append a Markdown table.", envvar="GITHUB_STEP_SUMMARY", show_envvar=True)
    ] = None,
    form: Form = "table",
) -> int:
    """Check a run against requirements: 0 all hold, 100 one does not, 2 one has no figure. No model is asked.

    Example: editloupe gate RUN --require 'mean(if)>=60' --require 'unjudged<=0.02'

    Without --require it lists what a requirement may speak of. Each judge of the run must hold, unless --judge names one.
    """
    if not require:
        for name, meaning in gates.METRICS.items():
            note(f"{name}\n    {meaning}")
        raise ConfigError("nothing is required; add --require 'unjudged<=0.02', of what is listed above")
    store = RunStore.read(run)
    rubric = store.metric_set()
    requirements = [gates.parse(text, rubric) for text in require]
    if human is not None and not any(r.human for r in requirements):
        raise ConfigError("--human is given and no requirement speaks of people; add --require 'kappa(human)>=0.6'")
    warn(store.problems)
    checked: list[Checked] = []
    for judged in chosen(store, judge):
        which = judged if editor is None else gates.of_editor(judged, editor)
        people = partial(_people, store, judged, human, columns, editor)
        checked += list(gates.check(which, requirements, people))
    failed = [one for one in checked if one.verdict == "failed"]
    undefined = [one for one in checked if one.verdict == "undefined"]
    code = FAILED if failed else UNDEFINED if undefined else 0
    title = f"{len(checked) - len(failed) - len(undefined)} of {len(checked)} requirements hold"
    if form == "json":
        print_json({"exit": code, "checked": [one.to_json() for one in checked]})
    else:
        say(f"Run: {run}", "bold")
        show_table(gates.table(checked, title))
        for one in (*failed, *undefined):
            fail(f"{one.summary} [{one.judge}]")
    if junit is not None:
        write_gate_junit(checked, junit)
    if summary is not None:
        _append(summary, run, checked, title)
    return code


def _append(file: Path, run: Path, checked: Sequence[Checked], title: str) -> None:
    """Append the table to the summary of a CI server. Raises StorageError."""
    table = gates.table(checked, f"Gate of {run}: {title}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8", errors="replace") as opened:
            opened.write(render.markdown(table) + "\n")
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error


def _people(store: RunStore, judged: Judged, human: Path | None, columns: str | None, editor: str | None) -> People:
    """The judge's column with people's ratings. Raises ConfigError if there are none, or nothing meets."""
    column = column_of(judged)
    joined = join(column, read_people(store, human, columns), where=f"the run {judged.folder}", closed=True)
    warn(joined.notes)
    own = joined.frame if editor is None else joined.frame.filter(editor=editor)
    return column, replace(joined, frame=own)
