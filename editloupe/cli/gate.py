"""`editloupe gate`: does a run hold what is required of it, as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from editloupe.cli.options import HumanColumns, HumanFile, JudgeName, RunFolder, opt, people_columns
from editloupe.cli.output import Form, as_json, fail, note, print_json, say, warn
from editloupe.cli.tables import show_table
from editloupe.errors import ConfigError
from editloupe.figures import gate as gates
from editloupe.figures.columns import join
from editloupe.figures.gate import Checked, People, write_gate_junit
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
    human: HumanFile = None,
    columns: HumanColumns = None,
    junit: Annotated[Path | None, opt("--junit", "FILE", "Write JUnit XML.")] = None,
    form: Form = "table",
) -> int:
    """Check a run against requirements: 0 all hold, 100 one does not, 2 one has no figure. No model is asked.

    Example: editloupe gate RUN --require 'mean(if)>=60' --require 'unjudged<=0.02'

    Without --require it lists what a requirement may name. Each judge of the run must hold, unless --judge names one.
    """
    if not require:
        for name, meaning in gates.METRICS.items():
            note(f"{name}\n    {meaning}")
        raise ConfigError("nothing is required; add one of these, such as --require 'unjudged<=0.02'")
    store = RunStore.read(run)
    requirements = [gates.parse(text, store.metric_set()) for text in require]
    warn(store.problems)
    table, checked = (human, people_columns(human, columns)), list[Checked]()
    for judged in chosen(store, judge):
        checked += gates.check(judged, requirements, partial(_people, store, judged, *table))
    warn(dict.fromkeys(text for one in checked for text in one.notes))
    failed = [one for one in checked if one.verdict == "failed"]
    undefined = [one for one in checked if one.verdict == "undefined"]
    code = FAILED if failed else UNDEFINED if undefined else 0
    if as_json():
        print_json({"exit": code, "checked": [one.to_json() for one in checked]})
    else:
        say(f"Run: {run}", "bold")
        holds = len(checked) - len(failed) - len(undefined)
        show_table(gates.table(checked, f"{holds} of {len(checked)} requirements hold"))
        for one in (*failed, *undefined):
            fail(f"{one.summary} [{one.judge}]")
    if junit is not None:
        write_gate_junit(checked, junit)
    return code


def _people(store: RunStore, judged: Judged, human: Path | None, columns: Mapping[str, str]) -> People:
    """Return the judge's column with people's ratings. Raises ConfigError if there are none, or nothing meets."""
    joined = join(judged.column.items, read_people(store, human, columns), where=f"the run {judged.folder}", closed=True)
    warn(joined.notes)
    return judged.column, joined
