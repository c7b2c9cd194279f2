"""`editloupe judge --dry-run`: what a run would do and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from editloupe.backends.prices import Prices, read_prices
from editloupe.cli.judge_report import heading_of
from editloupe.cli.output import many, print_json, say, say_first, table
from editloupe.figures.closing import Heading
from editloupe.runs.estimate import Ahead, CostBound, look_ahead
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.setup import Setup
from editloupe.values import Json, sample_key

_SHOWN = 10
"""Lines of a list that a terminal shows; --format json gives all."""


def dry_run(judges: Sequence[Setup], entries: Sequence[JudgeEntry], folder: Path, *, as_json: bool) -> int:
    """Print what judging into `folder` would do, for each judge and for all. Nobody is asked, nothing is written."""
    prices = read_prices(judges[0].config.prices)
    found = [look_ahead(setup, folder, prices, entries=entries) for setup in judges]
    # What is not known of one is not known of all.
    together = sum((one.least for one in found), CostBound()), sum((one.most for one in found), CostBound())
    if as_json:
        for setup, one in zip(judges, found, strict=True):
            print_json(_as_json(setup, folder, heading_of(setup), one, prices.basis(setup.backend)))
        if len(judges) > 1:
            least, most = (end.to_json() for end in together)
            print_json({"event": "dry_run_total", "run": str(folder), "judges": len(judges), "least": least, "most": most})
        return 0
    say("Dry run: nobody is asked and nothing is written.", "bold")
    _of_data(found[0])
    for number, (setup, one) in enumerate(zip(judges, found, strict=True), start=1):
        if len(judges) > 1:
            say(f"\nJudge {number} of {len(judges)}: {setup.name}", "bold cyan")
        _of_judge(setup, heading_of(setup), one, folder, prices)
    asks = any(setup.backend.traits.is_lmm for setup in judges)
    if len(judges) > 1:
        say("")
        _table(together, f"All {len(judges)} judges together", is_lmm=asks)
    return 0


def _of_data(ahead: Ahead) -> None:
    """What holds whoever judges."""
    for line in ahead.loaded.notes:
        say(line, "yellow")
    rejected = [f"{sample_key(row.editor, row.id)}: {row.message}" for row in ahead.loaded.rejected]
    _list("Rejected, and not asked about:", rejected)
    blocked = [(d.task, d.task.blocked) for d in ahead.due if d.task.blocked is not None]
    keys = {f"{sample_key(task.about.editor, task.about.sample_id)}: {why[0]}: {why[1]}" for task, why in blocked}
    _list("Not asked about:", sorted(keys))


def _of_judge(setup: Setup, heading: Heading, ahead: Ahead, folder: Path, prices: Prices) -> None:
    is_lmm = setup.backend.traits.is_lmm
    say(heading.text)
    for line in (*heading.notes, *ahead.remarks):
        say(line, "yellow")
    say(_of_run(folder, ahead, setup.repeats.count))
    say("")
    _table((ahead.least, ahead.most), "Estimate", is_lmm=is_lmm, by_batch=ahead.wave is not None)
    if ahead.wave is not None:
        say(f"The first wave: {many(ahead.wave.files, 'file')}, {ahead.wave.bytes / 1e6:,.1f} MB.")
    if is_lmm:
        say(f"Prices: {prices.basis(setup.backend)}.", "dim")


def _of_run(folder: Path, ahead: Ahead, repeats: int) -> str:
    tasks = many(len(ahead.due) + ahead.reused, "task") + (f" ({repeats} repeats a question)" if repeats > 1 else "")
    begun = f", {ahead.begun} of them go on from where they stopped" if ahead.begun else ""
    reused = f"{ahead.reused} stand in {folder}" if ahead.reused else f"none stands in {folder} yet"
    grows = " Further questions follow from the answers and are not counted." if ahead.grows else ""
    return f"{many(len(ahead.loaded.samples), 'sample')}, {tasks}: {reused}, {ahead.asked} to ask{begun}.{grows}"


def _table(ends: tuple[CostBound, CostBound], title: str, *, is_lmm: bool, by_batch: bool = False) -> None:
    rows = [
        ["Calls", *(f"{end.calls:,}" for end in ends)],
        ["Input tokens", *("unknown" if end.input_tokens is None else f"{end.input_tokens:,}" for end in ends)],
        ["Output tokens", *(f"{end.output_tokens:,}" for end in ends)],
        ["Cost in USD", *("unknown" if end.cost_usd is None else f"{end.cost_usd:.4g}" for end in ends)],
    ]
    if by_batch:
        least, most = (end.cost_usd for end in ends)
        # At least the first step of each conversation goes into a batch.
        known = [] if least is None or most is None else [f"{least / 2:.4g}", f"at most {most - least / 2:.4g}"]
        rows.append(["Cost by batch in USD", *(known or ["unknown"] * 2)])
    heads = ("One call a task", "Every turn used")
    table("", *heads, rows=rows if is_lmm else rows[:1], title=title, right=heads)


def _list(title: str, lines: list[str]) -> None:
    if lines:
        say(title, "yellow")
        say_first([f"  {line}" for line in lines], _SHOWN)


def _as_json(setup: Setup, folder: Path, heading: Heading, ahead: Ahead, basis: str) -> dict[str, Json]:
    blocked = Counter(str(d.task.blocked[0]) for d in ahead.due if d.task.blocked is not None)
    return {
        "event": "dry_run",
        "run": str(folder),
        "judge": heading.judge,
        "judge_id": setup.judge.id,
        "name": setup.name,
        "repeats": setup.repeats.count,
        "samples": len(ahead.loaded.samples),
        "tasks": len(ahead.due) + ahead.reused,
        "reused": ahead.reused,
        "to_ask": ahead.asked,
        "begun": ahead.begun,
        "grows": ahead.grows,
        "not_asked": dict(blocked),
        "rejected": [{"sample": sample_key(r.editor, r.id), "reason": r.message} for r in ahead.loaded.rejected],
        "absent_tools": dict(setup.toolbox.absent),
        "least": ahead.least.to_json(),
        "most": ahead.most.to_json(),
        **({"wave": dict(vars(ahead.wave))} if ahead.wave else {}),
        "prices": basis,
        "notes": [*heading.notes, *ahead.remarks, *ahead.loaded.notes],
    }
