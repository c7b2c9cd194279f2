"""`editloupe runs`, `merge` and `gc`: run folders as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from editloupe.cli.options import AsJson, RunFolder
from editloupe.cli.output import command, many, plain, print_json, say, say_first, table, warn
from editloupe.errors import ConfigError
from editloupe.runs.folders import Listed, orphans, remove, runs_below
from editloupe.runs.lock import writer
from editloupe.runs.merge import merge as join
from editloupe.runs.store import RunStore

if TYPE_CHECKING:
    from editloupe.figures.closing import MeanOfAll, Standing


def runs(
    folder: Annotated[Path, Argument(help="Where to look; runs may lie deeper.")] = Path("runs"), as_json: AsJson = False
) -> None:
    """List the runs below a folder. Exit code 2 if there is none.

    Means are of all samples (judged/asked). Those of a large run were written when it ended; "–" if findings came since.
    """
    from editloupe.figures.closing import Standing, standing_of_run  # with it come the protocols, which others need not

    found = list(runs_below(folder))
    if not found:
        raise ConfigError(f"no run is below {folder}")
    known = {one.folder: Standing() if one.problem else standing_of_run(one.folder) for one in found}
    if as_json:
        for one in found:
            means = {id_: [mean.to_json() for mean in of] for id_, of in known[one.folder].means.items()}
            print_json({**one.to_json(), "status": _status(one, known[one.folder]), "means": means})
        return
    rows: list[Sequence[str | Text]] = []
    tagged = any(one.tags for one in found)
    for one in found:
        if one.problem:
            rows.append((str(one.folder), *("–" * tagged), plain("cannot be read", "red"), *"––––––"))
            named = one.problem.startswith(str(one.folder))
            warn([one.problem if named else f"{one.folder}: {one.problem}"])
            continue
        judged = f"{one.statuses.get('ok', 0)} of {sum(one.statuses.values())}"
        when = datetime.fromtimestamp(one.written).strftime("%Y-%m-%d %H:%M")
        asked = f"{one.asked} of {one.samples}"
        told, state = _told(known[one.folder].means, one.judges), _status(one, known[one.folder])
        tags = [", ".join(one.tags) or "–"] if tagged else []
        rows.append(
            (str(one.folder), *tags, "\n".join(one.judges.values()), state, one.mode or "–", told, asked, judged, when)
        )
    heads = ("Run", *(["Tags"] if tagged else []), "Judges", "Status", "Mode", "Means", "Samples asked", "Findings judged")
    table(*heads, "Last written", rows=rows)


def _status(one: Listed, standing: Standing) -> str:
    """Return how far a run is, in words."""
    if one.problem:
        return "cannot be read"
    if (process := writer(one.folder)) is not None:
        return f"under way (process {process})"
    if not one.judges:
        return "no judge"
    left = one.samples - one.asked if standing.to_go is None else standing.to_go
    if left:
        return f"incomplete: {many(left, 'sample')} to go"
    if standing.to_go is None and not standing.means:
        return "all samples begun"  # of a large run that nobody counted since
    # A measure that is not defined on a pair has said so: that is no failure.
    failed = sum(count for status, count in one.statuses.items() if status not in ("ok", "not_defined"))
    return f"complete, {failed:,} failed" if failed else "complete"


def _told(means: Mapping[str, Sequence[MeanOfAll]], names: Mapping[str, str]) -> str:
    """Return a line a judge, with its name if there are several: the mean of all metrics, or of each if there is none."""
    several, lines = len(names) > 1, []
    for id_, of in means.items():
        told = ", ".join(one.text for one in of if one.metric == "overall") or ", ".join(one.text for one in of)
        lines.append(f"{names[id_]}: {told or '–'}" if several and id_ in names else told)
    return "\n".join(filter(None, lines)) or "–"


def merge(
    out_dir: Annotated[Path, Argument(metavar="OUT", help="A new folder, or a run to be added to.")],
    shards: Annotated[list[Path], Argument(metavar="SHARD", help="Run folders of the same settings.")],
) -> None:
    """Join shards of one run; they stay as they are."""
    done = join(out_dir, shards)
    kinds = ((done.samples, "sample"), (done.findings, "finding"), (done.pictures, "picture"))
    new = ", ".join(many(*kind) for kind in kinds)
    say(f"{out_dir}: {new} are new; {done.stayed} findings were there already.")
    say(f"Look at it: {command('show', out_dir)}")


def gc(
    run: RunFolder,
    delete: Annotated[bool, Option("--delete", help="Delete them; without it they are only listed.")] = False,
) -> None:
    """List the pictures of a run that no trace, sample or finding names, or delete them."""
    # Locked, since a picture is written before the trace that names it.
    with closing(RunStore.edit(run, info_only=True)):
        found = orphans(run)
        if delete:
            remove(found, run)
    size = sum(found.values())
    say_first([f"  {path}  {bytes_:,} bytes" for path, bytes_ in found.items()], 20)
    if not found:
        say("Every picture is named by something.")
    elif delete:
        say(f"Deleted {len(found)} files, {size:,} bytes.")
    else:
        say(f"{len(found)} files, {size:,} bytes, are named by nothing; --delete removes them.")
