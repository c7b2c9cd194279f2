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
from editloupe.findings import Finding
from editloupe.runs.recording import outcome
from editloupe.runs.replay import fork as continued
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.values import Json


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
        finding = _one(store, chosen)
        trust = Trust(source=store.folder, whole=trusted, tell=note)
        forked = continued(
            store.folder,
            str(finding.trace),
            at=at,
            backend=open_backend(backend or trust.backend(store.judges()[finding.judge_id])),
            toolbox=run_toolbox(store, trust),
            instruction=said,
        )
    finding, recorded, step = forked.finding, forked.recorded, forked.parent.step
    if chosen_form() == "table":
        say(f"Kept {many(step, 'step') if step else 'the question'} of {forked.parent.trace}")
        say(f"Parent: {'not finished' if recorded is None else recorded.answer or recorded.status}")
        say(f"Fork:   {finding.answer or f'{finding.status}: {finding.reason}'}")
        say(f"Look at it: {command('view', run)}")
    else:
        then: Json = None if recorded is None else outcome(recorded)
        parent = forked.parent.to_json()
        print_json({"trace": forked.trace, "parent": parent, "recorded": then, "finding": finding.to_json()})
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
