"""`editloupe rank`: several edits of one source and instruction in order, by one judge."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe.cli.judge import exit_code, heading_of, progress, settings_of, source_of, stoppable
from editloupe.cli.options import editors, words
from editloupe.cli.output import note, out, plain
from editloupe.errors import ConfigError, DataError
from editloupe.values import Json, Sample, digest

if TYPE_CHECKING:
    from editloupe.data.samples import Loaded
    from editloupe.protocols.base import EvalProtocol
    from editloupe.reports.ranking import RankReport
    from editloupe.runs.setup import Bench
    from editloupe.runs.store import RunStore
    from editloupe.scores import MetricSet

SHOWN = 5
"""Tables in the terminal; all of them are in the run's report."""


def rank(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="A folder of edits or a run folder; with --source, edits.", show_default=False
        ),
    ],
    source: Annotated[Path | None, typer.Option(help="The image before; PATH… are then edits of it.")] = None,
    instruction: Annotated[str | None, typer.Option(help="With --source: what the edits were to do.")] = None,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare every two edits, in both orders, in place of scoring each.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(help="Criteria to rank by, the next breaking ties: if,vc or overall. Default: all."),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Who judges: provider/model. Default: the pixel baseline.")] = None,
    mode: Annotated[
        str, typer.Option(help="tool: an agent with tools. oracle: with known boxes. plain: one look.")
    ] = "tool",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the protocol, such as mask_pad=0.1; may be repeated.")
    ] = None,
    rubric: Annotated[str, typer.Option(help="A built-in rubric or your own .toml file.")] = "dlebench",
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run folder. Default: runs/rank-NAME-BACKEND-MODE.")] = None,
    edited: Annotated[list[str] | None, typer.Option(help="NAME=DIR: an editor's outputs; may be repeated.")] = None,
    format: Annotated[str, typer.Option(help="auto, imagefolder, pairs or dlebench.")] = "auto",
    fields: Annotated[Path | None, typer.Option(help="Field mapping (TOML) for the DLEBench importer.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N samples, in the order of the data.")] = None,
    sample: Annotated[list[str] | None, typer.Option(help="Only this sample id; may be repeated.")] = None,
    tools: Annotated[str | None, typer.Option(help="Comma-separated tools on offer. Default: the paper's five.")] = None,
    device: Annotated[str | None, typer.Option(help="For tools with weights: auto, cpu, cuda:0, … (default auto).")] = None,
    detector: Annotated[str | None, typer.Option(help="For grounding and detect_object: a folder, file or hub id.")] = None,
    upscaler: Annotated[str | None, typer.Option(help="For enlarged crops: a Real-ESRGAN checkpoint.")] = None,
    reader: Annotated[str | None, typer.Option(help="Of text in crops: auto, off or rapidocr (default auto).")] = None,
    max_turns: Annotated[int, typer.Option(min=0, max=100, help="Turns with tool calls.")] = 6,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token budget of one task.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0.001, help="Time budget of one task.")] = None,
    tool_protocol: Annotated[str, typer.Option(help="How tools are called: text, native or auto.")] = "text",
    constrain_labels: Annotated[
        bool, typer.Option(help="Constrain the last answer to the labels, where possible.")
    ] = False,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1024, help="Tasks at once.")] = None,
    max_connections: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Calls at once at the endpoint. Default: as many as it takes.")
    ] = None,
    max_run_tokens: Annotated[int | None, typer.Option(min=1, help="Token budget of the whole run.")] = None,
    max_run_seconds: Annotated[float | None, typer.Option(min=0.001, help="Time budget of the whole run.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Money budget of the whole run, USD.")] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
    fail_on_error: Annotated[float, typer.Option(min=0, max=1, help="Tolerated share of findings not ok.")] = 0.0,
    judge: Annotated[str | None, typer.Option(help="Of a run folder: which judge, by id or URI.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> int:
    """Rank several edits of one source and instruction. The same command again continues the run."""
    from editloupe.backends.prices import read_prices
    from editloupe.data.images import ImageStore
    from editloupe.reports.ranking import RankReport, by_pairs, by_scores, unreadable
    from editloupe.runs.budget import RunBudget
    from editloupe.runs.execute import execute
    from editloupe.runs.plan import selected

    if (source is None) != (instruction is None):
        raise ConfigError("--source IMAGE and --instruction TEXT go together, with the edits after them")
    if source is None and len(paths) > 1:
        raise ConfigError(f"{len(paths)} paths are given; name one folder, or --source IMAGE --instruction TEXT for edits")
    if source is None and (paths[0] / "run.json").exists():
        if pairwise or backend or edited:
            raise ConfigError(
                f"{paths[0]} is a run: its scores are ranked as they are; --pairwise, --backend and --edited ask anew"
            )
        return _of_run(paths[0], judge, words(by), as_json=as_json)
    if pairwise and mode == "oracle":
        raise ConfigError("--pairwise shows whole images; use --mode tool or plain")
    options: dict[str, Json] = {
        "path": str(paths[0].resolve()),
        "backend": backend,
        "mode": mode,
        "criteria": None,
        "option": list(option or []),
        "rubric": str(Path(rubric).resolve()) if Path(rubric).is_file() else rubric,
        "edited": [f"{name}={folder.resolve()}" for name, folder in editors(edited or []).items()],
        "format": format,
        "fields": None if fields is None else str(fields.resolve()),
        "limit": limit,
        "sample": list(sample or []),
        "tools": tools,
        "device": device,
        "detector": detector,
        "upscaler": upscaler,
        "reader": reader,
        "max_turns": max_turns,
        "max_tokens": max_tokens,
        "max_seconds": max_seconds,
        "tool_protocol": tool_protocol,
        "constrain_labels": constrain_labels,
    }
    chosen, bench = _bench(options, words(by), pairwise=pairwise)
    if source is not None:
        loaded = _edits(source, instruction or "", paths)
    else:
        loaded = selected(source_of(options), ImageStore(cache_bytes=0))
    _check_several(loaded.samples)
    # Another instruction for the same image is another run.
    told = None if source is None else digest([str(source.resolve()), instruction])[:6]
    name = f"{source.stem}-{told}" if source is not None else paths[0].parent.name if paths[0].is_file() else paths[0].name
    parts = ["rank", name, bench.backend.uri, mode, *([] if rubric == "dlebench" else [Path(rubric).stem])]
    parts += ["pairwise"] if pairwise else []
    folder = out_dir or Path("runs") / "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts)
    if not as_json:
        note(f"Ranking with {bench.backend.uri} into {folder}")
    with stoppable() as stop, progress(hidden=as_json) as listener:
        outcome = execute(
            bench,
            loaded,
            folder,
            config={},
            concurrency=concurrency,
            connections=max_connections,
            budget=RunBudget(max_tokens=max_run_tokens, max_seconds=max_run_seconds, max_cost=max_cost),
            prices=read_prices(prices),
            listener=listener,
            stop=stop,
        )
    for told in outcome.notes:
        note(told)
    samples, heading = outcome.loaded.samples, heading_of(bench)
    rankings = by_pairs(samples, outcome.findings, chosen) if pairwise else by_scores(samples, outcome.scores, chosen)
    report = RankReport(
        judge=heading.text,
        notes=heading.notes,
        by=chosen,
        names={c.id: c.short for c in bench.rubric.metrics},
        pairwise=pairwise,
        rankings=tuple(rankings),
        unread=tuple(unreadable(row.editor, row.id, row.message) for row in outcome.loaded.rejected),
    )
    _show(report, outcome.store, as_json=as_json)
    if outcome.interrupted:
        note("Stopped before all was judged. The same command goes on from here.")
    return exit_code(outcome, tolerated=fail_on_error)


def _bench(options: dict[str, Json], by: tuple[str, ...] | None, *, pairwise: bool) -> tuple[tuple[str, ...], Bench]:
    """The criteria to rank by, in order, and who answers. Raises ConfigError."""
    from editloupe.agent.judge import TEMPLATES
    from editloupe.prompts import prompt_digest
    from editloupe.protocols.pairwise import TEMPLATE, Pairwise
    from editloupe.reports.ranking import OVERALL
    from editloupe.runs.setup import open_bench

    settings = settings_of(options)
    if by is not None and OVERALL not in by:
        settings = replace(settings, criteria=by)
    if pairwise and by is not None and OVERALL in by:
        raise ConfigError("--by overall is a mean of scores, and --pairwise gives none; name criteria")
    bench = open_bench(settings)
    chosen = _ids(by, bench.rubric) or tuple(c.id for c in bench.criteria)
    if not pairwise:
        return chosen, bench
    if bench.backend.uri == "baseline":
        raise ConfigError(
            "the pixel baseline judges single edits and cannot compare two; name an LMM with --backend, "
            "or leave --pairwise out"
        )
    protocol: EvalProtocol = Pairwise(
        [bench.metrics.metric(c) for c in chosen],
        mode=settings.mode,
        tools=settings.tools,
        budget=settings.budget,
    )
    prompts = prompt_digest([TEMPLATE, *TEMPLATES])
    identity = {**bench.spec.identity, "protocol": protocol.name, "prompts": prompts}
    return chosen, replace(bench, protocol=protocol, spec=replace(bench.spec, identity=identity))


def _ids(by: Sequence[str] | None, rubric: MetricSet) -> tuple[str, ...]:
    """Raises ConfigError: an unknown criterion, one named twice."""
    from editloupe.reports.ranking import OVERALL

    found = tuple(OVERALL if name.casefold() == OVERALL else rubric.metric(name).id for name in by or ())
    if len(set(found)) < len(found):
        raise ConfigError(f"--by {','.join(by or ())}: names a criterion twice")
    return found


def _edits(source: Path, instruction: str, edits: Sequence[Path]) -> Loaded:
    """Edits of one source, each under its file's name; one that cannot be opened is told below the others.

    Raises ImageError (the source), SampleError (the instruction).
    """
    from editloupe.data.images import ImageStore
    from editloupe.data.samples import Loaded, RejectedRow, load_sample
    from editloupe.errors import ImageError

    ImageStore(cache_bytes=0).add_file(source)
    stems = [path.stem for path in edits]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in edits]
    if len(set(names)) < len(names):
        raise ConfigError("an edit is named twice; name each once")
    samples, rejected = [], []
    for name, path in zip(names, edits, strict=True):
        try:
            samples.append(load_sample(source, path, instruction, id=name))
        except ImageError as error:
            rejected.append(RejectedRow(id=name, editor="", edit_type=None, message=str(error), file=path, line=None))
    return Loaded(format="files", samples=tuple(samples), rejected=tuple(rejected))


def _check_several(samples: Sequence[Sample]) -> None:
    """Raises DataError where there is nothing to rank: before anything is asked."""
    from editloupe.protocols.base import groups

    if all(len(group) < 2 for group in groups(samples)):
        raise DataError(
            "no two edits share source image and instruction, so that there is nothing to rank; give several editors' "
            "outputs with --edited NAME=DIR, or edits of one image with --source and --instruction"
        )


def _of_run(folder: Path, judge: str | None, by: Sequence[str] | None, *, as_json: bool) -> int:
    """Rank what a run holds; nothing is asked. Raises ConfigError: several judges, a criterion that was not asked."""
    from editloupe.reports.judged import chosen as judges
    from editloupe.reports.ranking import OVERALL, RankReport, by_scores, unreadable
    from editloupe.runs.store import RunStore

    store = RunStore.read(folder)
    found = judges(store, judge)
    if len(found) > 1:
        named = ", ".join(f"{j.backend} ({j.judge_id})" for j in found)
        raise ConfigError(f"{folder} has several judges; name one with --judge: {named}")
    (judged,) = found
    chosen = _ids(by, judged.rubric) or judged.criteria
    for criterion in chosen:
        if criterion not in (*judged.criteria, OVERALL):
            raise ConfigError(f"--by {criterion}: was not asked in {folder}; it has {', '.join(judged.criteria)}")
    samples = [s for key, s in judged.samples.items() if key not in store.rejected]
    _check_several(samples)
    rankings = by_scores(samples, judged.scores, chosen)
    unread = [unreadable(str(r["editor"]), str(r["id"]), str(r.get("message"))) for r in store.rejected.values()]
    report = RankReport(
        judge=judged.describe(),
        notes=judged.notes,
        by=chosen,
        names={c.id: c.short for c in judged.metrics.metrics},
        pairwise=False,
        rankings=tuple(rankings),
        unread=tuple(unread),
    )
    _show(report, store, as_json=as_json)
    return 0


def _show(report: RankReport, store: RunStore, *, as_json: bool) -> None:
    """The tables, and the files in the run. Raises DataError where no two edits can be set beside each other."""
    from editloupe.reports import grid

    written = [
        store.write_report(
            "ranking.json", json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        ),
        store.write_report("ranking.md", report.markdown()),
    ]
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False))
        return
    console = out()
    console.print(plain(report.judge, "bold"))
    for told in report.notes:
        console.print(plain(told, "yellow"))
    grids = list(report.grids())
    for one in grids[:SHOWN]:
        console.print(grid.terminal(one))
    if len(grids) > SHOWN:
        console.print(f"\n… and {len(grids) - SHOWN} more sources")
    if (summary := report.editors()) is not None:
        console.print(grid.terminal(summary))
    for place in report.unread:
        console.print(plain(f"not ranked: {place.edit}: {place.missing}"), soft_wrap=True)
    console.print(plain(f"\n{report.caption}", "dim"))
    console.print(plain(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)
