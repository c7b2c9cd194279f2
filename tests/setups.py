"""Setups and runs in one call, for tests that need a judge and not a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from editloupe.chat import Sampling
from editloupe.config import SHORTHANDS, RunConfig
from editloupe.data.samples import Loaded
from editloupe.runs.execute import Outcome, execute
from editloupe.runs.setup import Setup, open_setup
from editloupe.tasks import Budget
from editloupe.tools.settings import ToolSettings

OF_JUDGE = ("backend", "name", "tool_protocol", "constrain_labels")
OF_DATA = ("edited", "format", "fields", "limit", "sample")


def open_with(
    *, budget: Budget | None = None, sampling: Sampling | None = None, options: dict[str, Any] | None = None,
    weights: ToolSettings | None = None, **given: Any
) -> Setup:
    """Open a setup: the judge's own words, the protocol's options (mode, rubric, criteria, prompt) and the run's by name."""
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
    named = {name: given.pop(name) for name in SHORTHANDS if given.get(name) is not None}
    limits = {} if budget is None else dict(vars(budget))
    config = RunConfig.make(judge=judge, option={**(options or {}), **named}, **limits, **given)
    return open_setup(config)


def run_over(setup: Setup, path: Path | Loaded, out: Path, *, concurrency: int | None = None, **given: Any) -> Outcome:
    """Judge a folder, or samples at hand, into `out`."""
    data = {name: given.pop(name) for name in OF_DATA if name in given}
    if not isinstance(path, Loaded):
        data["path"] = path
    update = {**data, **({} if concurrency is None else {"concurrency": concurrency})}
    changed = Setup(
        config=setup.config.model_copy(update=update),
        protocol=setup.protocol,
        respondents=setup.respondents,
        toolbox=setup.toolbox,
        spec=setup.spec,
    )
    return execute(changed, out, loaded=path if isinstance(path, Loaded) else None, **given)
