"""`editloupe rescore`: the recorded answers of a run by another rubric, without a model."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from editloupe.cli.output import note, out, plain
from editloupe.errors import ConfigError
from editloupe.values import sample_key

if TYPE_CHECKING:
    from editloupe.records import Finding
    from editloupe.rubrics.model import Rubric
    from editloupe.runs.rescore import Rescored
    from editloupe.runs.store import RunStore

_SHOWN = 20


def rescore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    rubric: Annotated[str, typer.Option(help="A built-in rubric or your own .toml file.")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Write the findings as a run of their own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding on standard output.")] = False,
) -> int:
    """Read the recorded answers of a run by another rubric and say what changes. Nothing is written without --out."""
    from editloupe.rubrics.model import load_rubric
    from editloupe.runs.rescore import rescore as read_again
    from editloupe.runs.rescore import write_rescored
    from editloupe.runs.store import RunStore

    store = RunStore.read(run)
    loaded = load_rubric(rubric)
    if out_dir is not None and out_dir.resolve() == run.resolve():
        raise ConfigError(f"--out {out_dir} is the run itself, whose findings stay as they are; name another folder")
    done = list(read_again(store, loaded))
    if not done:
        raise ConfigError(f"{run}: nothing to re-score: the run has no findings")
    if out_dir is not None:
        write_rescored(store, loaded, done, out_dir)
    if as_json:
        for one in done:
            typer.echo(json.dumps(one.to_json(), ensure_ascii=False))
    else:
        _report(done, store, loaded)
        if out_dir is not None:
            out().print(plain(f"Written: {shlex.join(['editloupe', 'show', str(out_dir)])}"), soft_wrap=True)
    for problem in store.problems:
        note(f"warning: {problem}")
    return 1 if all(one.now is None for one in done) else 0


def _report(done: Sequence[Rescored], store: RunStore, rubric: Rubric) -> None:
    console = out()
    for judge_id, name in store.judge_names().items():
        mine = [one for one in done if one.before.judge_id == judge_id]
        for criterion in dict.fromkeys(one.before.criterion for one in mine):
            rows = [one for one in mine if one.before.criterion == criterion and one.now is not None]
            if rows:
                console.print(_table(rows, store, rubric, f"{criterion.replace('_', ' ').capitalize()}, judged by {name}"))
    changed = [one for one in done if one.changed]
    for one in changed[:_SHOWN]:
        assert one.now is not None
        key = sample_key(one.before.editor, one.before.sample_id)
        console.print(plain(f"  {key}, {one.before.criterion}: {_named(one.before)} → {_named(one.now)}"), soft_wrap=True)
    if len(changed) > _SHOWN:
        console.print(f"  … and {len(changed) - _SHOWN} more; --json lists all.")
    for why, count in Counter(one.reason for one in done if one.reason).items():
        note(f"warning: {count} findings are left out: {why}")
    console.print(plain(f"\n{len(changed)} of {len(done)} findings change; no model was asked."))


def _table(rows: Sequence[Rescored], store: RunStore, rubric: Rubric, title: str) -> Table:
    """Label → label with counts, and the means beneath."""
    from editloupe.runs.rescore import mean

    before = [one.before for one in rows]
    now = [one.now for one in rows if one.now is not None]
    record = store.info.get("record")
    old = record.get("rubric") if isinstance(record, dict) else None
    means = (
        mean(before, old if isinstance(old, dict) else {}, before[0].criterion),
        mean(now, rubric.to_json(), now[0].criterion),
    )
    table = Table("Recorded", "By the new rubric", title=plain(title), title_justify="left", show_footer=True)
    table.add_column("Findings", justify="right")
    for column, value, findings in zip(table.columns, means, (before, now), strict=False):
        judged = sum(f.value is not None for f in findings)
        shown = "–" if value is None else f"{value:.1f}"
        column.footer = plain(f"Mean {shown} of 100 ({judged} of {len(findings)} judged)")
    counts = Counter((_named(one.before), _named(one.now)) for one in rows if one.now is not None)
    for (then, new), count in counts.most_common():
        table.add_row(plain(then), plain(new, "yellow" if then != new else ""), str(count))
    return table


def _named(finding: Finding) -> str:
    if finding.status != "ok":
        return f"({finding.status})"
    return f"{finding.label}" if finding.value is None else f"{finding.label} ({finding.value:g})"
