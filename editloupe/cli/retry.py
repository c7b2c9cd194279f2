"""`editloupe retry`: judge again what could not be judged."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

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
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="URI", help="A backend of the run that may be asked off this machine; may be repeated."),
    ] = None,
    launch: Annotated[bool, typer.Option("--launch", help="Start vllm serve again, where the run did.")] = False,
    launch_args: Annotated[
        list[str] | None, typer.Option(help="Arguments for that vllm serve, as the run had them; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Judge the failed findings of a run again. Verdicts that stand are kept."""
    from editloupe.runs.store import RunStore

    chosen = frozenset(words(status) or ())
    if unknown := sorted(chosen - FAILURES):
        raise ConfigError(f"--status {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    if launch_args and not launch:
        raise ConfigError("--launch-args needs --launch")
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    store = RunStore.read(run_folder)
    asked = {"limit": None, "sample": (*store.samples, *store.rejected)}
    runs = [run.model_copy(update=asked) for run in recorded(run_folder)]
    refuse_elsewhere(run_folder, backends_of(runs), backend or ())
    _refuse_launch(run_folder, runs, launch_args or () if launch else None)
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


def backends_of(runs: Iterable[RunConfig]) -> list[Any]:
    """Return the backends that runs ask, of all roles."""
    return [judge.backend for run in runs for judge in (run.judge, *run.role.values())]


def refuse_elsewhere(folder: Path, recorded: Iterable[Any], named: Collection[str] = ()) -> None:
    """Raise ConfigError where a run folder, and not the user, sends pictures and a key to an address off this machine."""
    from editloupe.backends.base import parse_uri

    for uri in (one for one in recorded if isinstance(one, str) and one not in named):
        address = parse_uri(uri).params.get("base_url")
        try:
            host = None if address is None else urlsplit(address).hostname
        except ValueError:
            host = ""
        if address is not None and host not in ("127.0.0.1", "localhost", "::1"):
            raise ConfigError(
                f"{folder} names the endpoint {address!r}, which is not on this machine; if you trust it, say so: "
                f"--backend {shlex.quote(uri)}"
            )


def _refuse_launch(folder: Path, runs: Sequence[RunConfig], given: Collection[str] | None) -> None:
    """Raise ConfigError for a server of the run that the command line does not name.

    given: each --launch-args; None without --launch.
    """
    for judge in (run.judge for run in runs if run.judge.launch or run.judge.launch_args):
        if given is None or (judge.launch_args and judge.launch_args not in given):
            arguments = f" --launch-args {shlex.quote(judge.launch_args)}" if judge.launch_args else ""
            raise ConfigError(
                f"{folder} starts a server for {judge.title}; if you trust what it is started with, say so: "
                f"--launch{arguments}"
            )
