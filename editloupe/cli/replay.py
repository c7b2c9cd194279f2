"""`editloupe replay`: a run's tasks once more from their traces, model and tools each recorded or live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated

from typer import Option

from editloupe.agent.recorder import Side
from editloupe.backends.base import open_backend
from editloupe.cli.options import AsJson, CriterionName, LangSmith, RunFolder, TrustRun, finite
from editloupe.cli.output import note, out, print_json, say, status, table, tell_traces, warn
from editloupe.cli.recorded import findings_of, run_toolbox
from editloupe.errors import ConfigError
from editloupe.figures import render
from editloupe.figures.flips import Flips, fixed_set, flips
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replay, Replayed, exit_code
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust

_SHOWN = 20


def replay(
    run: RunFolder,
    sample: Annotated[str | None, Option(help="Only this sample: an id, or EDITOR/ID.")] = None,
    criterion: CriterionName = None,
    model: Annotated[Side, Option(help="recorded: the replies of the traces. live: the model is asked.")] = "recorded",
    tools: Annotated[Side, Option("--observations", help="recorded: those of the traces. live: tools run.")] = "recorded",
    backend: Annotated[str | None, Option(help="Who is asked live. Default: the recorded judge.")] = None,
    samples: Annotated[
        int | None, Option(min=1, help="With --model live: so many samples, always the same ones of a run.")
    ] = None,
    fail_above: Annotated[
        float | None,
        Option(
            min=0, max=1, callback=finite, help="With --model live: exit with 4 where a larger share of answers flipped."
        ),
    ] = None,
    concurrency: Annotated[int, Option(min=1, max=1024, help="Tasks at once, where something is live.")] = 1,
    trust_run: TrustRun = False,
    langsmith: LangSmith = False,
    as_json: AsJson = False,
) -> int:
    """Replay a run from its traces. Recorded model with live tools tells if tools have drifted (exit code 4)."""
    asks = model == "live"
    if backend is not None and not asks:
        raise ConfigError("--backend is asked only with --model live")
    if model != "live" and (samples is not None or fail_above is not None):
        raise ConfigError("--samples and --fail-above go with --model live")
    tell_traces(langsmith and asks)
    # What is done live is written beside the run.
    with closing(RunStore.edit(run) if asks else RunStore.read(run)) as store:
        store.refuse_rescored()
        findings = findings_of(store, sample=sample, criterion=criterion)
        if samples is not None:
            keys = fixed_set(findings, samples)
            findings = [f for f in findings if f.about.key in keys and not f.repeat]
        trust = Trust(source=store.folder, whole=trust_run, tell=note)
        done: list[Replayed] = []
        with status("replaying", hidden=as_json) as line:
            for one in _replayed(store, trust, findings, model, tools, backend, concurrency, langsmith):
                done.append(one)
                if len(done) % 10 == 0:
                    line.update(f"replaying, {len(done):,} of {len(findings):,} tasks")
    if not done:
        raise ConfigError(f"{run}: nothing to replay: no answer of a model has a trace")
    found = flips(done, store.samples, store.folder) if model == "live" else None
    if as_json:
        for one in done:
            print_json(one.to_json())
        if found is not None:
            print_json({"event": "flips", **found.to_json()})
    else:
        _report(done, store, f"{model} model, {tools} tools", untraced=sum(f.trace is None for f in findings))
        if found is not None:
            _flipped(found)
    warn(store.problems)
    code = exit_code(done, live_model=asks)
    if found is None or fail_above is None or (found.highest is not None and found.highest <= fail_above):
        return code
    if not as_json:
        changed = "The judge has changed by more than --fail-above allows."
        say("Nothing was judged, so that --fail-above cannot be held." if found.highest is None else changed, "bold red")
    return 4


def _flipped(found: Flips) -> None:
    out().print(render.terminal(found.table()))
    for status_, count in found.not_judged_now.items():
        say(f"  {count} without an answer now: {status_}")
    say(found.models, "bold yellow" if found.model_changed else "")


def _replayed(
    store: RunStore,
    trust: Trust,
    findings: Sequence[Finding],
    model: Side,
    tools: Side,
    backend: str | None,
    concurrency: int,
    langsmith: bool,
) -> Iterator[Replayed]:
    toolbox = run_toolbox(store, trust) if tools == "live" else None
    if toolbox is not None:
        toolbox.prepare()
    judges = store.info.get("judges")
    assert isinstance(judges, dict)
    for judge_id in dict.fromkeys(f.judge_id for f in findings):
        mine = [f for f in findings if f.judge_id == judge_id]
        try:
            judge = JudgeSpec.from_json(judges.get(judge_id))
        except ValueError as error:
            raise ConfigError(f"{store.folder / 'run.json'}: the judge {judge_id} is not of the expected shape") from error
        asked = model == "live" and judge.kind == "lmm"
        opened = open_backend(backend or trust.backend(judge.backend)) if asked else None
        live = Live(backend=opened, toolbox=toolbox, langsmith=langsmith)
        live.check(judge)
        replay = Replay(folder=store.folder, live=live, model=model, tools=tools, run=store.identity)
        yield from replay.tasks(mine, concurrency=concurrency)


def _report(done: Sequence[Replayed], store: RunStore, how: str, *, untraced: int) -> None:
    judges = store.judge_names()
    several = len({one.recorded.judge_id for one in done if one.recorded is not None}) > 1
    counts = Counter(one.verdict for one in done)
    verdicts = ", ".join(f"{n} {_WORDS[verdict]}" for verdict, n in counts.items())
    if any(one.compared for one in done):
        _tools_table(done)
    changed = {name: v for one in done for name, v in (one.versions or {}).items()}
    for name, (then, now) in changed.items():
        say(f"{name} was recorded as version {then!r} and is {now!r} here.")
    bad = [one for one in done if one.verdict != "same" or any(c.verdict == "not compared" for c in one.compared)]
    for one in bad[:_SHOWN]:
        who = f", {judges.get(one.recorded.judge_id)}" if several and one.recorded is not None else ""
        about = f"{one.about}, {one.metric}{who}"
        say(f"\n{about}: {_WORDS[one.verdict]}", "bold")
        if one.message:
            say(f"  {one.message}")
        for compared in one.compared:
            if compared.verdict in ("drift", "not compared"):
                say(f"  step {compared.step}, {compared.tool}: {compared.verdict}", "yellow")
                for line in compared.told:
                    say(f"    {line}")
        if one.trace is not None:
            say(f"  written: {one.trace}")
    if len(bad) > _SHOWN:
        say(f"\n… and {len(bad) - _SHOWN} more; --json lists all.")
    warn(problem for one in done for problem in one.problems if problem != one.message)
    skipped = f"; {untraced} findings have no trace" if untraced else ""
    say(f"\nReplayed {len(done)} tasks of {store.folder} ({how}): {verdicts or 'none'}{skipped}.")


_WORDS = {
    "same": "as recorded",
    "differs": "came out otherwise",
    "drift": "with drifted tools",
    "miss": "not in the recording",
    "damaged": "could not be replayed",
}


def _tools_table(done: Sequence[Replayed]) -> None:
    """One row a tool: calls, how they compare, and the worst that was measured."""
    rows: list[Sequence[str]] = []
    found = [compared for one in done for compared in one.compared]
    for tool in dict.fromkeys(c.tool for c in found):
        mine = [c for c in found if c.tool == tool]
        counts = Counter(c.verdict for c in mine)
        worst = []
        if differing := [c.max_abs for c in mine if c.max_abs is not None]:
            worst.append(f"pixel {max(differing)} of 255")
        if decibels := [c.psnr_db for c in mine if c.psnr_db is not None]:
            worst.append(f"PSNR {min(decibels):.1f} dB")
        if (iou := min(c.iou for c in mine)) < 1:
            worst.append(f"IoU {iou:.3f}")
        if (text := max(c.text for c in mine)) > 0:
            worst.append(f"text {text:.1%}")
        columns = [str(counts[v]) for v in ("identical", "within", "drift", "not compared")]
        rows.append((tool, str(len(mine)), *columns, ", ".join(worst) or "–"))
    numbers = ("Calls", "Identical", "Within tolerance", "Drifted", "Not compared")
    table("Tool", *numbers, "Worst", rows=rows, right=numbers, title="Observations made again, against the recorded ones")
