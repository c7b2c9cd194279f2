"""`editloupe merge`: the shards of one run joined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from editloupe.cli.output import command, many, say
from editloupe.errors import ConfigError, RunMismatch
from editloupe.runs.merge import merge as join


def merge(
    out_dir: Annotated[Path, Argument(metavar="OUT", help="A new folder, or a run to be added to.", show_default=False)],
    shards: Annotated[list[Path], Argument(metavar="SHARD…", help="Run folders of the same settings.", show_default=False)],
) -> int:
    """Join shards of one run. The shards stay as they are."""
    try:
        done = join(out_dir, shards)
    except RunMismatch as error:
        if not (out_dir / "run.json").exists():
            raise
        raise ConfigError(
            f"the first word is where the shards go, and {out_dir} is a run of other settings than {shards[0]}: name a new "
            f"folder first. Only shards of equal settings can be merged; editloupe report A B shows others side by side. "
            f"{error}"
        ) from error
    kinds = ((done.samples, "sample"), (done.findings, "finding"), (done.pictures, "picture"))
    new = ", ".join(many(*kind) for kind in kinds)
    say(f"{out_dir}: new are {new}; {many(done.stayed, 'finding')} stood there already.")
    say(f"Look at it: {command('view', out_dir)}")
    return 0
