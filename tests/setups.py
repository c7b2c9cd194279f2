"""Setups and runs in one call, for tests that need a judge and not a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from editloupe.chat import Sampling
from editloupe.config import SHORTHANDS, RunConfig
from editloupe.data.samples import Loaded
from editloupe.figures.closing import MeanOfAll, means_of_all
from editloupe.figures.frame import score_frame
from editloupe.protocols.repeats import Repeats
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import Setup, open_setup
from editloupe.tasks import Budget
from editloupe.tools.settings import ToolSettings

OF_JUDGE = ("backend", "name", "tool_protocol", "answers", "remind_answers")
OF_INVOCATION = ("concurrency", "max_connections")
OF_DATA = ("edited", "format", "fields", "limit", "sample")


def open_with(
    *,
    budget: Budget | None = None,
    sampling: Sampling | None = None,
    options: dict[str, Any] | None = None,
    weights: ToolSettings | None = None,
    repeats: Repeats | None = None,
    **given: Any,
) -> Setup:
    """Open a setup by names of the judge, of the protocol (mode, rubric, criteria, prompt) and of the run."""
    judge = {name: given.pop(name) for name in OF_JUDGE if name in given}
    if sampling is not None:
        judge |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "reply_tokens": sampling.max_tokens,
        }
    if weights is not None:
        given |= vars(weights)
    if repeats is not None:
        given |= {"repeats": repeats.count, "aggregate_repeats": repeats.by, "abstain_above": repeats.abstain_above}
    named = {name: given.pop(name) for name in SHORTHANDS if given.get(name) is not None}
    limits = {} if budget is None else dict(vars(budget))
    config = RunConfig.make(judge=judge, option={**(options or {}), **named}, **limits, **given)
    return open_setup(config)


def means_of(outcome: Outcome) -> dict[str, MeanOfAll]:
    """Return the mean of each metric over all samples of a run."""
    return {mean.metric: mean for mean in means_of_all(outcome.setup.protocol, score_frame(outcome.scores))}


def run_over(setup: Setup, path: Path | Loaded, out: Path, **given: Any) -> Outcome:
    """Judge a folder, or samples at hand, into `out`."""
    data = {name: given.pop(name) for name in (*OF_DATA, *OF_INVOCATION) if name in given}
    if not isinstance(path, Loaded):
        data["path"] = path
    changed = Setup(
        config=setup.config.model_copy(update=data),
        protocol=setup.protocol,
        respondents=setup.respondents,
        toolbox=setup.toolbox,
        spec=setup.spec,
    )
    return drive(changed, out, loaded=path if isinstance(path, Loaded) else None, **given)
