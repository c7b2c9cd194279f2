"""`editloupe trial`: judges held against probes, edits whose truth is known."""

from __future__ import annotations

from editloupe.build.probes.trial import heading, markdown, put_on_trial, tables, to_json, write_trial
from editloupe.cli.compare import chosen_judges
from editloupe.cli.options import JudgeNames, OutFolder, Resamples, RunFolders, TableName, words
from editloupe.cli.output import Form, note, say
from editloupe.cli.tables import show_table, show_whole
from editloupe.figures.judged import incomplete, read_judged
from editloupe.stats.bootstrap import RESAMPLES, Drawing


def trial(
    runs: RunFolders,
    judges: JudgeNames = None,
    out_dir: OutFolder = None,
    resamples: Resamples = RESAMPLES,
    name: TableName = None,
    form: Form = "table",
) -> int:
    """Hold judges against probes, edits whose truth is known: accuracy, thresholds, leniency, traps.

    RUN is a run over what `editloupe build probes` made, judged with --protocol probes. No model is asked here. What could
    not be judged is counted and is part of no figure.

    \b
    editloupe judge my-probes --protocol probes --mode plain --out runs/plain
    editloupe judge my-probes --protocol probes --mode tool --out runs/tool
    editloupe trial runs/plain runs/tool
    """
    found = chosen_judges(read_judged(runs), words(judges))
    told = put_on_trial(found)
    made = tables(told, Drawing(resamples=resamples))
    if not show_whole(made, name, lambda: to_json(told, made), lambda: markdown(told, made)):
        for line in incomplete(found):
            say(line, "yellow")
        say(heading(told))
        for text in told.notes:
            note(text)
        for table in made:
            show_table(table)
    if out_dir is not None:
        written = write_trial(told, made, out_dir)
        note(f"{len(written)} files in {out_dir}: trial.md, trial.json, tables as CSV")
    return 0
