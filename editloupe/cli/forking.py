"""`editloupe replay RUN SAMPLE --at STEP`: keep a verdict's steps up to one, change something there, and go on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from editloupe.backends.base import open_backend
from editloupe.cli.options import read_text
from editloupe.cli.output import chosen_form, command, many, note, print_json, say
from editloupe.cli.recorded import findings_of, run_toolbox
from editloupe.errors import ConfigError
from editloupe.runs.recording import outcome
from editloupe.runs.replay import Forked
from editloupe.runs.replay import fork as continued
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.values import Json, sample_key


def go_on(
    run: Path,
    chosen: Mapping[str, Any],
    *,
    at: int,
    backend: str | None,
    hint: Path | None,
    trusted: bool,
) -> int:
    """Fork a verdict at a step and return the exit code.   chosen: which finding, as `findings_of` takes it."""
    if chosen["sample"] is None:
        raise ConfigError("--at STEP goes on with one sample's verdict: name the sample behind the run")
    said = None if hint is None else read_text(hint, "--add-instruction", "the words")
    with closing(RunStore.edit(run)) as store:
        store.refuse_rescored()
        name, uri = _trace(store, chosen)
        trust = Trust(source=store.folder, whole=trusted, tell=note)
        forked = continued(
            store.folder,
            name,
            at=at,
            backend=open_backend(backend or trust.backend(uri)),
            toolbox=run_toolbox(store, trust),
            instruction=said,
        )
    _report(forked, run)
    return 0 if forked.finding.status == "ok" else 1


def _trace(store: RunStore, chosen: Mapping[str, Any]) -> tuple[str, str]:
    """(path of the trace inside the run, the judge's URI). Raises ConfigError unless it is exactly one."""
    sample, uris, names = chosen["sample"], store.judges(), store.judge_names()
    found = findings_of(store, **chosen)
    traced = [f for f in found if f.trace is not None and f.judge_id in uris]
    if not traced:
        why = f"{found[0].status}: {found[0].reason}"
        raise ConfigError(f"{store.folder}: sample {sample!r} has no trace of a judge: {why}")
    if len(traced) > 1:
        repeated = any(f.repeat for f in traced)
        listed = "; ".join(
            f"{sample_key(f.editor, f.sample_id)}, {f.metric}, judge {names.get(f.judge_id, '?')} ({f.judge_id})"
            + (f", repeat {f.repeat + 1}" if repeated else "")
            for f in traced
        )
        options = "--criterion, --judge or --repeat" if repeated else "--criterion or --judge"
        raise ConfigError(f"{sample!r} has {len(traced)} traces; choose one with {options}: {listed}")
    (finding,) = traced
    return str(finding.trace), uris.get(finding.judge_id, "")


def _report(forked: Forked, run: Path) -> None:
    finding, recorded, step = forked.finding, forked.recorded, forked.parent.step
    if chosen_form() != "table":
        then: Json = None if recorded is None else outcome(recorded)
        parent = forked.parent.to_json()
        print_json({"trace": forked.trace, "parent": parent, "recorded": then, "finding": finding.to_json()})
        return
    say(f"Kept {many(step, 'step') if step else 'the question'} of {forked.parent.trace}")
    say(f"Parent: {'not finished' if recorded is None else recorded.answer or recorded.status}")
    say(f"Fork:   {finding.answer or f'{finding.status}: {finding.reason}'}")
    say(f"Look at it: {command('view', run)}")
