"""`editloupe fork`: keep a verdict's steps up to one, change something there, and see where it leads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.backends.base import open_backend
from editloupe.cli.options import (
    AsJson,
    CriterionName,
    JudgeName,
    LangSmith,
    RepeatNumber,
    RunFolder,
    TrustRun,
    read_text,
    words,
)
from editloupe.cli.output import command, many, note, print_json, say, tell_traces
from editloupe.cli.recorded import findings_of, run_toolbox
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.runs.lineage import FORKS, family
from editloupe.runs.replay import Forked
from editloupe.runs.replay import fork as go
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.traces.read import read_trace
from editloupe.values import Json, sample_key


def fork(
    run: RunFolder,
    sample: Annotated[str, Argument(help="A sample id, or EDITOR/ID.")],
    at: Annotated[int, Option("--at", min=0, help="Steps to keep, as show numbers them; 0 keeps the question alone.")],
    criterion: CriterionName = None,
    judge: JudgeName = None,
    repeat: RepeatNumber = None,
    of: Annotated[int | None, Option(min=1, help="Continue this fork, as show numbers them.")] = None,
    backend: Annotated[str | None, Option(help="Who goes on. Default: who judged.")] = None,
    add_instruction: Annotated[Path | None, Option(help="A text file: said to the model after that step.")] = None,
    tools: Annotated[str | None, Option(help='Comma-separated tools from then on; "none" for none.')] = None,
    trust_run: TrustRun = False,
    langsmith: LangSmith = False,
    as_json: AsJson = False,
) -> int:
    """Go on from a step of a verdict with another backbone, instruction or set of tools."""
    chosen = None if tools is None else () if tools.strip() == "none" else words(tools)
    said = None if add_instruction is None else read_text(add_instruction, "--add-instruction", "the words")
    tell_traces(langsmith)
    with closing(RunStore.edit(run)) as store:
        store.refuse_rescored()
        name, uri = _trace(store, sample, criterion, judge, repeat, of)
        trust = Trust(source=store.folder, whole=trust_run, tell=note)
        forked = go(
            store.folder,
            name,
            at=at,
            backend=open_backend(backend or trust.backend(uri)),
            toolbox=run_toolbox(store, trust, chosen),
            instruction=said,
            tools=chosen,
            langsmith=langsmith,
        )
    _report(forked, run, sample, as_json=as_json)
    return 0 if forked.finding.status == "ok" else 1


def _trace(
    store: RunStore, sample: str, criterion: str | None, judge: str | None, repeat: int | None, of: int | None
) -> tuple[str, str]:
    """(path of the trace inside the run, the judge's URI). Raises ConfigError unless it is exactly one."""
    uris, names = store.judges(), store.judge_names()
    found = findings_of(store, sample=sample, criterion=criterion, judge=judge, repeat=repeat)
    traced = [f for f in found if f.trace is not None and f.judge_id in uris]
    if not traced:
        why = f"{found[0].status}: {found[0].reason}"
        raise ConfigError(f"{store.folder}: sample {sample!r} has no trace of a judge: {why}")
    if len(traced) > 1:
        listed = "; ".join(
            f"{sample_key(f.editor, f.sample_id)}, {f.metric}, judge {names.get(f.judge_id, '?')} ({f.judge_id})"
            + (f", repeat {f.repeat + 1}" if any(g.repeat for g in traced) else "")
            for f in traced
        )
        options = "--criterion, --judge or --repeat" if any(f.repeat for f in traced) else "--criterion or --judge"
        raise ConfigError(f"{sample!r} has {len(traced)} traces; choose one with {options}: {listed}")
    (finding,) = traced
    if of is None:
        return str(finding.trace), uris.get(finding.judge_id, "")
    stem = family(str(finding.trace))
    name = f"{FORKS}/{stem[:2]}/{stem}.{of}.jsonl"
    if not (store.folder / name).exists():
        raise ConfigError(f"{store.folder}: sample {sample!r} has no fork {of}; editloupe show draws those that there are")
    return name, str(read_trace(store.folder / name).header.judge.get("backend"))


def _report(forked: Forked, run: Path, sample: str, *, as_json: bool) -> None:
    finding, recorded = forked.finding, forked.recorded
    if as_json:
        data: dict[str, Json] = {
            "trace": forked.trace,
            "parent": forked.parent.to_json(),
            "recorded": None
            if recorded is None
            else {"status": recorded.status, "label": recorded.label, "value": recorded.value},
            "finding": finding.to_json(),
        }
        print_json(data)
        return
    then = "not finished" if recorded is None else _said(recorded) or recorded.status
    now = _said(finding) or f"{finding.status}: {finding.reason}"
    step = forked.parent.step
    say(f"Kept {many(step, 'step') if step else 'the question'} of {forked.parent.trace}")
    say(f"Parent: {then}\nFork:   {now}")
    say(f"Look at it: {command('show', run, sample)}")


def _said(finding: Finding) -> str:
    return "" if finding.answer is None else str(finding.answer)
