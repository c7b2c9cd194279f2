"""`editloupe merge`: the shards of one run joined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from editloupe.cli.output import command, many, say
from editloupe.runs.merge import merge as join


def merge(
    out_dir: Annotated[Path, Argument(metavar="OUT", help="A new folder, or a run to be added to.", show_default=False)],
    shards: Annotated[list[Path], Argument(metavar="SHARD…", help="Run folders of the same settings.", show_default=False)],
) -> int:
    """Join shards of one run into OUT. The shards stay as they are."""
    done = join(out_dir, shards)
    kinds = ((done.samples, "sample"), (done.findings, "finding"), (done.pictures, "picture"))
    new = ", ".join(many(*kind) for kind in kinds)
    say(f"{out_dir}: new are {new}; {many(done.stayed, 'finding')} stood there already.")
    say(f"Look at it: {command('view', out_dir)}")
    return 0
