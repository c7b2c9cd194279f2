"""`editloupe retry`: judge again what could not be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.judge import judge_all, opened
from editloupe.cli.options import AsJson, RunFolder, read_config, words
from editloupe.cli.output import note
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, UnknownPlugin
from editloupe.findings import FAILURES, PENDING


def retry(
    run_folder: RunFolder,
    status: Annotated[
        str | None,
        typer.Option(
            help="Also retry these statuses (comma-separated). Failures of network, server and files are always retried."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Judge the failed findings of a run again. Verdicts that stand are kept."""
    from editloupe.runs.store import RunStore

    chosen = frozenset(words(status) or ())
    if unknown := sorted(chosen - FAILURES):
        raise ConfigError(f"--status {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    store = RunStore.read(run_folder)
    asked = {"limit": None, "sample": (*store.samples, *store.rejected)}
    runs = [run.model_copy(update=asked) for run in recorded(run_folder)]
    try:
        ids = {opened(run).judge.id for run in runs}
    except UnknownPlugin as error:
        if error.group != "protocol":
            raise
        raise ConfigError(f"{run_folder} was judged by a protocol that is not installed here: {error}") from error
    for name in (name for id_, name in store.judge_names().items() if id_ not in ids):
        note(f"warning: {name} is left out: how it was asked is not recorded. Name it again: editloupe judge … --backend")
    return judge_all(runs, run_folder, redo=PENDING | chosen, as_json=as_json)


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
