"""What commands take from a run folder: how it was asked, and with which tools."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from editloupe.backends.base import parse_uri
from editloupe.cli.options import read_config
from editloupe.config import RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.setup import weights_of
from editloupe.runs.store import RunStore
from editloupe.tools.ablations import ablated
from editloupe.tools.base import Toolbox, open_toolbox


def recorded_runs(folder: Path) -> list[RunConfig]:
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


def refuse_launch(folder: Path, runs: Sequence[RunConfig], given: Collection[str] | None) -> None:
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


def run_toolbox(store: RunStore, names: Sequence[str] | None = None) -> Toolbox:
    """The run's tools (or those named), opened with the weights of its config.yaml, which the environment must name too.

    Raises ConfigError for weights that only the run folder names.
    """
    # A run made in Python has no config.yaml.
    config = recorded_runs(store.folder)[0] if (store.folder / "config.yaml").exists() else RunConfig()
    for name in ("detector", "upscaler"):
        variable, weights = f"EDITLOUPE_{name.upper()}", getattr(config, name)
        if weights is not None and os.environ.get(variable, "").strip() != weights:
            raise ConfigError(
                f"{store.folder} names the {name} {weights!r}; if you trust these weights, say so: "
                f"{variable}={shlex.quote(weights)}"
            )
    identity = store.info["identity"]
    assert isinstance(identity, dict)
    recorded, absent = identity.get("tools"), identity.get("absent_tools")
    known = [*(recorded if isinstance(recorded, dict) else ()), *(absent if isinstance(absent, list) else ())]
    ablations = identity.get("ablations")
    box = open_toolbox(known if names is None else names, weights_of(config))
    return ablated(box, [str(a) for a in ablations] if isinstance(ablations, list) else [])
