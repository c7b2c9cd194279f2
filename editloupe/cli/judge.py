"""`editloupe judge`: judge a folder of edits; every verdict has a label and a trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from editloupe import plugins
from editloupe.backends.base import reach
from editloupe.backends.prices import read_prices
from editloupe.cli import judge_report, options
from editloupe.cli.options import OUTPUT, given, opt, read_config, settled, words
from editloupe.cli.output import Form, as_json, fail, note, say, slug, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.cli.recorded import recorded_runs
from editloupe.config import RunConfig
from editloupe.data.folders import check_exists
from editloupe.errors import BackendError, ConfigError, Unavailable, UnknownPlugin
from editloupe.figures.judged import why_empty
from editloupe.findings import FAILURES, PENDING
from editloupe.runs.budget import RunBudget
from editloupe.runs.estimate import look_ahead
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import Setup, open_setup
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.values import digest

_OF_RETRY: Final = {"path", "backend", "trust", "set"}
"""What a retry takes; the rest is recorded in the run."""


def judge(
    context: typer.Context,
    path: options.DataPath = None,
    layout: options.Layout = None,
    edited: options.Edited = None,
    columns: options.DataColumns = None,
    fields: options.FieldsFile = None,
    limit: options.Limit = None,
    sample: options.SampleIds = None,
    protocol: options.ProtocolName = None,
    mode: options.Mode = None,
    rubric: options.Rubric = None,
    criteria: options.Criteria = None,
    prompt: options.Prompt = None,
    repeats: options.Repeats = None,
    backend: options.Backends = None,
    judges_file: options.JudgesFile = None,
    temperature: options.Temperature = None,
    tools: options.Tools = None,
    detector: options.Detector = None,
    upscaler: options.Upscaler = None,
    device: options.Device = None,
    max_turns: options.MaxTurns = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    processes: options.Processes = None,
    executor: options.Executor = None,
    batch: options.Batch = False,
    out_dir: Annotated[Path | None, opt("--out", "RUN", "Run folder. Default: runs/NAME-BACKEND-MODE.", OUTPUT)] = None,
    form: Form = "table",
    dry_run: Annotated[bool, opt("--dry-run", None, "Print what a run would do and cost; ask nothing.", OUTPUT)] = False,
    retry: Annotated[
        str | None, opt("--retry", "[STATUS]", "PATH is a run: judge its failures again, and those of STATUS.", OUTPUT)
    ] = None,
    fail_on_error: options.FailOnError = None,
    config: options.ConfigFile = None,
    trust: options.TrustFile = False,
    sets: options.Sets = None,
) -> int:
    """Judge a folder of edits. The same command again continues the run.

    Without PATH, editloupe.yaml in this folder names it and the settings.

    \b
    editloupe judge examples/edits
    editloupe judge my-edits --backend openai/gpt-4.1 --limit 20 --max-cost 2
    editloupe judge my-edits --backend small=openai/gpt-4.1-mini --backend large=openai/gpt-4.1 --out runs/both
    """
    line = given(context)
    if retry is not None:
        named = {*line, *(["dry_run"] if dry_run else []), *(["out"] if out_dir else [])}
        if other := sorted(named - _OF_RETRY):
            raise ConfigError(f"--retry asks a run's own questions again; leave --{other[0].replace('_', '-')} out")
        if path is None:
            raise ConfigError("--retry: name the run folder, such as editloupe judge runs/first --retry")
        langsmith = "langsmith=true" in (sets or ())
        runs, redo = _of_retry(path, retry, backend or (), trusted=trust, langsmith=langsmith)
        return judge_all(runs, path, redo=redo)
    runs = options.runs(line, project=True)
    first = runs[0]
    if first.path is None:
        raise ConfigError(
            "PATH is missing: name the folder of edits to judge, such as editloupe judge examples/edits, or write a line "
            "'path: FOLDER' into editloupe.yaml here"
        )
    # Before anything is said of what is begun.
    check_exists(first.path, what="a folder of edits")
    folder = out_dir or default_out(first)
    runs = [settled(run) for run in runs]
    if not dry_run:
        return judge_all(runs, folder)
    entries, prices = entries_of(runs), read_prices(first.prices)
    for setup in map(open_setup, runs):
        ahead = look_ahead(setup, folder, prices, entries=entries)
        judge_report.say_ahead(setup, ahead, folder, basis=prices.basis(setup.backend))
    return 0


def _of_retry(
    folder: Path, status: str, named: Sequence[str], *, trusted: bool, langsmith: bool
) -> tuple[list[RunConfig], frozenset[str]]:
    """Return how a run was asked, judge by judge, and the statuses to judge again. Raises ConfigError.

    status: further statuses, or "failed" for none.   named: backends that may be asked at the address they have.
    """
    chosen = frozenset(() if status == "failed" else words(status) or ())
    if unknown := sorted(chosen - FAILURES):
        raise ConfigError(f"--retry {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    store = RunStore.read(folder)
    if not store.info.get("judges"):
        raise ConfigError(f"no model was asked, so there is nothing to ask again: {why_empty(store)}")
    # A remark on several judges is made once.
    trust = Trust(source=folder, whole=trusted, named=named, tell=cache(note))
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    asked = {"limit": None, "sample": (*store.samples, *store.rejected), "langsmith": langsmith}
    runs = [trust.run(run.model_copy(update=asked)) for run in recorded_runs(folder)]
    try:
        ids = {open_setup(run).judge.id for run in runs}
    except UnknownPlugin as error:
        if error.group != "protocol":
            raise
        raise ConfigError(f"{folder} was judged by a protocol that is not installed here: {error}") from error
    for name in (name for id_, name in store.judge_names().items() if id_ not in ids):
        note(f"warning: {name} is not asked: the run does not record how. Name it again: judge … --backend")
    return runs, PENDING | chosen


def judge_all(runs: Sequence[RunConfig], folder: Path, *, redo: frozenset[str] = PENDING) -> int:
    """Judge with each judge in turn into one run folder, print the results, and return the exit code.

    runs: the same run, once for each judge. If one fails, the others continue.   redo: statuses of earlier findings that
    are judged again. Raises ConfigError for several judges of a protocol that has no such role.
    """
    roles = getattr(plugins.load("protocols", runs[0].protocol), "roles", {})
    if len(runs) > 1 and roles and "judge" not in roles:
        raise ConfigError(
            f"protocol {runs[0].protocol!r} has the roles {', '.join(roles)}, and a run has one backend for each; name one "
            f"backend, and another --out for {runs[1].judge.title}"
        )
    budget, several = RunBudget.of(runs[0]), len(runs) > 1
    entries = entries_of(runs, reached=True) if several else []
    codes: list[int] = []
    outcome: Outcome | None = None
    for number, run in enumerate(runs, start=1):
        title = run.judge.title
        if several and budget.used_up:
            note(f"The budget is used up before {title} has begun. The same command continues the run.")
            codes.append(5)
            break
        if several and not as_json():
            say(f"\nJudge {number} of {len(runs)}: {title}", "bold cyan")
        try:
            setup = open_setup(run)
            what = f"Measuring {run.path}" if setup.judge.kind == "measure" else f"Judging {run.path} with {setup.name}"
            more: dict[str, Any] = {"config": run.to_options(), "redo": redo, "entries": entries, "spreads": True}
            outcome, stopped = _ask(setup, folder, what, budget=budget, events=True, **more)
        except BackendError as error:
            if not several:
                raise
            fail(f"{title}: {error}")
            codes.append(1)
            continue
        judge_report.report(outcome, folder)
        code = exit_code(outcome, tolerated=run.fail_on_error)
        if code == 3 and not as_json():
            share, allowed = f"{outcome.unusable:,} of {outcome.asked:,}", f"--fail-on-error allows {run.fail_on_error:.0%}"
            say(f"Exit code 3: {share} findings are not judged, and {allowed}.")
        # The user wants no further judge, even if this one could end.
        codes.append(130 if stopped and number < len(runs) else code)
        if outcome.interrupted or stopped:
            break
        budget = budget.after(outcome.ledger, outcome.seconds)
    if outcome is not None and outcome.findings and not as_json():
        judge_report.conclude(outcome, folder)
    # An interruption's; else theirs if it is the same; else 3: some failed.
    stops = [code for code in codes if code in (5, 130)]
    return stops[0] if stops else codes[0] if len(set(codes)) == 1 else 3


def _ask(setup: Setup, folder: Path, what: str, *, events: bool = False, **how: Any) -> tuple[Outcome, bool]:
    """Ask a judge all that a run needs, with progress, and return how it ended and whether the user stopped it.

    what: is done, for a line.   events: whether JSON includes progress.   how: as `drive` takes it.
    """
    tell_traces(setup.config.langsmith)
    if not as_json():
        note(f"{what} into {folder}")
    with stoppable() as stop, progress(events=events and as_json(), hidden=as_json() and not events) as listener:
        outcome = drive(setup, folder, listener=listener, stop=stop, **how)
    return outcome, stop.is_set() and not outcome.ledger.reason


def ask_first(setup: Setup, folder: Path, what: str, **how: Any) -> Outcome:
    """Ask all that a command's own results need, and say what came in between. Raises BackendError for no answer."""
    outcome, _ = _ask(setup, folder, what, **how)
    for text in outcome.notes:
        note(text)
    if why := judge_report.unfinished(outcome):
        if outcome.ledger.refused and not any(finding.status == "ok" for finding in outcome.findings):
            raise BackendError(why)
        note(why)
    if not as_json() and setup.backend.uri not in ("baseline", "measure") and outcome.ledger.calls:
        say(judge_report.spent_message(outcome.ledger, setup.backend))
    return outcome


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


def exit_code(outcome: Outcome, *, tolerated: float) -> int:
    """Return the exit code of one judge.

    0 within tolerance; 1 nothing could be judged, the backend refuses all, or the protocol never scores one of its metrics;
    3 too many failures, samples that the protocol could not score included; 5 stopped by a budget, or batches have answers
    to give; 130 interrupted.
    """
    if outcome.interrupted:
        return 5 if outcome.ledger.reason else 130
    if outcome.waiting and not outcome.ledger.refused:
        return 5
    nothing = outcome.asked in (outcome.unusable, outcome.failed)
    if nothing or (outcome.ledger.refused and outcome.failed) or outcome.never_scored:
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
    folder = run_folder(data_name(run.path), *([run.judge.title] if "judge" in roles else []), *asked_name(run))
    config = folder / "config.yaml"
    if config.exists() and read_config(config).get("path") != str(run.path):
        return folder.with_name(f"{folder.name}-{digest(str(run.path))[:6]}")
    return folder


def run_folder(*parts: str) -> Path:
    """Return the folder of a run whose user names none."""
    return Path("runs") / "-".join(map(slug, parts))


def data_name(path: Path) -> str:
    """Return what data are called in the name of a run: the folder."""
    return path.parent.name if path.is_file() else path.name


def asked_name(run: RunConfig) -> list[str]:
    """Return what a run's questions are called in its name: protocol, mode, rubric, ablations; no defaults but the mode."""
    usual = run.protocol == RunConfig.model_fields["protocol"].default
    rubric = str(run.option.get("rubric", "dlebench"))
    parts = [
        None if usual else run.protocol,
        run.option.get("asks"),
        run.option.get("mode", "tool" if usual else None),
        None if rubric == "dlebench" else Path(rubric).stem,
    ]
    return [*(str(part) for part in parts if part), *sorted(run.ablate), *(["null-edit"] if run.null_edit else [])]
