"""`editloupe retry`: judge again what could not be judged."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from typer import Option

from editloupe.cli.judge import judge_all
from editloupe.cli.options import AllJudges, AsJson, LangSmith, RunFolder, TrustRun, words
from editloupe.cli.output import note
from editloupe.cli.recorded import recorded_runs
from editloupe.errors import ConfigError, UnknownPlugin
from editloupe.figures.judged import why_empty
from editloupe.findings import FAILURES, PENDING
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust


def retry(
    run_folder: RunFolder,
    status: Annotated[
        str | None,
        Option(
            help="Also retry these statuses (comma-separated). Failures of network, server and files are always retried."
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        Option(metavar="URI", help="A backend of the run that may be asked at the address it has; may be repeated."),
    ] = None,
    trust_run: TrustRun = False,
    langsmith: LangSmith = False,
    full: AllJudges = False,
    as_json: AsJson = False,
) -> int:
    """Judge the failed findings of a run again. Verdicts that stand are kept."""
    chosen = frozenset(words(status) or ())
    if unknown := sorted(chosen - FAILURES):
        raise ConfigError(f"--status {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    store = RunStore.read(run_folder)
    if not store.info.get("judges"):
        raise ConfigError(f"nobody was asked, so that there is nothing to ask again: {why_empty(store)}")
    asked = {"limit": None, "sample": (*store.samples, *store.rejected), "langsmith": langsmith}
    trust = Trust(
        source=run_folder,
        whole=trust_run,
        named=backend or (),
        # A remark on several judges is made once.
        tell=cache(note),
    )
    runs = [trust.run(run.model_copy(update=asked)) for run in recorded_runs(run_folder)]
    try:
        ids = {open_setup(run).judge.id for run in runs}
    except UnknownPlugin as error:
        if error.group != "protocol":
            raise
        raise ConfigError(f"{run_folder} was judged by a protocol that is not installed here: {error}") from error
    for name in (name for id_, name in store.judge_names().items() if id_ not in ids):
        note(f"warning: {name} is left out: how it was asked is not recorded. Name it again: editloupe judge … --backend")
    return judge_all(runs, run_folder, redo=PENDING | chosen, as_json=as_json, full=full)
