"""`editloupe replay`: a run's tasks once more from their traces; forks and new rubrics too."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import editloupe
from editloupe.agent.recorder import Side
from editloupe.backends.base import open_backend
from editloupe.cli.options import CriterionName, JudgeName, RepeatNumber, RunFolder, SampleName, TrustRun, opt
from editloupe.cli.output import Form, many, note, print_json, say, show_tables, status, warn
from editloupe.cli.recorded import findings_of, recorded_runs, run_toolbox
from editloupe.config import pairs
from editloupe.errors import ConfigError
from editloupe.figures.flips import Flips, fixed_set, flips
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replay, Replayed, exit_code
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.stats.table import Cell, Column, Row, Table, words
from editloupe.tools.base import Toolbox

_SHOWN = 20
_LIVE, _FORK, _SCORE = "With --model live", "Fork", "Score again"


def replay(
    run: RunFolder,
    sample: SampleName = None,
    criterion: CriterionName = None,
    judge: JudgeName = None,
    repeat: RepeatNumber = None,
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
    options: Annotated[list[str] | None, opt("--set", "NAME=VALUE", "Another option of the protocol.", _SCORE)] = None,
    out_dir: Annotated[Path | None, opt("--out", "DIR", "Leave RUN as it is and write a new run here.")] = None,
    trust: TrustRun = False,
    form: Form = "table",
) -> int:
    """Replay a run from its traces, ask its judge again, go on from a step, or score by another rubric.

    Exit code 4: with recorded replies an answer or an observation came out otherwise; with --fail-above, too many did.

    Examples:

    \b
    editloupe replay RUN --observations live
    editloupe replay RUN --model live --limit 50 --fail-above 0.1
    editloupe replay RUN SAMPLE --criterion if --at 2 --backend openai/gpt-4.1
    editloupe replay RUN --rubric mine.toml --out rescored
    """
    changes: dict[str, Any] = {**pairs(options or [], "--set"), **({} if rubric is None else {"rubric": rubric})}
    live = model == "live" or at is not None
    for needs, given, wanting in (
        ("--at STEP", at is not None, {"--add-instruction": hint}),
        ("--model live", model == "live", {"--limit": limit, "--fail-above": fail_above}),
        ("--model live or --at STEP", live, {"--backend": backend}),
        ("--model live, --at STEP or --rubric", live or bool(changes), {"--out": out_dir}),
    ):
        if not given and (named := [name for name, value in wanting.items() if value is not None]):
            raise ConfigError(f"{', '.join(named)}: only with {needs}")
    if (at is not None) + (model == "live") + bool(changes) > 1:
        raise ConfigError("--model live, --at STEP and --rubric are three ways to use a recording; give one of them")
    chosen: dict[str, Any] = {"sample": sample, "criterion": criterion, "judge": judge, "repeat": repeat}
    if changes:
        from editloupe.cli.rescoring import score_again

        return score_again(run, changes, chosen, out_dir)
    place = _writable(run, out_dir) if live else run
    if at is not None:
        from editloupe.cli.forking import go_on

        return go_on(place, chosen, at=at, backend=backend, hint=hint, trusted=trust)
    # What is done live is written beside the run.
    with closing(RunStore.edit(place) if live else RunStore.read(place)) as store:
        store.refuse_rescored()
        findings = findings_of(store, **chosen)
        if limit is not None:
            keys = fixed_set(findings, limit)
            findings = [f for f in findings if f.about.key in keys and not f.repeat]
        trusted = Trust(source=store.folder, whole=trust, tell=note)
        with status("replaying", hidden=form == "json"):
            done = list(_replayed(store, trusted, findings, model, observations, backend))
    if not done:
        raise ConfigError(f"{run}: nothing to replay: no answer of a model has a trace")
    found = flips(done, store.samples, store.folder) if model == "live" else None
    if form == "json":
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
    """Return the run to write in: a copy in `out`, or in a temporary folder if the run is part of the package."""
    shipped = Path(editloupe.__file__).resolve().parent
    if out is None and shipped not in run.resolve().parents:
        return run
    RunStore.read_info(run)
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="editloupe-")) / run.name
        note(f"{run} came with editloupe and stays as it is; what is new is written to {out}. --out DIR chooses the place.")
    elif out.exists():
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


_WORDS = {
    "same": "as recorded",
    "differs": "came out otherwise",
    "drift": "with drifted tools",
    "miss": "not in the recording",
    "damaged": "could not be replayed",
}


def _report(done: Sequence[Replayed], found: Flips | None, store: RunStore, how: str) -> None:
    tools = [_tools_table(done)] if any(one.compared for one in done) else []
    show_tables([*tools, *([] if found is None else [found.table()])], choose="take --format json")
    bad = [one for one in done if one.verdict != "same" or any(c.verdict == "not compared" for c in one.compared)]
    names = store.judge_names()
    for one in bad[:_SHOWN]:
        who = f", {names.get(one.recorded.judge_id)}" if len(names) > 1 and one.recorded is not None else ""
        say(f"\n{one.about}, {one.metric}{who}: {_WORDS[one.verdict]}", "bold")
        told = [one.message] if one.message else []
        for compared in one.compared:
            if compared.verdict in ("drift", "not compared"):
                told += [f"step {compared.step}, {compared.tool}: {compared.verdict}", *(f"  {t}" for t in compared.told)]
        for text in (*told, *([f"written: {one.trace}"] if one.trace is not None else [])):
            say(f"  {text}")
    if len(bad) > _SHOWN:
        say(f"\n… and {len(bad) - _SHOWN} more; --format json lists all.")
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
    rows: list[Row] = []
    found = [compared for one in done for compared in one.compared]
    for tool in dict.fromkeys(c.tool for c in found):
        mine = [c for c in found if c.tool == tool]
        pixels, decibels = (
            [c.max_abs for c in mine if c.max_abs is not None],
            [c.psnr_db for c in mine if c.psnr_db is not None],
        )
        iou, text = min(c.iou for c in mine), max(c.text for c in mine)
        worst = [f"pixel {max(pixels)} of 255"] if pixels else []
        worst += [f"PSNR {min(decibels):.1f} dB"] if decibels else []
        worst += [f"IoU {iou:.3f}"] * (iou < 1) + [f"text {text:.1%}"] * (text > 0)
        counts = Counter(c.verdict for c in mine)
        figures = {"calls": len(mine), **{v.replace(" ", "_"): counts[v] for v in _COMPARED}}
        cells = (Cell(name=name, value=count) for name, count in figures.items())
        rows.append(Row(cells=(words(tool, name="tool"), *cells, words(", ".join(worst) or "–", name="worst"))))
    head = ("Tool", "Calls", *_COMPARED.values())
    columns = (*(Column(title=text, words=text == "Tool") for text in head), Column(title="Worst", words=True))
    return Table(name="tools", title="Observations: live against recorded", columns=columns, rows=tuple(rows))


_COMPARED: Final[Mapping[Any, str]] = {
    "identical": "Identical",
    "within": "Within tolerance",
    "drift": "Drifted",
    "not compared": "Not compared",
}
