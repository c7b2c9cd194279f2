"""`editloupe retry`: judge again what could not be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.judge import judge_all, opened
from editloupe.cli.options import read_config, words
from editloupe.cli.output import note
from editloupe.config import RunConfig
from editloupe.errors import ConfigError
from editloupe.findings import FAILURES, PENDING


def retry(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    status: Annotated[
        str | None,
        typer.Option(
            help="Also retry these statuses (comma-separated). Failures of network, server and files are always retried."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")] = False,
) -> int:
    """Judge the failed findings of a run again. Verdicts that stand are kept."""
    from editloupe.runs.store import RunStore

    if not (run_folder / "run.json").exists():
        raise ConfigError(f"{run_folder} is no run folder: it has no run.json")
    chosen = words(status)
    unknown = sorted(set(chosen or ()) - FAILURES)
    if unknown:
        raise ConfigError(f"--status {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    store = RunStore.read(run_folder)
    asked = {"limit": None, "sample": (*store.samples, *store.rejected)}
    runs = [run.model_copy(update=asked) for run in recorded(run_folder)]
    ids = {opened(run).judge.id for run in runs}
    for name in (name for id_, name in store.judge_names().items() if id_ not in ids):
        note(f"warning: {name} is left out: how it was asked is not recorded. Name it again: editloupe judge … --backend")
    return judge_all(runs, run_folder, redo=PENDING | frozenset(chosen or ()), as_json=json_)


def recorded(folder: Path) -> list[RunConfig]:
    """Return the run that a run folder's config.yaml describes, once for each judge. Raises ConfigError."""
    path = folder / "config.yaml"
    try:
        runs = RunConfig.each_judge(read_config(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if runs[0].path is None:
        raise ConfigError(f"{path} names no path; expected the file that editloupe judge wrote")
    return runs
