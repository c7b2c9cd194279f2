"""`editloupe judge`: a folder of edits in, labelled and traced verdicts out."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from editloupe.cli.judges import Chosen, chosen_judges, read_judges
from editloupe.cli.options import editors, read_config, use_config, words
from editloupe.cli.output import err, fail, note, out, plain
from editloupe.errors import BackendError, ConfigError
from editloupe.findings import PENDING
from editloupe.tasks import Budget
from editloupe.values import Json, digest, sample_key

if TYPE_CHECKING:
    from editloupe.backends.base import LMM, BackendURI
    from editloupe.backends.prices import Prices
    from editloupe.backends.vllm_server import Server
    from editloupe.reports.summary import Summary
    from editloupe.reports.table import Heading
    from editloupe.runs.budget import Ledger, RunBudget
    from editloupe.runs.execute import Outcome, Progress
    from editloupe.runs.judges import Entry
    from editloupe.runs.setup import Bench, Settings, Source, ToolProtocolChoice
    from editloupe.tools.settings import ToolSettings

MANY_EDITORS = 3

HELLO = """\
editloupe judge PATH judges a folder of image edits.

  editloupe judge examples/edits                            the embedded pixel baseline; no key, no GPU
  editloupe judge my-edits --backend openai/MODEL           an LMM looks closely with tools (OPENAI_API_KEY)
  editloupe show runs/edits-baseline-tool SAMPLE            why a verdict is what it is

PATH holds metadata.jsonl (or .csv, .parquet), or the folders source/ and edited/, or DLEBench as downloaded.
`editloupe check PATH` looks at the data first; `editloupe judge --help` lists all options."""


def judge(
    path: Annotated[Path | None, typer.Argument(help="Folder of edits, or a metadata file.", show_default=False)] = None,
    backend: Annotated[
        list[str] | None, typer.Option(help="Who judges: provider/model; may be repeated. Default: the pixel baseline.")
    ] = None,
    judges: Annotated[
        str | None, typer.Option(metavar="FILE", help="Named judges with options of their own (YAML).")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="tool: an agent with tools. oracle: with known boxes. plain: one look.")
    ] = "tool",
    criteria: Annotated[str | None, typer.Option(help="Comma-separated, such as if,vc. Default: all.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the protocol, such as mask_pad=0.1; may be repeated.")
    ] = None,
    rubric: Annotated[str, typer.Option(help="A built-in rubric or your own .toml file.")] = "dlebench",
    prompt: Annotated[Path | None, typer.Option(help="Your own template (.md) of the question.")] = None,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Ask each question so often.")] = 1,
    aggregate_repeats: Annotated[str, typer.Option(help="The label that counts then: median or majority.")] = "median",
    abstain_above: Annotated[
        float | None, typer.Option(min=0, help="No score where the labels' entropy exceeds so many bits.")
    ] = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run folder. Default: runs/NAME-BACKEND-MODE.")] = None,
    edited: Annotated[list[str] | None, typer.Option(help="NAME=DIR: an editor's outputs; may be repeated.")] = None,
    format: Annotated[str, typer.Option(help="auto, imagefolder, pairs or dlebench.")] = "auto",
    fields: Annotated[Path | None, typer.Option(help="Field mapping (TOML) for the DLEBench importer.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N samples, in the order of the data.")] = None,
    sample: Annotated[list[str] | None, typer.Option(help="Only this sample id; may be repeated.")] = None,
    tools: Annotated[str | None, typer.Option(help="Comma-separated tools on offer. Default: the paper's five.")] = None,
    ablate: Annotated[
        str | None, typer.Option(help="black-crops, sham-differences or both: what tools show is hidden or falsified.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="For tools with weights: auto, cpu, cuda:0, … (default auto).")] = None,
    detector: Annotated[str | None, typer.Option(help="For grounding and detect_object: a folder, file or hub id.")] = None,
    upscaler: Annotated[str | None, typer.Option(help="For enlarged crops: a Real-ESRGAN checkpoint.")] = None,
    reader: Annotated[str | None, typer.Option(help="Of text in crops: auto, off or rapidocr (default auto).")] = None,
    max_turns: Annotated[int, typer.Option(min=0, max=100, help="Turns with tool calls.")] = 6,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token budget of one task.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0.001, help="Time budget of one task.")] = None,
    tool_protocol: Annotated[
        str, typer.Option(help="How tools are called: text (the same for every backend), native or auto.")
    ] = "text",
    constrain_labels: Annotated[
        bool, typer.Option(help="Constrain the last answer to the labels, where possible.")
    ] = False,
    temperature: Annotated[float | None, typer.Option(min=0, help="Default: 0.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Nucleus sampling.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first repeat; each further one adds 1. Default: 0.")] = None,
    reply_tokens: Annotated[int | None, typer.Option(min=1, help="At most so many tokens a reply. Default: 16384.")] = None,
    launch: Annotated[bool, typer.Option("--launch", help="Start vllm serve for --backend vllm/MODEL.")] = False,
    launch_args: Annotated[str | None, typer.Option(help="Arguments for that vllm serve, in one string.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1024, help="Tasks at once.")] = None,
    max_connections: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Calls at once at the endpoint. Default: as many as it takes.")
    ] = None,
    max_run_tokens: Annotated[int | None, typer.Option(min=1, help="Token budget of the whole run.")] = None,
    max_run_seconds: Annotated[float | None, typer.Option(min=0.001, help="Time budget of the whole run.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Money budget of the whole run, USD.")] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
    fail_on_error: Annotated[float, typer.Option(min=0, max=1, help="Tolerated share of findings not ok.")] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do and cost; ask nobody, write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")] = False,
    config: Annotated[
        Path | None, typer.Option(is_eager=True, callback=use_config, help="Take options from a run's config.yaml.")
    ] = None,
) -> int:
    """Judge a folder of edits. The same command again continues the run."""
    from editloupe.backends.base import settled

    if path is None:
        if backend or judges or config or as_json or out_dir or criteria or sample:
            raise ConfigError("PATH is missing: name the folder of edits to judge (editloupe judge --help)")
        typer.echo(HELLO)
        return 0
    if not all(uri.strip() for uri in backend or []):
        raise ConfigError("--backend is empty; leave it out for the pixel baseline, or name provider/model")
    options: dict[str, Json] = {
        "path": str(path.resolve()),
        "backend": backend[0] if backend and len(backend) == 1 else list(backend or []) or None,
        **({} if judges is None else {"judges": read_judges(judges)}),
        "mode": mode,
        "criteria": criteria,
        "option": list(option or []),
        "rubric": str(Path(rubric).resolve()) if Path(rubric).is_file() else rubric,
        "prompt": None if prompt is None else str(prompt.resolve()),
        "repeats": repeats,
        "aggregate_repeats": aggregate_repeats,
        "abstain_above": abstain_above,
        "edited": [f"{name}={folder.resolve()}" for name, folder in editors(edited or []).items()],
        "format": format,
        "fields": None if fields is None else str(fields.resolve()),
        "limit": limit,
        "sample": list(sample or []),
        "tools": tools,
        "ablate": ablate,
        "device": device,
        "detector": detector,
        "upscaler": upscaler,
        "reader": reader,
        "max_turns": max_turns,
        "max_tokens": max_tokens,
        "max_seconds": max_seconds,
        "tool_protocol": tool_protocol,
        "constrain_labels": constrain_labels,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "reply_tokens": reply_tokens,
        "launch": launch,
        "launch_args": launch_args,
        "concurrency": concurrency,
        "max_connections": max_connections,
        "max_run_tokens": max_run_tokens,
        "max_run_seconds": max_run_seconds,
        "max_cost": max_cost,
        "prices": None if prices is None else str(prices.resolve()),
        "fail_on_error": fail_on_error,
    }
    folder = out_dir or default_out(options)
    if backend:
        # config.yaml must mean the same from another folder.
        options["backend"] = settled(backend[0]) if len(backend) == 1 else [settled(uri) for uri in backend]
    if dry_run:
        return _dry_run(options, folder, as_json=as_json)
    return run(options, folder, redo=PENDING, as_json=as_json)


def run(options: dict[str, Json], folder: Path, *, redo: frozenset[str], as_json: bool) -> int:
    """Judge as `options` say into `folder`, show what came of it, and give the exit code.

    Several judges judge one after another: each has the endpoint's whole width, finds what tools have said to those before
    it, and stops none of the others by failing.
    """
    chosen = chosen_judges(options)
    budget = _budget(options)
    if len(chosen) == 1:
        done = _judge_with(chosen[0], options, folder, budget, (), redo=redo, as_json=as_json)
        if not as_json:
            _tell_together(folder)
        return done.code
    entries = _entries(chosen, options, budget)
    codes: dict[str, int] = {}
    for number, one in enumerate(chosen, start=1):
        if budget.used_up:
            note(f"The budget is used up before {one.title} has begun. The same command goes on from here.")
            codes[one.title] = 5
            break
        if not as_json:
            out().print(plain(f"\nJudge {number} of {len(chosen)}: {one.title}", "bold cyan"))
        try:
            done = _judge_with(one, options, folder, budget, entries, redo=redo, as_json=as_json)
        except BackendError as error:
            fail(f"{one.title}: {error}")
            codes[one.title] = 1
            continue
        codes[one.title] = done.code
        if done.outcome.interrupted:
            break
        budget = budget.after(done.outcome.ledger, done.outcome.seconds)
    _tell_together(folder, codes if as_json else None)
    return code_of_all(list(codes.values()))


@dataclass(frozen=True, kw_only=True)
class _Done:
    """One judge's visit."""

    outcome: Outcome
    code: int


def _judge_with(
    one: Chosen,
    options: dict[str, Json],
    folder: Path,
    budget: RunBudget,
    entries: Sequence[Entry],
    *,
    redo: frozenset[str],
    as_json: bool,
) -> _Done:
    """entries: all judges of this command."""
    from editloupe.runs.estimate import look_ahead
    from editloupe.runs.setup import open_bench

    settings, source = replace(settings_of(one.options), name=one.name), source_of(options)

    def judged(settings: Settings, at_once: Callable[[], None] = lambda: None) -> _Done:
        return _judge(one, options, settings, source, folder, budget, entries, redo=redo, as_json=as_json, at_once=at_once)

    launch = _launch_of(one.options)
    if launch is None:
        return judged(settings)
    unstarted = _unstarted(settings, launch)
    # What is wrong with the rest is said now, not when a model has been loaded for minutes; and where nothing is left to
    # ask, no model is loaded at all.
    if not look_ahead(open_bench(unstarted), source, folder, redo=redo).asked:
        return judged(unstarted)
    with _launched(launch, hidden=as_json) as (backend, server):
        done = judged(replace(settings, backend=backend), server.kill)
        if trouble := server.trouble():
            note(trouble)
        return done


def _entries(chosen: Sequence[Chosen], options: dict[str, Json], budget: RunBudget) -> list[Entry]:
    """What is wrong with any judge is said before the first one has spent anything. Raises ConfigError."""
    from editloupe.runs.budget import Ledger
    from editloupe.runs.judges import Entry

    titles = Counter(one.name for one in chosen if one.name)
    if twice := [name for name, times in titles.items() if times > 1]:
        raise ConfigError(f"several judges are called {', '.join(twice)}; each needs a name of its own")
    found: dict[str, tuple[Chosen, Entry]] = {}
    for one in chosen:
        bench = _bench_of(one)
        Ledger(budget=budget, prices=_prices(options), stop=threading.Event()).check(bench.backend)
        if (same := found.get(bench.judge.id)) is not None:
            raise ConfigError(
                f"{same[0].title} and {one.title} are the same judge: nothing differs that an answer could rest on. Leave "
                "one out; --repeats asks a judge several times"
            )
        found[bench.judge.id] = one, Entry(judge=bench.judge, name=one.name, options=one.own)
    return [entry for _, entry in found.values()]


def _dry_run(options: dict[str, Json], folder: Path, *, as_json: bool) -> int:
    from editloupe.cli.dry_run import dry_run

    chosen = chosen_judges(options)
    entries = _entries(chosen, options, _budget(options))
    judges = [(bench, heading_of(bench)) for bench in map(_bench_of, chosen)]
    return dry_run(judges, entries, source_of(options), folder, _prices(options), as_json=as_json)


def _bench_of(one: Chosen) -> Bench:
    """What a judge would judge with; a server that it launches has not started. Raises ConfigError."""
    from editloupe.runs.setup import open_bench

    settings, launch = replace(settings_of(one.options), name=one.name), _launch_of(one.options)
    return open_bench(settings if launch is None else _unstarted(settings, launch))


def _judge(
    one: Chosen,
    options: dict[str, Json],
    settings: Settings,
    source: Source,
    folder: Path,
    budget: RunBudget,
    entries: Sequence[Entry],
    *,
    redo: frozenset[str],
    as_json: bool,
    at_once: Callable[[], None],
) -> _Done:
    """at_once: called before a second Ctrl-C ends the process."""
    from editloupe.runs.execute import execute
    from editloupe.runs.judges import Entry
    from editloupe.runs.setup import open_bench

    bench = open_bench(settings)
    heading = heading_of(bench)
    if not as_json:
        note(f"Judging {source.path} with {heading.judge} into {folder}")
    with stoppable(at_once) as stop, progress(hidden=as_json) as listener:
        outcome = execute(
            bench,
            source,
            folder,
            config=options,
            concurrency=_int(options["concurrency"]),
            connections=_int(options.get("max_connections")),
            budget=budget,
            prices=_prices(options),
            redo=redo,
            listener=listener,
            stop=stop,
            entries=[Entry(judge=bench.judge, name=one.name, options=one.own), *entries],
        )
    _report(outcome, heading, folder, as_json=as_json)
    tolerated = options["fail_on_error"]
    code = exit_code(outcome, tolerated=float(tolerated) if isinstance(tolerated, int | float) else 0.0)
    return _Done(outcome=outcome, code=code)


def _budget(options: Mapping[str, Json]) -> RunBudget:
    from editloupe.runs.budget import RunBudget

    return RunBudget(
        max_tokens=_int(options.get("max_run_tokens")),
        max_seconds=_float(options.get("max_run_seconds")),
        max_cost=_float(options.get("max_cost")),
    )


def _prices(options: Mapping[str, Json]) -> Prices:
    from editloupe.backends.prices import read_prices

    return read_prices(None if options.get("prices") is None else Path(str(options["prices"])))


def _tell_together(folder: Path, codes: Mapping[str, int] | None = None) -> None:
    """The judges of a run side by side, where it has several; with the exit codes of this command's as a line of JSON."""
    from editloupe.reports import grid
    from editloupe.reports.judged import read_judged
    from editloupe.reports.paper import side_by_side
    from editloupe.runs.store import RunStore

    names = RunStore.read(folder).judge_names() if (folder / "run.json").exists() else {}
    if len(names) < 2 and codes is None:
        return
    try:
        judged = read_judged([folder]) if names else []
    except ConfigError:
        # Nothing has been judged yet, and that is told already.
        judged = []
    together = side_by_side(judged)
    if codes is not None:
        listed: list[Json] = [{"judge_id": id_, "name": name} for id_, name in names.items()]
        told: dict[str, Json] = {
            "event": "judges",
            "run": str(folder),
            "judges": listed,
            "exit_codes": dict(codes),
            "together": None if together is None else grid.to_json(together),
        }
        typer.echo(json.dumps(told, ensure_ascii=False))
    elif together is not None:
        out().print()
        out().print(grid.terminal(together, at_once=3))


def code_of_all(codes: Sequence[int]) -> int:
    """The exit code of several judges: that of an interruption; theirs where it is the same; 3 where only some failed."""
    stopped = [code for code in codes if code in (5, 130)]
    if stopped:
        return stopped[0]
    return codes[0] if len(set(codes)) == 1 else 3


def exit_code(outcome: Outcome, *, tolerated: float) -> int:
    """0 within tolerance, 1 nothing could be judged or the backend refuses all, 3 too many failures, 5 stopped by a budget,
    130 interrupted.
    """
    if outcome.interrupted:
        return 5 if outcome.ledger.reason else 130
    if outcome.failed == outcome.asked or (outcome.ledger.refused and outcome.failed):
        return 1
    # A hair of tolerance, so that 0.29 of 100 is 29.
    return 3 if outcome.failed > tolerated * outcome.asked + 1e-9 else 0


def settings_of(options: Mapping[str, Json]) -> Settings:
    """Of one judge."""
    from editloupe.chat import DEFAULT_REPLY_TOKENS, DEFAULT_SEED, Sampling
    from editloupe.protocols.dlebench import MODES
    from editloupe.protocols.repeats import By, Repeats
    from editloupe.runs.setup import Settings
    from editloupe.tools.base import PAPER_TOOLS

    mode, tools = str(options["mode"]), _text(options["tools"])
    if mode not in MODES:
        raise ConfigError(f"--mode {mode}: expected {', '.join(MODES)}")
    seconds, heat = options["max_seconds"], _float(options.get("temperature"))
    own = _text(options.get("prompt"))
    return Settings(
        backend=_text(options["backend"]) or "baseline",
        mode=mode,
        criteria=words(_text(options["criteria"])),
        rubric=str(options["rubric"]),
        tools=words(tools) or PAPER_TOOLS,
        budget=Budget(
            max_turns=_int(options["max_turns"]) or 0,
            max_tokens=_int(options["max_tokens"]),
            max_seconds=float(seconds) if isinstance(seconds, int | float) else None,
        ),
        sampling=Sampling(
            temperature=0.0 if heat is None else heat,
            top_p=_float(options.get("top_p")),
            seed=DEFAULT_SEED if options.get("seed") is None else _int(options["seed"]),
            max_tokens=_int(options.get("reply_tokens")) or DEFAULT_REPLY_TOKENS,
        ),
        constrain_labels=bool(options["constrain_labels"]),
        options=protocol_options(options.get("option")),
        tool_protocol=cast("ToolProtocolChoice", str(options.get("tool_protocol") or "text")),
        weights=weights_of(options),
        ablate=words(_text(options.get("ablate"))) or (),
        repeats=Repeats(
            count=_int(options.get("repeats")) or 1,
            by=cast(By, str(options.get("aggregate_repeats") or "median")),
            abstain_above=_float(options.get("abstain_above")),
        ),
        prompt=None if own is None else Path(own),
    )


def protocol_options(given: Json) -> dict[str, Json]:
    """NAME=VALUE as names and values."""
    found: dict[str, Json] = {}
    for text in given if isinstance(given, list) else []:
        name, equals, value = str(text).partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ConfigError(f"--option {text}: expected NAME=VALUE, such as mask_pad=0.1")
        found[name.strip()] = value.strip()
    return found


def weights_of(options: Mapping[str, Json]) -> ToolSettings:
    """What the environment says of the tools' weights, and the options above it."""
    from editloupe.tools.settings import ToolSettings

    names = ("device", "detector", "upscaler", "reader")
    given = {name: text for name in names if (text := _text(options.get(name))) is not None}
    return replace(ToolSettings.from_environment(), **given)


def source_of(options: Mapping[str, Json]) -> Source:
    from editloupe.runs.setup import Source

    edited, only, fields = options["edited"], options["sample"], _text(options["fields"])
    return Source(
        path=Path(str(options["path"])),
        format=str(options["format"]),
        edited=editors([str(e) for e in edited] if isinstance(edited, list) else []),
        fields=None if fields is None else Path(fields),
        limit=_int(options["limit"]),
        only=tuple(str(s) for s in only) if isinstance(only, list) else (),
    )


def heading_of(bench: Bench) -> Heading:
    """What a reader must know before the numbers: who judged, and what was missing."""
    from editloupe.reports.table import Heading
    from editloupe.tools.ablations import ABLATIONS, checked
    from editloupe.tools.reading import NoReader, open_reader
    from editloupe.tools.settings import ToolSettings

    notes = []
    if not bench.backend.traits.is_lmm and bench.backend.uri == "baseline":
        notes.append(
            "The pixel baseline follows rules on pixels; it is not an LMM and its labels are no substitute for one. "
            "Name an LMM with --backend, for example --backend openai/MODEL (editloupe backends lists them)."
        )
    ablations = checked(bench.settings.ablate)
    notes += [f"Ablation {name}: {ABLATIONS[name].told}; labels tell of the judge, not of the edits." for name in ablations]
    if bench.settings.constrain_labels and not bench.backend.traits.constrains_choices:
        notes.append(f"Labels were not constrained: {bench.backend.uri} cannot be held to a list (vllm/MODEL can).")
    if bench.toolbox.absent:
        reasons = dict.fromkeys(bench.toolbox.absent.values())
        for reason in reasons:
            names = ", ".join(n for n, why in bench.toolbox.absent.items() if why == reason)
            notes.append(f"Tools absent: {names} ({reason}).")
    if bench.toolbox.tools:
        reader = open_reader(bench.settings.weights or ToolSettings.from_environment())
        if isinstance(reader, NoReader) and reader.absent:
            notes.append(f"Text in crops is not read: {reader.reason}.")
    return Heading(
        judge=f"{bench.settings.name}, {bench.backend.uri}" if bench.settings.name else bench.backend.uri,
        describes=bench.backend.traits.describes,
        mode=bench.settings.mode,
        rubric=bench.rubric.id,
        ablations=ablations,
        notes=tuple(notes),
    )


def default_out(options: dict[str, Json]) -> Path:
    """runs/NAME-BACKEND-MODE, with the rubric's name where it is not DLEBench's, and ablations: the same command finds its
    run again. Of several judges the first gives its name, so that others can join them later.

    Where that folder is the run of other data with the same name, a short digest of the path follows.
    """
    path = Path(str(options["path"]))
    rubric = str(options["rubric"])
    parts = [path.parent.name if path.is_file() else path.name, chosen_judges(options)[0].title]
    parts += [str(options["mode"]), *([] if rubric == "dlebench" else [Path(rubric).stem])]
    parts += sorted(words(_text(options.get("ablate"))) or ())
    folder = Path("runs") / "-".join(map(_slug, parts))
    config = folder / "config.yaml"
    if config.exists() and read_config(config).get("path") != str(path):
        return folder.with_name(f"{folder.name}-{digest(str(path))[:6]}")
    return folder


def _report(outcome: Outcome, heading: Heading, folder: Path, *, as_json: bool) -> None:
    from editloupe.reports.table import as_json as table_json
    from editloupe.reports.table import json_text, markdown, terminal

    held = sum(f.status == "ok" and "constrained_labels" in f.counts for f in outcome.findings)
    if held:
        told = f"{held} of {len(outcome.findings)} labels come from a last word that was held to the list of labels."
        heading = replace(heading, notes=(*heading.notes, told))
    heading = replace(heading, notes=(*heading.notes, *_told_of_repeats(outcome)))
    summary = table_json(outcome.summaries, heading)
    if outcome.whole:
        name = _summary_name(outcome)
        outcome.store.write_report(f"{name}.json", json_text(summary))
        outcome.store.write_report(f"{name}.md", markdown(outcome.summaries, outcome.bench.rubric, heading))
    judged = sum(f.status == "ok" for f in outcome.findings)
    if as_json:
        done: dict[str, Json] = {
            "event": "done",
            "run": str(folder),
            "judge_id": outcome.bench.judge.id,
            "name": outcome.bench.name,
            "asked": outcome.asked,
            "judged": judged,
            "failed": outcome.failed,
            "constrained": held,
            "reused": outcome.reused,
            "tool_calls": {"run": outcome.tool_calls, "from_cache": outcome.cached},
            "interrupted": outcome.interrupted,
            "spent": outcome.ledger.to_json(),
            "seconds": round(outcome.seconds, 3),
            "summary": summary,
        }
        typer.echo(json.dumps(done, ensure_ascii=False))
        return
    for line in outcome.notes:
        note(line)
    if outcome.summaries:
        out().print(terminal(outcome.summaries, outcome.bench.rubric, heading, pooled=_pooled(outcome)))
    reused = f", {outcome.reused} of them from before" if outcome.reused else ""
    out().print(f"\n{judged} of {outcome.asked} findings judged{reused}, in {outcome.seconds:.1f} s.")
    if outcome.ledger.usage.total or outcome.ledger.untold:
        out().print(plain(spent_told(outcome.ledger, outcome.bench.backend)))
    if outcome.cached:
        calls = outcome.tool_calls + outcome.cached
        out().print(f"Tools: {calls:,} calls, {outcome.cached:,} of them answered from equal ones before.")
    if outcome.interrupted:
        why = f"Stopped by the budget ({outcome.ledger.reason})" if outcome.ledger.reason else "Interrupted"
        out().print(f"{why}. The same command goes on from here.")
    elif outcome.failed and outcome.ledger.refused:
        left = "1 finding is" if outcome.failed == 1 else f"{outcome.failed} findings are"
        why = f"Stopped asking, since every further question would be refused: {outcome.ledger.refused}"
        out().print(plain(why), soft_wrap=True)
        out().print(f"{left} left. Mend this, then the same command goes on from here.")
    elif outcome.failed:
        _tell_failures(outcome, folder)
    if outcome.findings:
        first = outcome.findings[0]
        words_ = ["editloupe", "show", str(folder), sample_key(first.editor, first.sample_id)]
        out().print(plain(f"Look at one: {shlex.join(words_)}"), soft_wrap=True)


def _summary_name(outcome: Outcome) -> str:
    """Of the files in report/; each judge of several has its own."""
    names = outcome.store.judge_names()
    if len(names) < 2:
        return "summary"
    id_ = outcome.bench.judge.id
    return f"summary-{_slug(outcome.bench.name)}-{id_[:6]}"


def _told_of_repeats(outcome: Outcome) -> list[str]:
    """How far a judge agrees with itself."""
    rule, doubts = outcome.bench.settings.repeats, [s.entropy for s in outcome.scores if s.entropy is not None]
    if rule.count == 1 or not doubts:
        return []
    same = sum(bits == 0 for bits in doubts)
    abstained = sum(s.missing == "abstained" for s in outcome.scores)
    gone = "" if rule.abstain_above is None else f"; {abstained} abstained, above {rule.abstain_above:g} bits"
    return [
        f"{rule.count} repeats a question, the {rule.by} label counts. Repeats agree on {same} of {len(doubts)} scores; "
        f"mean entropy of labels {sum(doubts) / len(doubts):.2f} bits{gone}."
    ]


def spent_told(ledger: Ledger, backend: LMM) -> str:
    """Calls, tokens and money of this visit, and what of them is estimated."""
    calls = "1 call" if ledger.calls == 1 else f"{ledger.calls:,} calls"
    both, more = ledger.usage + ledger.estimated, ledger.estimated.total
    tokens = f"{both.input_tokens or 0:,} input and {both.output_tokens or 0:,} output tokens"
    tokens = f"about {tokens}" if more else tokens
    cost = "" if ledger.cost is None or not backend.traits.is_lmm else f", about {ledger.cost:.4g} USD"
    told = f"Spent: {calls}, {tokens}{cost} ({ledger.prices.basis(backend)})."
    if not ledger.untold:
        return told
    untold = f"{ledger.untold:,} calls" if ledger.untold > 1 else "1 call"
    guess = f": {more:,} of these tokens are estimated" if more else ", and no rule is known to estimate it"
    return f"{told}\n{untold} told no usage{guess}."


def _pooled(outcome: Outcome) -> Summary | None:
    """All editors together, for runs with so many that a table each would bury the reader."""
    if len(outcome.summaries) <= MANY_EDITORS:
        return None
    name = f"all {len(outcome.summaries)} together"
    (summary,) = outcome.bench.protocol.summarise([replace(s, editor=name) for s in outcome.scores])
    return summary


def _tell_failures(outcome: Outcome, folder: Path) -> None:
    failures = [f for f in outcome.findings if f.status != "ok"]
    for finding in failures[:5]:
        where = sample_key(finding.editor, finding.sample_id)
        reason = textwrap.shorten(finding.reason, 240, placeholder=" …")
        out().print(plain(f"  {where}, {finding.metric}: {finding.status}: {reason}"), soft_wrap=True)
    if len(failures) > 5:
        out().print(f"  … and {len(failures) - 5} more")
    # Pending ones are always judged again; what a model caused only when it is named.
    final = sorted({f.status for f in failures} - PENDING)
    words_ = ["editloupe", "retry", str(folder), *(["--status", ",".join(final)] if final else [])]
    out().print(plain(f"Judge these again: {shlex.join(words_)}"), soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """What `--launch` asks for."""

    uri: BackendURI
    arguments: tuple[str, ...]


def _launch_of(options: Mapping[str, Json]) -> _Launch | None:
    """None without --launch. Raises ConfigError."""
    from editloupe.backends.base import parse_uri
    from editloupe.backends.vllm_server import check_launch

    arguments = _text(options.get("launch_args"))
    if not options.get("launch"):
        if arguments:
            raise ConfigError("--launch-args needs --launch")
        return None
    try:
        given = shlex.split(arguments or "")
    except ValueError as error:
        raise ConfigError(f"--launch-args {arguments!r} cannot be split as a shell does it: {error}") from error
    uri = parse_uri(_text(options["backend"]) or "baseline")
    if options.get("tool_protocol") in ("native", "auto") and not any("tool-call-parser" in a for a in given):
        # Without these the server refuses every request that offers tools.
        given += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    check_launch(uri, given)
    return _Launch(uri=uri, arguments=tuple(given))


def _unstarted(settings: Settings, launch: _Launch) -> Settings:
    """With the judge that the launched server would be."""
    from editloupe.backends.vllm_server import unstarted

    return replace(settings, backend=unstarted(launch.uri, launch.arguments))


@contextmanager
def _launched(launch: _Launch, *, hidden: bool) -> Iterator[tuple[LMM, Server]]:
    """A server of its own and the backend that asks it, with a progress line."""
    from editloupe.backends.vllm_server import launched

    uri = launch.uri
    with ExitStack() as stack:
        with nullcontext() if hidden else err().status("starting vllm serve", spinner="line") as status:

            def tell(seconds: float, line: str) -> None:
                if status is not None:
                    told = textwrap.shorten(line, 100, placeholder=" …")
                    status.update(plain(f"starting vllm serve {uri.model}, {seconds:.0f} s  {told}"))

            begun = time.monotonic()
            pair = stack.enter_context(launched(uri, launch.arguments, progress=tell))
        if not hidden:
            note(f"vllm serve {uri.model} answers after {time.monotonic() - begun:.0f} s")
        yield pair


@contextmanager
def stoppable(at_once: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) stops after the calls under way, the second at once; either leaves a resumable run.

    at_once: called before the second one ends the process, for what would outlive it.
    """
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            err().show_cursor(True)
            at_once()
            os._exit(130)
        stop.set()
        note("Stopping after the calls under way; once more to stop at once. The same command goes on from here.")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress(*, hidden: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A live bar on standard error: done, failed, rate, time left."""
    if hidden:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns: list[Any] = [
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed", style="red"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    ]
    with Bar(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("judging", total=None, failed=0, rate="")
        first: list[int] = []

        def listen(progress: Progress) -> None:
            first[:] = first or [progress.done]
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = (progress.done - first[0]) / elapsed if elapsed > 0 else 0.0
            bar.update(
                task, total=progress.total, completed=progress.done, failed=progress.failed, rate=f"{rate:.1f} a second"
            )

        yield listen


def _slug(text: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def _text(value: Json) -> str | None:
    return None if value is None else str(value)


def _int(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
