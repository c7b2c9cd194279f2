"""`editloupe trial`: judges held against probes, edits whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Argument, Option

from editloupe.backends.prices import read_prices
from editloupe.build.probes.trial import put_on_trial
from editloupe.build.probes.trial_tables import answers, heading, markdown, tables, write_trial
from editloupe.cli.compare import chosen_judges
from editloupe.cli.options import (
    Full,
    JsonFigures,
    Level,
    MarkdownFigures,
    PricesFile,
    Resamples,
    Seed,
    settled,
    with_options,
    words,
)
from editloupe.cli.options import runs as described
from editloupe.cli.output import in_brief, note, out, print_json, say, write
from editloupe.data.tables import ENDINGS
from editloupe.errors import ConfigError
from editloupe.figures import plots, render
from editloupe.figures.judged import incomplete, read_judged
from editloupe.findings import PENDING
from editloupe.stats.bootstrap import LEVEL, RESAMPLES, SEED, Drawing

_OF_JUDGING: Final = (
    "limit", "sample", "asks", "rubric", "criteria", "prompt", "option", "repeats", "backend", "tool_protocol",
    "answers", "temperature", "reply_tokens", "concurrency", "max_connections", "patience",
    "max_run_tokens", "max_run_seconds", "max_cost", "fail_on_error",
)  # fmt: skip
"""Options of `editloupe judge` for a folder of probes."""
_STOPPED: Final = (1, 130)
"""Exit codes of judging after which there is nothing to hold against the truth, or nobody wants it."""


@with_options("judging", _OF_JUDGING)
def trial(
    judging: dict[str, Any],
    *,
    runs: Annotated[
        list[Path],
        Argument(
            help="Run folders, or folders of probes, which are judged first.", metavar="RUN|PROBES", show_default=False
        ),
    ],
    modes: Annotated[
        str | None,
        Option(
            "--mode",
            metavar="A,B,…",
            help="How a judge is asked about PROBES: plain, tool, oracle; or several, each in a run of its own.",
            rich_help_panel="Protocol",
        ),
    ] = None,
    judges: Annotated[
        str | None,
        Option(metavar="A,B,…", help="Only these judges, each by its name, its URI, or the beginning of its id."),
    ] = None,
    out_dir: Annotated[Path | None, Option("--out", help="Keep tables and plots in this folder.")] = None,
    prices: PricesFile = None,
    resamples: Resamples = RESAMPLES,
    level: Level = LEVEL,
    seed: Seed = SEED,
    full: Full = False,
    as_json: JsonFigures = False,
    as_markdown: MarkdownFigures = False,
) -> int:
    """Hold judges against probes, edits whose truth is known: accuracy, thresholds, leniency, traps, cost.

    PROBES is what editloupe build probes made. It is judged with --backend, as by editloupe judge PROBES --protocol probes;
    the same command again continues. RUN is a run over probes: no model is asked. What could not be judged is counted and
    is part of no figure.

    Examples:

    \b
    editloupe trial runs/probes-baseline-probes-tool
    editloupe trial my-probes --backend openai/gpt-4.1 --mode plain,tool
    """
    given = {**judging, **({} if modes is None else {"mode": modes})}
    machine = as_json or as_markdown
    folders, code = _judged(runs, given, prices, machine=machine)
    if code in _STOPPED:
        return code
    found = chosen_judges(read_judged(folders, same_metrics=False), words(judges))
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    told = put_on_trial(found, prices=read_prices(prices), drawing=drawing)
    if as_json:
        print_json(told.to_json())
    elif as_markdown:
        write(markdown(told))
    else:
        for line in incomplete(found):
            say(line, "yellow")
        say(heading(told))
        for judge in told.judges:
            say(judge.description, "bold")
        for text in told.notes:
            note(text)
        made = list(tables(told))
        if in_brief(full):
            for text in answers(told):
                say(text)
            say(f"{len(made)} tables with --full; tables and plots as files with --out FOLDER", "dim")
        else:
            for table in made:
                out().print(render.terminal(table))
    if out_dir is not None:
        written = write_trial(told, out_dir)
        note(f"{len(written)} files in {out_dir}: trial.md, trial.json, tables as CSV, {plots.written()}")
    return code


def _judged(runs: list[Path], given: Mapping[str, Any], prices: Path | None, *, machine: bool) -> tuple[list[Path], int]:
    """Return the run folders, those of probes that were judged now among them, and the exit code of judging.

    given: options of judging, as the command line has them.   machine: whether standard output is for programs.
    Raises ConfigError for options of judging where there is nothing to judge.
    """
    probes = [path for path in runs if _is_data(path)]
    if not probes:
        if given:
            flag = next(iter(given)).replace("_", "-")
            raise ConfigError(f"--{flag} is for a folder of probes that is judged first; found only runs: leave it out")
        return runs, 0
    if machine:
        raise ConfigError(
            f"{probes[0]} is to be judged first, which prints what it does; leave --json or --markdown out, then give the "
            "run that is named there"
        )
    # Whoever reads runs alone need not wait until all that can judge is imported.
    from editloupe.cli.judge import code_of_all, default_out, judge_all

    folders, codes = list[Path](), list[int]()
    for path in runs:
        if path not in probes:
            folders.append(path)
            continue
        for mode in words(given.get("mode")) or (None,):
            options = {**given, "path": path, "protocol": "probes", "mode": mode, "prices": prices}
            made = described({name: value for name, value in options.items() if value is not None})
            folder = default_out(made[0])
            codes.append(judge_all([settled(run) for run in made], folder, redo=PENDING, as_json=False))
            folders.append(folder)
            if codes[-1] in _STOPPED:
                return folders, codes[-1]
    return folders, code_of_all(codes)


def _is_data(path: Path) -> bool:
    """Return whether a path is data to be judged: a metadata file, or a folder with one that is no run."""
    metadata = any((path / f"metadata{ending}").exists() for ending in ENDINGS)
    return path.is_file() or (metadata and not (path / "run.json").exists())
