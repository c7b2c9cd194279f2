"""`editloupe trial`: judges held against probes, edits whose truth is known."""

from __future__ import annotations

from editloupe.backends.prices import read_prices
from editloupe.build.probes.trial import put_on_trial
from editloupe.build.probes.trial_tables import answers, heading, markdown, tables, write_trial
from editloupe.cli.compare import chosen_judges
from editloupe.cli.options import Full, JudgeNames, OutFolder, PricesFile, Resamples, RunFolders, TableName, words
from editloupe.cli.output import Form, in_brief, note, say, show_table, show_whole
from editloupe.figures import plots
from editloupe.figures.judged import incomplete, read_judged
from editloupe.stats.bootstrap import RESAMPLES, Drawing


def trial(
    runs: RunFolders,
    judges: JudgeNames = None,
    out_dir: OutFolder = None,
    prices: PricesFile = None,
    resamples: Resamples = RESAMPLES,
    name: TableName = None,
    full: Full = False,
    form: Form = "table",
) -> int:
    """Hold judges against probes, edits whose truth is known: accuracy, thresholds, leniency, traps, cost.

    RUN is a run over what `editloupe build probes` made, judged with --protocol probes. No model is asked here. What could
    not be judged is counted and is part of no figure.

    Examples:

    \b
    editloupe judge my-probes --protocol probes --mode plain --out runs/plain
    editloupe judge my-probes --protocol probes --mode tool --out runs/tool
    editloupe trial runs/plain runs/tool
    """
    found = chosen_judges(read_judged(runs, same_metrics=False), words(judges))
    told = put_on_trial(found, prices=read_prices(prices), drawing=Drawing(resamples=resamples))
    made = list(tables(told))
    if not show_whole(made, name, told.to_json, lambda: markdown(told)):
        for line in incomplete(found):
            say(line, "yellow")
        say(heading(told))
        for judge in told.judges:
            say(judge.description, "bold")
        for text in told.notes:
            note(text)
        if in_brief(full):
            for text in answers(told):
                say(text)
            say(f"{len(made)} tables with --full; tables and plots as files with --out FOLDER", "dim")
        else:
            for table in made:
                show_table(table)
    if out_dir is not None:
        written = write_trial(told, out_dir)
        note(f"{len(written)} files in {out_dir}: trial.md, trial.json, tables as CSV, {plots.written()}")
    return 0
