"""`editloupe replay`: a run's tasks once more from their traces; forks and new rubrics too."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import editloupe
from editloupe.agent.recorder import Side
from editloupe.backends.base import open_backend
from editloupe.cli import options
from editloupe.cli.options import check_company, opt
from editloupe.cli.output import Form, as_json, command, for_programs, many, note, print_json, say, say_first, status, warn
from editloupe.cli.recorded import findings_of, recorded_runs, run_toolbox
from editloupe.cli.tables import show_tables
from editloupe.config import pairs
from editloupe.errors import ConfigError
from editloupe.figures.flips import Flips, fixed_set, flips
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.drift import ObservationDrift
from editloupe.runs.recording import Live, outcome
from editloupe.runs.replay import Replay, Replayed, exit_code, fork
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.stats.table import Cell, Table, listed, words
from editloupe.tools.base import Toolbox

_LIVE, _FORK, _SCORE = "With --model live", "Fork", "Score again"


def replay(
    run: options.RunFolder,
    sample: options.SampleName = None,
    criterion: options.CriterionName = None,
    judge: options.JudgeName = None,
    repeat: options.RepeatNumber = None,
    model: Annotated[Side, opt("--model", None, "The replies: recorded, or live from the model.")] = "recorded",
    observations: Annotated[Side, opt("--observations", None, "The tools' answers: recorded, or live.")] = "recorded",
    backend: Annotated[str | None, opt("--backend", "URI", "Who is asked live. Default: the recorded judge.")] = None,
    limit: Annotated[int | None, opt("--limit", "N", "N samples, always the same ones of a run.", _LIVE, min=1)] = None,
    fail_above: Annotated[
        float | None, opt("--fail-above", "SHARE", "Exit code 4 if more answers changed.", _LIVE, min=0, max=1)
    ] = None,
    at: Annotated[int | None, opt("--at", "STEP", "Keep SAMPLE's first STEP steps, go on live.", _FORK, min=0)] = None,
    hint: Annotated[Path | None, opt("--add-instruction", "FILE", "A text for the model at that step.", _FORK)] = None,
    rubric: Annotated[str | None, opt("--rubric", "NAME|FILE", "Read the recorded answers by this rubric.", _SCORE)] = None,
    sets: Annotated[list[str] | None, opt("--set", "NAME=VALUE", "Another option of the protocol.", _SCORE)] = None,
    out_dir: Annotated[Path | None, opt("--out", "DIR", "Leave RUN as it is and write a new run here.")] = None,
    trust: options.TrustRun = False,
    form: Form = "table",
) -> int:
    """Replay a run from its traces, ask its judge again, go on from a step, or score by another rubric.

    Exit code 4: with recorded replies an answer or an observation came out otherwise; with --fail-above, too many did.

    \b
    editloupe replay RUN --observations live
    editloupe replay RUN --model live --limit 50 --fail-above 0.1
    editloupe replay RUN SAMPLE --criterion if --at 2 --backend openai/gpt-4.1
    editloupe replay RUN --rubric mine.toml --out rescored
    """
    changes: dict[str, Any] = {**pairs(sets or [], "--set"), **({} if rubric is None else {"rubric": rubric})}
    live = model == "live" or at is not None
    check_company(
        ("--at STEP", at is not None, {"--add-instruction": hint}),
        ("--model live", model == "live", {"--limit": limit, "--fail-above": fail_above}),
        ("--model live or --at STEP", live, {"--backend": backend}),
        ("--model live, --at STEP or --rubric", live or bool(changes), {"--out": out_dir}),
        ("a replay, not --at or --rubric", at is None and not changes, {"--observations": observations == "live"}),
    )
    if (at is not None) + (model == "live") + bool(changes) > 1:
        raise ConfigError("--model live, --at STEP and --rubric are three ways to use a recording; give one of them")
    chosen: dict[str, Any] = {"sample": sample, "criterion": criterion, "judge": judge, "repeat": repeat}
    if changes:
        from editloupe.cli.rescoring import score_again

        return score_again(run, changes, chosen, out_dir)
    if live and out_dir is not None:
        # Before the copy is made: what cannot be found leaves none behind.
        with closing(RunStore.read(run)) as store:
            findings_of(store, **chosen)
    place = _writable(run, out_dir) if live else run
    if at is not None:
        return _go_on(place, chosen, at=at, backend=backend, hint=hint, trusted=trust)
    # What is done live is written beside the run.
    with closing(RunStore.edit(place) if live else RunStore.read(place)) as store:
        store.refuse_rescored()
        findings = findings_of(store, **chosen)
        if limit is not None:
            keys = fixed_set(findings, limit)
            findings = [f for f in findings if f.about.key in keys and not f.repeat]
        trusted = Trust(source=store.folder, whole=trust, tell=note)
        with status("replaying", hidden=as_json()):
            done = list(_replayed(store, trusted, findings, model, observations, backend))
    if not done:
        raise ConfigError(f"{run}: nothing to replay: no answer of a model has a trace")
    found = flips(done, store.samples, store.folder) if model == "live" else None
    if as_json():
        for one in done:
            print_json(one.to_json())
        if found is not None:
            print_json({"event": "flips", **found.to_json()})
    else:
        _report(done, found, store, f"{model} model, {observations} tools")
    warn(store.problems)
    code = exit_code(done, live_model=found is not None)
    if found is None or fail_above is None or (found.highest is not None and found.highest <= fail_above):
        return code
    changed = "The judge has changed by more than --fail-above allows."
    say("Nothing was judged, so that --fail-above cannot be held." if found.highest is None else changed, "bold red")
    return 4


def _writable(run: Path, out: Path | None) -> Path:
    """Return the run to write in: a copy, if `out` names a folder for one. Raises ConfigError for a run of the package."""
    if out is None:
        if Path(editloupe.__file__).resolve().parent in run.resolve().parents:
            raise ConfigError(f"{run} came with editloupe and stays as it is; name a folder for what is new: --out DIR")
        return run
    RunStore.read_info(run)
    if out.exists():
        raise ConfigError(f"--out {out} exists already; name a new folder, in which the run is copied and goes on")
    shutil.copytree(run, out, symlinks=True)  # a link stays one, and is refused where the copy is opened
    return out


def _replayed(
    store: RunStore, trust: Trust, findings: Sequence[Finding], model: Side, tools: Side, backend: str | None
) -> Iterator[Replayed]:
    toolbox = run_toolbox(store, trust) if tools == "live" else None
    if toolbox is not None:
        toolbox.prepare()
        _tell_versions(store, toolbox)
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
        live = Live(backend=opened, toolbox=toolbox)
        live.check(judge)
        replay = Replay(folder=store.folder, live=live, run=store.identity)
        at_once = 1
        if opened is not None and (store.folder / "config.yaml").exists():
            at_once = recorded_runs(store.folder)[0].concurrency or 1
        yield from replay.tasks(mine, concurrency=at_once)


def _tell_versions(store: RunStore, toolbox: Toolbox) -> None:
    """Say which tools have another version than those of the run."""
    recorded = store.spec.identity.get("tools")
    for name, now in toolbox.versions().items():
        then = recorded.get(name) if isinstance(recorded, Mapping) else None
        if then not in (None, now):
            note(f"{name} was recorded as version {then!r} and is {now!r} here.")


def _go_on(run: Path, chosen: Mapping[str, Any], *, at: int, backend: str | None, hint: Path | None, trusted: bool) -> int:
    """Keep a verdict's steps up to one, go on from there, and return the exit code.   chosen: as `findings_of` takes it."""
    if chosen["sample"] is None:
        raise ConfigError("--at STEP goes on with one sample's verdict: name the sample behind the run")
    said = None if hint is None else options.read_text(hint, "--add-instruction", "the words")
    with closing(RunStore.edit(run)) as store:
        store.refuse_rescored()
        trace, trust = _one(store, chosen), Trust(source=store.folder, whole=trusted, tell=note)
        asked = open_backend(backend or trust.backend(store.judges()[trace.judge_id]))
        tools = run_toolbox(store, trust)
        forked = fork(store.folder, str(trace.trace), at=at, backend=asked, toolbox=tools, instruction=said)
    finding, recorded, parent = forked.finding, forked.recorded, forked.parent
    if not for_programs():
        say(f"Kept {many(parent.step, 'step') if parent.step else 'the question'} of {parent.trace}")
        say(f"Parent: {'not finished' if recorded is None else recorded.answer or recorded.status}")
        say(f"Fork:   {finding.answer or f'{finding.status}: {finding.reason}'}")
        say(f"Look at it: {command('view', run)}")
    else:
        then = None if recorded is None else outcome(recorded)
        told = {"trace": forked.trace, "parent": parent.to_json(), "recorded": then, "finding": finding.to_json()}
        print_json(told)
    return 0 if finding.status == "ok" else 1


def _one(store: RunStore, chosen: Mapping[str, Any]) -> Finding:
    """Return the one finding of a judge that has a trace. Raises ConfigError for none and for several."""
    found, names = findings_of(store, **chosen), store.judge_names()
    traced = [f for f in found if f.trace is not None and f.judge_id in store.judges()]
    if len(traced) == 1:
        return traced[0]
    if not traced:
        why = f"{found[0].status}: {found[0].reason}"
        raise ConfigError(f"{store.folder}: sample {chosen['sample']!r} has no trace of a judge: {why}")
    listed = "; ".join(f"{f.about.key}, {f.metric}, judge {names[f.judge_id]}, repeat {f.repeat + 1}" for f in traced)
    raise ConfigError(
        f"{chosen['sample']!r} has {len(traced)} traces; choose one with --criterion, --judge or --repeat: {listed}"
    )


_WORDS: Final = {
    "same": "as recorded",
    "differs": "came out otherwise",
    "drift": "with drifted tools",
    "miss": "not in the recording",
    "damaged": "could not be replayed",
}
_COMPARED: Final[Mapping[Any, str]] = {
    "identical": "Identical",
    "within": "Within tolerance",
    "drift": "Drifted",
    "not compared": "Not compared",
}


def _report(done: Sequence[Replayed], found: Flips | None, store: RunStore, how: str) -> None:
    tools = [_tools_table(done)] if any(one.compared for one in done) else []
    show_tables([*tools, *([] if found is None else [found.table()])], choose="take --format json")
    names, lines = store.judge_names(), list[str]()
    for one in done:
        apart = [c for c in one.compared if c.verdict in ("drift", "not compared")]
        if one.verdict == "same" and not apart:
            continue
        who = f", {names.get(one.recorded.judge_id)}" if len(names) > 1 and one.recorded is not None else ""
        told = [one.message] if one.message else []
        for c in apart:
            told += [f"step {c.step}, {c.tool}: {c.verdict}", *(f"  {text}" for text in c.told)]
        told += [] if one.trace is None else [f"written: {one.trace}"]
        lines.append("\n  ".join([f"\n{one.about}, {one.metric}{who}: {_WORDS[one.verdict]}", *told]))
    say_first(lines)
    warn(problem for one in done for problem in one.problems if problem != one.message)
    if found is not None:
        for status_, count in found.not_judged_now.items():
            say(f"  {count} without an answer now: {status_}")
        say(found.models, "bold yellow" if found.model_changed else "")
    counts = Counter(one.verdict for one in done)
    verdicts = ", ".join(f"{n} {_WORDS[verdict]}" for verdict, n in counts.items())
    say(f"\nReplayed {many(len(done), 'task')} of {store.folder} ({how}): {verdicts}.")


def _tools_table(done: Sequence[Replayed]) -> Table:
    """Return a row a tool: its calls, how they compare, and the worst that was measured."""
    by_tool: dict[str, list[ObservationDrift]] = {}
    for compared in (compared for one in done for compared in one.compared):
        by_tool.setdefault(compared.tool, []).append(compared)

    def count(verdict: str) -> Callable[[Sequence[ObservationDrift]], Cell]:
        name = verdict.replace(" ", "_")
        return lambda mine: Cell(name=name, value=sum(c.verdict == verdict for c in mine))

    return listed(
        "tools",
        "Observations: live against recorded",
        by_tool.values(),
        {
            "Tool": lambda mine: words(mine[0].tool, name="tool"),
            "Calls": lambda mine: Cell(name="calls", value=len(mine)),
            **{title: count(verdict) for verdict, title in _COMPARED.items()},
            "Worst": lambda mine: words(_worst(mine), name="worst"),
        },
        keys=lambda mine: {},
    )


def _worst(mine: Sequence[ObservationDrift]) -> str:
    pixels = [c.max_abs for c in mine if c.max_abs is not None]
    decibels = [c.psnr_db for c in mine if c.psnr_db is not None]
    iou, text = min(c.iou for c in mine), max(c.text for c in mine)
    worst = [f"pixel {max(pixels)} of 255"] if pixels else []
    worst += [f"PSNR {min(decibels):.1f} dB"] if decibels else []
    worst += [f"IoU {iou:.3f}"] * (iou < 1) + [f"text {text:.1%}"] * (text > 0)
    return ", ".join(worst) or "–"
