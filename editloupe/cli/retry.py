"""`editloupe retry`: judge again what could not be judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe.cli.judge import run
from editloupe.cli.options import read_config, words
from editloupe.cli.output import note
from editloupe.errors import ConfigError
from editloupe.findings import FAILURES, PENDING
from editloupe.values import Json

if TYPE_CHECKING:
    from editloupe.runs.store import RunStore


def retry(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    status: Annotated[
        str | None,
        typer.Option(
            help="Statuses to judge again too, comma-separated; those that the world, not the model, caused always are."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")] = False,
) -> int:
    """Judge again the findings of a run that failed; verdicts that stand are kept."""
    from editloupe.runs.store import RunStore

    if not (run_folder / "run.json").exists():
        raise ConfigError(f"{run_folder} is no run folder: it has no run.json")
    chosen = words(status)
    unknown = sorted(set(chosen or ()) - FAILURES)
    if unknown:
        raise ConfigError(f"--status {', '.join(unknown)}: expected some of {', '.join(sorted(FAILURES))}")
    options = read_config(run_folder / "config.yaml")
    options = complete(options, run_folder)
    # Whatever this run has been asked so far, and no more: a limit may have been lifted or set since.
    store = RunStore.read(run_folder)
    options |= {"limit": None, "sample": [*store.samples, *store.rejected]}
    for name in _unknown(store, options):
        note(f"warning: how {name} was asked is not recorded; it is left out. Name it again: editloupe judge … --backend")
    return run(options, run_folder, redo=PENDING | frozenset(chosen or ()), as_json=json_)


def _unknown(store: RunStore, options: dict[str, Json]) -> list[str]:
    """Judges of runs of before, where only the last one's options were kept."""
    names, judges = store.judge_names(), store.info.get("judges")
    known = judges if isinstance(judges, Mapping) else {}
    asked = {id_ for id_, j in known.items() if isinstance(j, Mapping) and "options" in j}
    unknown = [id_ for id_ in names if id_ not in asked]
    # What the only judge was asked by is what the file has.
    last = _text(options.get("backend")) or "baseline"
    unknown = [id_ for id_ in unknown if store.judges()[id_].partition("@")[0] != last.partition("?")[0]]
    return [names[id_] for id_ in unknown] if len(names) > 1 else []


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def complete(options: dict[str, Json], folder: Path) -> dict[str, Json]:
    """Options that were left at "none" are not in the file; a config without a path cannot be run."""
    if "path" not in options:
        raise ConfigError(f"{folder / 'config.yaml'} names no path; expected the file that editloupe judge wrote")
    empty = (
        "backend",
        "criteria",
        "fields",
        "limit",
        "tools",
        "device",
        "detector",
        "upscaler",
        "reader",
        "max_tokens",
        "max_seconds",
        "launch",
        "launch_args",
        "concurrency",
        "max_connections",
        "max_run_tokens",
        "max_run_seconds",
        "max_cost",
        "prices",
    )
    return {**dict.fromkeys(empty), **options}
