"""How much of an endpoint's latency a run uses, and what a sample costs in CPU, memory and disk, beside others.

    python -m benchmarks.load                     # 64 connections, 0.5 s an answer, 192 pairs of three calls, 3 rounds
    python -m benchmarks.load --peers PYTHON      # an interpreter that has inspect-ai, langgraph and langchain-openai
    python -m benchmarks.load --only lean,editloupe_alike
    python -m benchmarks.load --write             # and put the tables into docs/backends.md and docs/scale.md
    python -m benchmarks.load --only lean,editloupe,editloupe_workers --write     # docs/scale.md alone

A server in a process of its own answers every chat completion after a fixed time: two turns with a call of a tool, then a
label. No two pairs are alike, so that nothing is decoded, hashed or encoded for several samples at once. Beside editloupe
stand threads with the openai SDK, and Inspect AI and a plain LangGraph loop where they are installed, and a lean loop over
the HTTP library alone: the least that such a run can cost. All send the same two pictures of 1024×768 px with each call and
hold the same dialogue, with two crops that are at hand; editloupe asks a second time, with its tools really running. They
take turns, round after round, and the middle round counts. Threads are as many as each takes by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import askers
from benchmarks.load.data import draw
from benchmarks.load.server import CALLS, serving
from benchmarks.pages import put

NAMES = {
    "lean": "a lean loop",
    "editloupe_alike": "editloupe, the same dialogue",
    "editloupe": "editloupe, localize_differences and zoom_in running",
    "editloupe_workers": "the same, `--workers 2`",
    "threads_openai": "threads + openai",
    "langgraph": "LangGraph + langchain-openai",
    "inspect_ai": "Inspect AI",
}

PAGES = (
    ("backends.md", "measured load", [who for who in NAMES if who != "editloupe_workers"]),
    ("scale.md", "measured workers", ["lean", "editloupe", "editloupe_workers"]),
)
"""Page, block, and whose rows stand there."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One round of one way of asking. share: calls a second over connections / latency.   cpu_ms: of a sample."""

    share: float
    cpu_ms: float
    peak_mb: float
    disk_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that runs Inspect AI and LangGraph")
    parser.add_argument("--only", default=",".join(NAMES), help="who asks, by names with commas between them")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/backends.md and docs/scale.md")
    args = parser.parse_args()
    asking = [who for who in NAMES if who in args.only.split(",")]
    rows: dict[str, list[Row]] = {who: [] for who in asking}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, serving(args.latency) as server:
        data = draw(Path(folder) / "data", args.samples)
        for number in range(args.rounds):
            for who in [who for who in asking if who not in missing]:
                python = args.peers if who in ("langgraph", "inspect_ai") else sys.executable
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    told = _asked(python, who, data, server.url, args.connections, Path(out))
                if "missing" in told:
                    missing[who] = str(told["missing"])
                    continue
                rate = CALLS * args.samples / told["seconds"]
                row = Row(
                    share=rate / (args.connections / args.latency),
                    cpu_ms=1000 * told["cpu"] / args.samples,
                    peak_mb=told["peak"],
                    disk_mb=told["disk"],
                )
                rows[who].append(row)
                print(f"round {number + 1}, {NAMES[who]}: {row}", file=sys.stderr)
    print(report({who: found for who, found in rows.items() if found}, missing, args))
    for page, block, names in PAGES if args.write else ():
        if {*names} <= {*asking}:
            told = {who: why for who, why in missing.items() if who in names}
            put(page, block, report({who: rows[who] for who in names if rows[who]}, told, args))


def report(rows: dict[str, list[Row]], missing: dict[str, str], args: argparse.Namespace) -> str:
    """The middle of the rounds as a Markdown table, with the ratios to the lean loop of the same round."""
    middle = {who: _middle(found) for who, found in rows.items()}
    lines = [
        f"{args.connections} connections, {args.latency:g} s an answer, {args.samples} samples of {CALLS} calls, "
        f"{os.cpu_count()} cores; the median of {args.rounds} rounds; memory above what the imports take.",
        "",
        "| asked by | share of connections ÷ latency | rate ÷ lean | CPU ms a sample | CPU ÷ lean | peak MB | disk MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for who, row in sorted(middle.items(), key=lambda item: item[1].cpu_ms):
        pairs = list(zip(rows[who], rows.get("lean", []), strict=False))
        rate = f"{statistics.median(a.share / b.share for a, b in pairs):.2f}" if pairs else ""
        cpu = f"{statistics.median(a.cpu_ms / b.cpu_ms for a, b in pairs):.2f}" if pairs else ""
        figures = f"{row.share:.2f} | {rate} | {row.cpu_ms:.0f} | {cpu} | {row.peak_mb:.0f} | {row.disk_mb:.0f}"
        lines.append(f"| {NAMES[who]} | {figures} |")
    told = [f"{NAMES[who]} was not measured: {package} is not installed." for who, package in missing.items()]
    return "\n".join([*lines, *(["", *told] if told else [])])


def _middle(found: list[Row]) -> Row:
    return Row(
        share=statistics.median(row.share for row in found),
        cpu_ms=statistics.median(row.cpu_ms for row in found),
        peak_mb=statistics.median(row.peak_mb for row in found),
        disk_mb=statistics.median(row.disk_mb for row in found),
    )


def _asked(python: str, who: str, data: Path, url: str, connections: int, out: Path) -> dict[str, float]:
    command = [python, "-m", askers.__name__, who, str(data), url, str(connections), str(out)]
    root = str(Path(__file__).resolve().parents[2])
    own = {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(command, env={**os.environ, **own}, cwd=out, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{NAMES[who]} failed with exit code {done.returncode}")
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


if __name__ == "__main__":
    main()
