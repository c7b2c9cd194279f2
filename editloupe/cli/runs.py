"""`editloupe runs`, `merge` and `gc`: run folders as such."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from editloupe.cli.output import note, out, plain
from editloupe.errors import ConfigError


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look; runs may lie deeper.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a run on standard output.")] = False,
) -> None:
    """List the runs below a folder."""
    from editloupe.runs.folders import runs_below

    found = list(runs_below(folder))
    if as_json:
        for one in found:
            typer.echo(json.dumps(one.to_json(), ensure_ascii=False))
        return
    if not found:
        out().print(plain(f"No run is below {folder}."), soft_wrap=True)
        return
    table = Table("Run", "Judges")
    for name in ("Samples", "Judged", "Last written"):
        table.add_column(name, justify="right")
    for one in found:
        if one.problem:
            table.add_row(plain(str(one.folder)), plain("cannot be read", "red"), "–", "–", "–")
            note(f"warning: {one.folder}: {one.problem}")
            continue
        judged = f"{one.statuses.get('ok', 0)} of {sum(one.statuses.values())}"
        when = datetime.fromtimestamp(one.written).strftime("%Y-%m-%d %H:%M")
        table.add_row(plain(str(one.folder)), plain("\n".join(one.judges)), str(one.samples), judged, when)
    out().print(table)


def merge(
    out_dir: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder, or a run to be added to.")],
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD...", help="Run folders of the same settings.")],
) -> None:
    """Join shards of one run; they stay as they are."""
    from editloupe.runs.merge import merge as join

    done = join(out_dir, shards)
    told = f"{done.samples} samples, {done.findings} findings, {done.pictures} pictures and {done.forks} forks are new"
    out().print(plain(f"{out_dir}: {told}; {done.stayed} findings were there already."), soft_wrap=True)
    out().print(plain(f"Look at it: {shlex.join(['editloupe', 'show', str(out_dir)])}"), soft_wrap=True)
    for problem in done.problems:
        note(f"warning: {problem}")


def gc(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; without it they are only listed.")] = False,
) -> None:
    """List the pictures of a run that no trace, sample or finding names, or delete them."""
    from editloupe.runs.folders import orphans, remove
    from editloupe.runs.store import RunStore

    if not (run / "run.json").exists():
        raise ConfigError(f"{run} is no run folder: it has no run.json")
    # Locked, since a picture is written before the trace that names it.
    store = RunStore.edit(run)
    try:
        found = orphans(run)
        if delete:
            remove(found)
    finally:
        store.close()
    size = sum(orphan.bytes for orphan in found)
    for orphan in found[:20]:
        out().print(plain(f"  {orphan.path}  {orphan.bytes:,} bytes"), soft_wrap=True)
    if len(found) > 20:
        out().print(f"  … and {len(found) - 20} more")
    if not found:
        out().print("Every picture is named by something.")
    elif delete:
        out().print(f"Deleted {len(found)} files, {size:,} bytes.")
    else:
        out().print(f"{len(found)} files, {size:,} bytes, are named by nothing; --delete removes them.")
