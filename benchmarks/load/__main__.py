"""How much of an endpoint's latency a run uses, and what a sample costs in CPU, memory and disk, beside others.

    python -m benchmarks.load                     # 64 connections, 0.5 s an answer, 192 pairs of three calls, 3 rounds
    python -m benchmarks.load --peers PYTHON      # an interpreter that has langgraph and langchain-openai
    python -m benchmarks.load --only lean,editloupe_alike
    python -m benchmarks.load --write             # and put the tables into benchmarks/README.md
    python -m benchmarks.load --only WHO,WHO --write    # the second alone, where all of its rows are named

A server in a process of its own answers every chat completion after a fixed time: two turns with a call of a tool, then a
label. No two pairs are alike, so that nothing is decoded, hashed or encoded for several samples at once. Beside editloupe
stand threads with the openai SDK, a plain LangGraph loop where its packages are installed, and a lean loop over
the HTTP library alone: the least that such a run can cost. All send the same two pictures of 1024×768 px with each call and
hold the same dialogue, with two crops that are at hand; editloupe asks a second time, with its tools really running: on all
cores, in threads alone, on one core, and on a Ray cluster of two nodes. All take turns,
round after round, and the middle round counts. Threads are as many as each takes by itself. CPU and memory are of all
processes that an asker starts, Ray's own ones included. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.load import askers
from benchmarks.load.data import draw
from benchmarks.load.processes import Watch
from benchmarks.load.server import CALLS, Server, serving
from benchmarks.pages import compiled_once, options, show, table

NAMES = {
    "lean": "a lean loop",
    "editloupe_alike": "editloupe, the same dialogue",
    "editloupe": "editloupe, localize_differences and zoom_in running",
    "editloupe_threads": "the same, `--processes 1`",
    "editloupe_one_core": "the same on one core, `taskset -c 0`",
    "editloupe_ray": "the same, `--executor ray`, two nodes",
    "threads_openai": "threads + openai",
    "langgraph": "LangGraph + langchain-openai",
}

SHARE = "share of connections ÷ latency"
ONE_CORE = "editloupe_one_core"
SPREAD = ("editloupe", "editloupe_threads", ONE_CORE, "editloupe_ray")
"""The ways to spread a run, compared with one core."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One round of one way of asking."""

    rate: float
    """Calls a second."""
    share: float
    """Of connections / latency, the most that the rate can be."""
    start: float
    """Seconds to the first call."""
    after: float
    """Calls a second from then on."""
    cpu_ms: float
    """Of a sample, in all processes."""
    parent_ms: float
    """Of a sample, in the process that was started."""
    cores: float
    """Kept busy: CPU seconds a second."""
    others: float
    """Cores that everything else kept busy, the endpoint included."""
    peak_mb: float
    disk_mb: float


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that runs LangGraph")
    parser.add_argument("--only", default=",".join(NAMES), help="who asks, by names with commas between them")
    args = parser.parse_args()
    asking = [who for who in NAMES if who in args.only.split(",")]
    rows: dict[str, list[Row]] = {who: [] for who in asking}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, serving(args.latency) as server:
        data = draw(Path(folder) / "data", args.samples)
        for number in range(args.rounds):
            for who in [who for who in asking if who not in missing]:
                python = args.peers if who == "langgraph" else sys.executable
                # Kept to the end: ext4 passes over files that were deleted a moment ago, one by one, for each new one.
                found = _asked(python, who, data, server, args, Path(tempfile.mkdtemp(dir=folder)))
                if isinstance(found, str):
                    missing[who] = found
                    continue
                rows[who].append(found)
                print(f"round {number + 1}, {NAMES[who]}: {found}", file=sys.stderr)
    beside = [who for who in NAMES if who not in SPREAD or who == "editloupe"]
    for block, names, make in (("load", beside, report), ("processes", SPREAD, spread_report)):
        text = make({who: rows[who] for who in names if rows.get(who)}, args)
        told = [f"{NAMES[who]} was not measured: {missing[who]} is not installed." for who in names if who in missing]
        show(block, "\n\n".join([text, *told, ""]), write=args.write and {*names} <= {*asking})


def report(rows: dict[str, list[Row]], args: argparse.Namespace) -> str:
    """The middle of the rounds as a Markdown table, with the ratios to the lean loop of the same round."""
    middle = {who: _middle(found) for who, found in rows.items()}
    columns = ("asked by", f"{SHARE}:", "rate ÷ lean:", "CPU ms a sample:", "CPU ÷ lean:", "peak MB:", "disk MB:")
    lines = []
    for who, row in sorted(middle.items(), key=lambda item: item[1].cpu_ms):
        rate, cpu = (_ratio(rows[who], rows.get("lean", []), of) for of in ("rate", "cpu_ms"))
        used = f"{row.peak_mb:.0f}", f"{row.disk_mb:.0f}"
        lines.append((NAMES[who], f"{row.share:.2f}", rate, f"{row.cpu_ms:.0f}", cpu, *used))
    return f"{_conditions(args)}\n\n{table(columns, lines)}"


def spread_report(rows: dict[str, list[Row]], args: argparse.Namespace) -> str:
    """The middle of the rounds of the ways to spread a run, with the ratios to one core in the same round."""
    columns = (
        "spread over", f"{SHARE}:", "rate ÷ one core:", "CPU ms a sample:", "of it the parent:", "cores busy:",
        "cores busy with others:", "s to the first call:", "rate after it ÷ one core:", "peak MB:", "disk MB:",
    )  # fmt: skip
    lines = []
    for who, found in rows.items():
        row, (rate, after) = _middle(found), (_ratio(found, rows.get(ONE_CORE, []), of) for of in ("rate", "after"))
        parent = f"{row.parent_ms:.0f}" if who == "editloupe_ray" else ""
        figures = [
            NAMES[who], f"{row.share:.2f}", rate, f"{row.cpu_ms:.0f}", parent, f"{row.cores:.1f}", f"{row.others:.1f}",
            f"{row.start:.1f}", after, f"{row.peak_mb:.0f}", f"{row.disk_mb:.0f}",
        ]  # fmt: skip
        lines.append(figures)
    return f"{_conditions(args)}\n\n{table(columns, lines)}"


def _conditions(args: argparse.Namespace) -> str:
    rounds = "1 round" if args.rounds == 1 else f"the median of {args.rounds} rounds"
    return (
        f"{args.connections} connections, {args.latency:g} s an answer, {args.samples} samples of {CALLS} calls, "
        f"{os.cpu_count()} cores; {rounds}; memory above what the imports take."
    )


def _ratio(found: list[Row], base: list[Row], of: str) -> str:
    """The median of the ratios of the same rounds; "" where there is nothing to compare with."""
    pairs = list(zip(found, base, strict=False))
    return f"{statistics.median(getattr(a, of) / getattr(b, of) for a, b in pairs):.2f}" if pairs else ""


def _middle(found: list[Row]) -> Row:
    return Row(**{field.name: statistics.median(getattr(row, field.name) for row in found) for field in fields(Row)})


def _asked(python: str, who: str, data: Path, server: Server, args: argparse.Namespace, out: Path) -> Row | str:
    """Return what an asker took, or the name of the package that it lacks."""
    command = [python, "-m", askers.__name__, who, str(data), server.url, str(args.connections), str(out)]
    root = str(Path(__file__).resolve().parents[2])
    own = {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    server.seen()
    with subprocess.Popen(command, env={**compiled_once(data.parent), **own}, cwd=out, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        ready = process.stdout.readline().strip()
        if ready.startswith("{"):
            return str(json.loads(ready)["missing"])
        if ready == "ready":
            watch = Watch(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            said = process.stdout.readline()
            while said and not said.startswith("{"):
                said = process.stdout.readline()
            used = watch.end() if said else None
    if process.returncode:
        raise SystemExit(f"{NAMES[who]} failed with exit code {process.returncode}")
    told, first = json.loads(said), server.seen().first
    assert used is not None and first is not None
    calls, start = CALLS * args.samples, first - told["began"]
    return Row(
        rate=calls / told["seconds"],
        share=calls / told["seconds"] / (args.connections / args.latency),
        start=start,
        after=calls / (told["seconds"] - start),
        cpu_ms=1000 * used.cpu / args.samples,
        parent_ms=1000 * used.own / args.samples,
        cores=used.cpu / told["seconds"],
        others=used.others / told["seconds"],
        peak_mb=used.grown,
        disk_mb=told["disk"],
    )


if __name__ == "__main__":
    main()
