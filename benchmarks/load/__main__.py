"""How much of an endpoint's latency a run uses, and what a sample costs in CPU and memory, beside others.

    python -m benchmarks.load                     # 64 connections, 0.5 s an answer, 256 samples of three calls, 3 rounds
    python -m benchmarks.load --peers PYTHON      # an interpreter that has inspect-ai, langgraph and langchain-openai
    python -m benchmarks.load --write             # and put the table into docs/backends.md

A server in a process of its own answers every chat completion after a fixed time: two turns with a call of zoom_in, then a
label. Beside editloupe stand Inspect AI and a plain LangGraph loop where they are installed, and a lean loop over the HTTP
library alone: the least that such a run can cost. All send the same two pictures of 1024×768 px with each call; editloupe
alone runs a tool, and sends its crops too. They take turns, round after round, and the middle round counts.
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
    "editloupe": "editloupe",
    "langgraph": "LangGraph + langchain-openai",
    "inspect_ai": "Inspect AI",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One round of one way of asking. share: calls a second over connections / latency.   cpu_ms: of a sample."""

    share: float
    cpu_ms: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that runs Inspect AI and LangGraph")
    parser.add_argument("--write", action="store_true", help="put the table into docs/backends.md")
    args = parser.parse_args()
    rows: dict[str, list[Row]] = {who: [] for who in NAMES}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, serving(args.latency) as server:
        data = draw(Path(folder) / "data", args.samples)
        for number in range(args.rounds):
            for who in [who for who in NAMES if who not in missing]:
                python = sys.executable if who in ("lean", "editloupe") else args.peers
                told = _asked(python, who, data, server.url, args.connections)
                if "missing" in told:
                    missing[who] = str(told["missing"])
                    continue
                rate = CALLS * args.samples / told["seconds"]
                row = Row(
                    share=rate / (args.connections / args.latency),
                    cpu_ms=1000 * told["cpu"] / args.samples,
                    peak_mb=told["peak"],
                )
                rows[who].append(row)
                print(f"round {number + 1}, {NAMES[who]}: {row}", file=sys.stderr)
    text = report({who: found for who, found in rows.items() if found}, missing, args)
    print(text)
    if args.write:
        put("backends.md", "measured load", text)


def report(rows: dict[str, list[Row]], missing: dict[str, str], args: argparse.Namespace) -> str:
    """The middle of the rounds as a Markdown table, with the ratio of editloupe's CPU time to each."""
    middle = {who: _middle(found) for who, found in rows.items()}
    ours = middle["editloupe"].cpu_ms
    lines = [
        f"{args.connections} connections, {args.latency:g} s an answer, {args.samples} samples of {CALLS} calls, "
        f"{os.cpu_count()} cores; the median of {args.rounds} rounds; memory above what the imports take.",
        "",
        "| asked by | share of connections ÷ latency | CPU ms a sample | editloupe's CPU ÷ its | peak MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for who, row in sorted(middle.items(), key=lambda item: item[1].cpu_ms):
        ratio = "" if who == "editloupe" else f"{ours / row.cpu_ms:.2f}"
        lines.append(f"| {NAMES[who]} | {row.share:.2f} | {row.cpu_ms:.0f} | {ratio} | {row.peak_mb:.0f} |")
    told = [f"{NAMES[who]} was not measured: {package} is not installed." for who, package in missing.items()]
    return "\n".join([*lines, *(["", *told] if told else [])])


def _middle(found: list[Row]) -> Row:
    return Row(
        share=statistics.median(row.share for row in found),
        cpu_ms=statistics.median(row.cpu_ms for row in found),
        peak_mb=statistics.median(row.peak_mb for row in found),
    )


def _asked(python: str, who: str, data: Path, url: str, connections: int) -> dict[str, float]:
    command = [python, askers.__file__, who, str(data), url, str(connections)]
    # A peer's own environment gets nothing of ours but what the caller set; ours is found from here.
    root = str(Path(__file__).resolve().parents[2])
    own = {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1", **own}, cwd=data, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{NAMES[who]} failed with exit code {done.returncode}")
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


if __name__ == "__main__":
    main()
