"""`editloupe canary`: ask a small fixed set of a run again, live, and say whether the judge has changed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.cli.judge_report import spent_message
from editloupe.cli.options import AsJson, JudgeName, LangSmith, TrustRun, finite, settled
from editloupe.cli.output import many, note, out, print_json, say, say_first, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.cli.recorded import one_judge, recorded_runs
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import BackendError, ConfigError
from editloupe.reports import canary as report
from editloupe.reports import render
from editloupe.reports.canary import Canary, Flip
from editloupe.runs.budget import RunBudget
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust


def canary(
    run: Annotated[Path, Argument(metavar="RUN", help="The run whose verdicts are the measure.")],
    backend: Annotated[
        str | None, Option(help="Whom to ask: provider/model. Default: the judge that the run was judged by.")
    ] = None,
    judge: JudgeName = None,
    samples: Annotated[int, Option(min=1, help="How many samples are asked again; always the same ones.")] = 20,
    fail_above: Annotated[
        float | None, Option(min=0, max=1, callback=finite, help="Exit with 4 where a larger share of labels has flipped.")
    ] = None,
    out_dir: Annotated[Path | None, Option("--out", help="For the new verdicts. Default: RUN/canary/TIME.")] = None,
    trust_run: TrustRun = False,
    langsmith: LangSmith = False,
    as_json: AsJson = False,
) -> int:
    """Judge a small fixed set of a run again: which share of labels flipped, and does another model answer?"""
    recorded = one_judge(RunStore.read(run), judge)
    keys = report.fixed_set(recorded.findings, samples)
    if not keys:
        raise ConfigError(f"{run}: {recorded.name} gave no answer, so there is nothing to compare with")
    trust = Trust(source=run, whole=trust_run, named=[backend] if backend else (), tell=note)
    asked = settled(trust.run(_run_of(run, recorded.title or recorded.backend, recorded.backend, backend)))
    tell_traces(langsmith)
    folder = out_dir or run / "canary" / datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    # Of repeats only the first counts, so the others are not asked.
    setup = open_setup(
        asked.model_copy(update={"repeats": 1, "limit": None, "sample": tuple(keys), "langsmith": langsmith})
    )
    if not as_json:
        note(f"Asking {setup.judge.backend} again about {many(len(keys), 'sample')} of {run}, into {folder}")
    with stoppable() as stop, progress(hidden=as_json) as listener:
        outcome = drive(setup, folder, budget=RunBudget(), listener=listener, stop=stop)
    if outcome.interrupted:
        raise ConfigError("stopped before all was asked; a part is not compared")
    if outcome.ledger.refused and outcome.failed:
        raise BackendError(f"a part is not compared, and not all was asked: {outcome.ledger.refused}")
    found = report.canary(recorded.name, recorded.findings, outcome.findings, folder_before=run, folder_now=folder)
    code = 4 if fail_above is not None and (found.highest is None or found.highest > fail_above) else 0
    if as_json:
        print_json({**found.to_json(), "run": str(run), "asked_in": str(folder), "exit": code})
        return code
    out().print(render.terminal(report.table(found, {c.id: c.short for c in recorded.metrics.metrics})))
    say_first([f"  {_about(flip)}: {flip.before} → {flip.now}" for flip in found.flips], 10)
    for status, count in found.not_judged_now.items():
        say(f"  {count} without an answer now: {status}")
    _models(found)
    if outcome.ledger.usage.total:
        say(spent_message(outcome.ledger, setup.backend))
    if code:
        say("The judge has changed by more than --fail-above allows.", "bold red")
    return code


def _about(flip: Flip) -> str:
    return ", ".join(filter(None, (flip.sample, flip.criterion, f"turn {flip.turn}" if flip.turn else "", flip.part)))


def _models(found: Canary) -> None:
    before, now = (", ".join(names) for names in (found.models_before, found.models_now))
    if found.nobody_answered:
        then = f" Then it was {before}." if before else ""
        say(f"Nobody answered now.{then}", "bold yellow")
    elif before or now:
        models = f"Answered then by {before or 'an unnamed model'}, now by {now or 'an unnamed model'}"
        same = "the same" if now == before else "no other than then" if now else "whether it is the same is not known"
        what = "ANOTHER model or version" if found.model_changed else same
        say(f"{models}: {what}.", "bold yellow" if found.model_changed else "")


def _run_of(folder: Path, title: str, uri: str, backend: str | None) -> RunConfig:
    """The run as a judge of it was asked, or with another backend in its place."""
    known = recorded_runs(folder)
    if backend is not None:
        return known[0].with_judge(JudgeConfig.make(backend=backend))
    for one in known:
        if one.judge.title in (title, uri) or uri.partition("@")[0] == one.judge.title.partition("?")[0]:
            return one
    if len(known) == 1:
        return known[0]
    raise ConfigError(f"{folder}: how {title} was asked is not recorded; name it with --backend")
