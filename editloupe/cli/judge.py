"""`editloupe judge`: judge a folder of edits; every verdict has a label and a trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Option

from editloupe import plugins
from editloupe.backends.base import reach
from editloupe.backends.prices import read_prices
from editloupe.cli import judge_report
from editloupe.cli.dry_run import dry_run as estimate
from editloupe.cli.options import OUTPUT, AllJudges, AsJson, read_config, run_options, settled
from editloupe.cli.output import command, fail, note, say, slug, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.config import RunConfig
from editloupe.data.folders import check_exists
from editloupe.errors import BackendError, ConfigError, Unavailable
from editloupe.findings import PENDING
from editloupe.protocols.base import described
from editloupe.runs.budget import RunBudget
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.values import digest


@run_options(project=True)
def judge(
    runs: list[RunConfig],
    *,
    out_dir: Annotated[
        Path | None, Option("--out", help="Run folder. Default: runs/NAME-BACKEND-MODE.", rich_help_panel=OUTPUT)
    ] = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Print what a run would do and cost; ask nobody, write nothing.", rich_help_panel=OUTPUT),
    ] = False,
    full: AllJudges = False,
    as_json: AsJson = False,
) -> int:
    """Judge a folder of edits. The same command again continues the run.

    Examples:

    \b
    editloupe judge examples/edits
    editloupe judge my-edits --backend openai/gpt-4.1 --limit 20 --max-cost 2
    editloupe judge my-edits --backend small=openai/gpt-4.1-mini --backend large=openai/gpt-4.1 --out runs/both
    """
    first = runs[0]
    if first.path is None:
        raise ConfigError(
            "PATH is missing: name the folder of edits to judge, such as editloupe judge examples/edits, or a path in "
            "editloupe.yaml here (editloupe init writes one); editloupe judge --help lists all options"
        )
    # Before anything is said of what is begun.
    check_exists(first.path, what="a folder of edits")
    folder = out_dir or default_out(first)
    runs = [settled(run) for run in runs]
    if dry_run:
        return estimate([open_setup(run) for run in runs], entries_of(runs), folder, as_json=as_json)
    return judge_all(runs, folder, redo=PENDING, as_json=as_json, full=full)


def judge_all(runs: Sequence[RunConfig], folder: Path, *, redo: frozenset[str], as_json: bool, full: bool = False) -> int:
    """Judge with each judge in turn into one run folder, print the results, and return the exit code.

    runs: the same run, once for each judge. Each judge has the endpoint's whole width, and reuses what tools found for
    those before it. If one fails, the others continue.   redo: statuses of earlier findings that are judged again.
    full: several judges have a table each, too, before the one of all.
    Raises ConfigError for several judges of a protocol that has no such role.
    """
    roles = getattr(plugins.load("protocols", runs[0].protocol), "roles", {})
    if len(runs) > 1 and roles and "judge" not in roles:
        raise ConfigError(
            f"protocol {runs[0].protocol!r} has the roles {', '.join(roles)}, and a run has one backend for each; name one "
            f"backend, and another --out for {runs[1].judge.title}"
        )
    tell_traces(runs[0].langsmith)
    budget, several = RunBudget.of(runs[0]), len(runs) > 1
    entries = entries_of(runs, reached=True) if several else []
    codes: dict[str, int] = {}
    outcome: Outcome | None = None
    told = judge_report.Told(means=full or not several)
    for number, run in enumerate(runs, start=1):
        title = run.judge.title
        if several and budget.used_up:
            note(f"The budget is used up before {title} has begun. The same command continues the run.")
            codes[title] = 5
            break
        if several and not as_json:
            say(f"\nJudge {number} of {len(runs)}: {title}", "bold cyan")
        try:
            outcome, stopped = _judge(run, folder, budget, entries, redo=redo, as_json=as_json, told=told)
        except BackendError as error:
            if not several:
                raise
            fail(f"{title}: {error}")
            codes[title] = 1
            continue
        codes[title] = exit_code(outcome, tolerated=run.fail_on_error)
        if lost := outcome.never_scored:
            asked = sorted({finding.metric for finding in outcome.findings} - set(outcome.setup.metrics))
            others = f"; it asked {', '.join(map(repr, asked))}, which it does not declare" if asked else ""
            fail(
                f"{described(outcome.setup.protocol)} declares {', '.join(map(repr, lost))} and scored it for no sample"
                f"{others}. Mend the ids in plan and score, then: {command('report', folder)}"
            )
        if codes[title] == 3 and not as_json:
            share, allowed = f"{outcome.unusable:,} of {outcome.asked:,}", f"--fail-on-error allows {run.fail_on_error:.0%}"
            say(f"Exit code 3: {share} findings are not judged, and {allowed}.")
        if stopped and number < len(runs):
            # Also where this judge could end: whoever stops it wants no further one.
            codes[title] = 130
        if outcome.interrupted or stopped:
            break
        budget = budget.after(outcome.ledger, outcome.seconds)
    if several or not as_json:
        judge_report.together(outcome, folder, codes if as_json else None, told)
    if outcome is not None and not as_json:
        judge_report.next_steps(outcome, folder)
    return code_of_all(list(codes.values()))


def _judge(
    run: RunConfig,
    folder: Path,
    budget: RunBudget,
    entries: Sequence[JudgeEntry],
    *,
    redo: frozenset[str],
    as_json: bool,
    told: judge_report.Told,
) -> tuple[Outcome, bool]:
    """Return how one judge ended, and whether the user stopped it.

    run: as the user gave it.   entries: all judges of this command.
    """
    setup = open_setup(run)
    heading = judge_report.heading_of(setup)
    if not as_json:
        judging = f"Judging {run.path} with {heading.judge}"
        note(f"{f'Measuring {run.path}' if setup.judge.kind == 'measure' else judging} into {folder}")
    with stoppable() as stop, progress(events=as_json) as listener:
        outcome = drive(
            setup,
            folder,
            config=run.to_options(),
            budget=budget,
            redo=redo,
            listener=listener,
            stop=stop,
            entries=entries,
            spreads=True,
        )
    judge_report.report(outcome, heading, folder, as_json=as_json, told=told)
    return outcome, stop.is_set() and not outcome.ledger.reason


def entries_of(runs: Sequence[RunConfig], *, reached: bool = False) -> list[JudgeEntry]:
    """Return how run.json lists these judges. Raises ConfigError if one cannot judge, before any has spent anything.

    reached: without those whose address takes no connection.
    """
    budget, prices = RunBudget.of(runs[0]), read_prices(runs[0].prices)
    titles: dict[str, str] = {}
    found: list[JudgeEntry] = []
    for run in runs:
        setup = open_setup(run)
        budget.check(setup.backend, prices)
        if (same := titles.get(setup.judge.id)) is not None:
            raise ConfigError(
                f"{same} and {run.judge.title} are the same judge: no option that can change an answer differs. Leave "
                "one out; --repeats asks a judge several times"
            )
        titles[setup.judge.id] = run.judge.title
        with suppress(Unavailable):  # which its own turn says
            if reached and run.executor == "local":
                reach(setup.backend)
            found += [entry for entry in setup.entries(options=True) if entry.judge.id == setup.judge.id]
    return found


def code_of_all(codes: Sequence[int]) -> int:
    """Return the exit code of several judges: an interruption's; else theirs if it is the same; else 3 (some failed)."""
    stopped = [code for code in codes if code in (5, 130)]
    if stopped:
        return stopped[0]
    return codes[0] if len(set(codes)) == 1 else 3


def exit_code(outcome: Outcome, *, tolerated: float) -> int:
    """Return the exit code of one judge.

    0 within tolerance; 1 nothing could be judged, the backend refuses all, or the protocol never scores one of its metrics;
    3 too many failures, samples that the protocol could not score included; 5 stopped by a budget; 130 interrupted.
    """
    if outcome.interrupted:
        return 5 if outcome.ledger.reason else 130
    if (
        outcome.asked in (outcome.unusable, outcome.failed)
        or (outcome.ledger.refused and outcome.failed)
        or outcome.never_scored
    ):
        return 1
    # A hair of tolerance, so that 0.29 of 100 is 29.
    return 3 if outcome.unusable > tolerated * outcome.asked + 1e-9 else 0


def default_out(run: RunConfig) -> Path:
    """Return runs/NAME-BACKEND-MODE, with rubric and ablations if there are any: the same command finds its run again.

    The first of several judges gives its name, so that others can join them later. A short digest of the path follows if
    that folder is the run of other data with the same name.
    """
    assert run.path is not None
    roles = getattr(plugins.load("protocols", run.protocol), "roles", {})
    # A protocol that asks no model has nobody to be named after.
    who = [run.judge.title] if "judge" in roles else []
    folder = Path("runs") / "-".join(map(slug, [data_name(run.path), *who, *asked_name(run)]))
    config = folder / "config.yaml"
    if config.exists() and read_config(config).get("path") != str(run.path):
        return folder.with_name(f"{folder.name}-{digest(str(run.path))[:6]}")
    return folder


def data_name(path: Path) -> str:
    """Return what data are called in the name of a run: the folder."""
    return path.parent.name if path.is_file() else path.name


def asked_name(run: RunConfig) -> list[str]:
    """Return what a run's questions are called in its name: protocol, mode, rubric, ablations; no defaults but the mode."""
    usual = run.protocol == RunConfig.model_fields["protocol"].default
    mode = run.option.get("mode", "tool" if usual else None)
    rubric = str(run.option.get("rubric", "dlebench"))
    parts = [
        None if usual else run.protocol,
        run.option.get("asks"),
        mode,
        None if rubric == "dlebench" else Path(rubric).stem,
    ]
    null = ["null-edit"] if run.null_edit else []
    return [*(str(part) for part in parts if part), *sorted(run.ablate), *null]
