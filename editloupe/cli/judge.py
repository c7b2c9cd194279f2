"""`editloupe judge`: judge a folder of edits; every verdict has a label and a trace."""

from __future__ import annotations

import shlex
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Option

from editloupe import plugins
from editloupe.backends.base import LMM, BackendURI, parse_uri
from editloupe.backends.prices import read_prices
from editloupe.backends.vllm_server import Server, check_launch, unstarted
from editloupe.backends.vllm_server import launched as start
from editloupe.cli import judge_report
from editloupe.cli.dry_run import dry_run as estimate
from editloupe.cli.options import OUTPUT, AllJudges, AsJson, read_config, run_options, settled
from editloupe.cli.output import fail, note, plain, say, slug, status, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.folders import check_exists
from editloupe.errors import BackendError, ConfigError
from editloupe.findings import PENDING
from editloupe.runs.budget import Ledger, RunBudget
from editloupe.runs.estimate import look_ahead
from editloupe.runs.execute import Outcome, execute
from editloupe.runs.judges import Entry
from editloupe.runs.setup import Setup, open_setup
from editloupe.runs.store import RunStore
from editloupe.runs.visits import added
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
        return estimate([opened(run) for run in runs], entries_of(runs), folder, as_json=as_json)
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
    budget, several = budget_of(runs[0]), len(runs) > 1
    entries = entries_of(runs) if several else []
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
    entries: Sequence[Entry],
    *,
    redo: frozenset[str],
    as_json: bool,
    told: judge_report.Told,
) -> tuple[Outcome, bool]:
    """Return how one judge ended, and whether the user stopped it.

    run: as the user gave it.   entries: all judges of this command.
    """
    setup, launch, server = opened(run), _launch_of(run.judge), None
    with ExitStack() as stack:
        if launch is not None:
            # Errors in the other options are found before a model loads for minutes. If nothing is left to ask, none is.
            ahead = look_ahead(setup, folder, redo=redo)
            if ahead.asked or ahead.grows:
                backend, server = stack.enter_context(_launched(launch, hidden=as_json))
                setup = open_setup(_with_backend(run, backend))
        heading = judge_report.heading_of(setup)
        if not as_json:
            judging = f"Judging {run.path} with {heading.judge}"
            note(f"{f'Measuring {run.path}' if setup.judge.kind == 'measure' else judging} into {folder}")
        if not as_json and (folder / "run.json").exists():
            with suppress(ConfigError):  # of a run that cannot be read, which those say who write to it
                store = RunStore.read_info(folder)
                for line in added(store, setup, {setup.judge.id, *(entry.judge.id for entry in entries)}, store.config()):
                    note(line)
        at_once = server.kill if server else lambda: None
        with stoppable(at_once) as stop, progress(events=as_json) as listener:
            outcome = execute(
                setup,
                folder,
                config=run.to_options(),
                budget=budget,
                prices=read_prices(run.prices),
                redo=redo,
                listener=listener,
                stop=stop,
                entries=[_entry(run, setup), *entries],
                remembers=True,
            )
        judge_report.report(outcome, heading, folder, as_json=as_json, told=told)
        if server and (trouble := server.trouble()):
            note(trouble)
    return outcome, stop.is_set() and not outcome.ledger.reason


Launch: TypeAlias = tuple[BackendURI, tuple[str, ...]]
"""A server to be started: the URI that names the model, and the arguments of `vllm serve`."""


def _launch_of(judge: JudgeConfig) -> Launch | None:
    """Return what a judge launches; None if it launches nothing. Raises ConfigError."""
    if not judge.launch:
        if judge.launch_args:
            raise ConfigError("--launch-args needs --launch")
        return None
    try:
        given = shlex.split(judge.launch_args or "")
    except ValueError as error:
        raise ConfigError(f"--launch-args {judge.launch_args!r} cannot be split as a shell does it: {error}") from error
    uri = parse_uri(judge.backend or "baseline")
    if judge.tool_protocol in ("native", "auto") and not any("tool-call-parser" in a for a in given):
        # Without these the server refuses every request that offers tools.
        given += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    check_launch(uri, given)
    return uri, tuple(given)


def _with_backend(run: RunConfig, backend: LMM) -> RunConfig:
    """Return the same run, asked of an open backend."""
    return run.with_judge(run.judge.model_copy(update={"backend": backend}))


@contextmanager
def _launched(launch: Launch, *, hidden: bool) -> Iterator[tuple[LMM, Server]]:
    """Start a server, with a progress line; yield the backend that asks it."""
    uri, arguments = launch
    begun = time.monotonic()
    with ExitStack() as stack:
        with status("starting vllm serve", hidden=hidden) as line:

            def tell(seconds: float, text: str) -> None:
                last = textwrap.shorten(text, 100, placeholder=" …")
                line.update(plain(f"starting vllm serve {uri.model}, {seconds:.0f} s  {last}"))

            pair = stack.enter_context(start(uri, arguments, progress=tell))
        if not hidden:
            note(f"vllm serve {uri.model} answers after {time.monotonic() - begun:.0f} s")
        yield pair


def opened(run: RunConfig) -> Setup:
    """Return the setup of a run. A server that it launches has not started. Raises ConfigError."""
    launch = _launch_of(run.judge)
    if launch is not None and run.workers:
        raise ConfigError(
            "--launch with --workers: start vllm serve yourself, and name it with ?base_url=http://HOST:PORT/v1"
        )
    return open_setup(run if launch is None else _with_backend(run, unstarted(*launch)))


def entries_of(runs: Sequence[RunConfig]) -> list[Entry]:
    """Return how run.json lists these judges. Raises ConfigError if one cannot judge, before any has spent anything."""
    budget, prices = budget_of(runs[0]), read_prices(runs[0].prices)
    found: dict[str, tuple[str, Entry]] = {}
    for run in runs:
        setup = opened(run)
        Ledger(budget=budget, prices=prices, stop=threading.Event()).check(setup.backend)
        if (same := found.get(setup.judge.id)) is not None:
            raise ConfigError(
                f"{same[0]} and {run.judge.title} are the same judge: no option that can change an answer differs. Leave "
                "one out; --repeats asks a judge several times"
            )
        found[setup.judge.id] = run.judge.title, _entry(run, setup)
    return [entry for _, entry in found.values()]


def _entry(run: RunConfig, setup: Setup) -> Entry:
    return Entry(judge=setup.judge, name=run.judge.name, options={"backend": "baseline", **run.judge.own()})


def budget_of(run: RunConfig) -> RunBudget:
    """Return the budget of the whole run."""
    return RunBudget(max_tokens=run.max_run_tokens, max_seconds=run.max_run_seconds, max_cost=run.max_cost)


def code_of_all(codes: Sequence[int]) -> int:
    """Return the exit code of several judges: an interruption's; else theirs if it is the same; else 3 (some failed)."""
    stopped = [code for code in codes if code in (5, 130)]
    if stopped:
        return stopped[0]
    return codes[0] if len(set(codes)) == 1 else 3


def exit_code(outcome: Outcome, *, tolerated: float) -> int:
    """Return the exit code of one judge.

    0 within tolerance; 1 nothing could be judged, or the backend refuses all; 3 too many failures, samples that the
    protocol could not score included; 5 stopped by a budget; 130 interrupted.
    """
    if outcome.interrupted:
        return 5 if outcome.ledger.reason else 130
    if outcome.asked in (outcome.unusable, outcome.failed) or (outcome.ledger.refused and outcome.failed):
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
