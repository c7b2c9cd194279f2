"""How much of an endpoint's latency a run uses, and what a sample costs in CPU and memory.

    python -m benchmarks.load                     # 64 connections, 0.5 s an answer, 256 samples of three calls
    python -m benchmarks.load --write             # and put the table into docs/backends.md

A server in a process of its own answers every chat completion after a fixed latency: two turns with a call of zoom_in, then
a label. Beside ours stands a lean loop over the same HTTP client, which keeps no trace, runs no tool and parses nothing:
the least that such a run can cost. Both send two pictures of 1024×768 px with each call; text in crops is not read.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.pages import put

CALLS = 3
_CALL = """<tool_call>
{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [%d, 100, 400, 400]}}
</tool_call>"""
_LABEL = "<Start Thinking>ok</Start Thinking><Start Final Answer>Flawless Execution</Start Final Answer>"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way of asking. share: calls a second over connections / latency.   cpu_ms, peak_mb: of the asking process."""

    who: str
    share: float
    cpu_ms: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--write", action="store_true", help="put the table into docs/backends.md")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, args.latency), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/v1"
    with tempfile.TemporaryDirectory() as folder:
        data = _drawn(Path(folder), args.samples)
        rows = []
        for who, work in (("a lean loop", _lean), ("editloupe", _judged)):
            # In a process of its own, so that CPU time and memory are its own.
            end, other = context.Pipe()
            asker = context.Process(target=_measured, args=(other, work.__name__, data, url, args.connections))
            asker.start()
            seconds, cpu, peak = end.recv()
            asker.join()
            calls = CALLS * args.samples
            share = calls / seconds / (args.connections / args.latency)
            rows.append(Row(who=who, share=share, cpu_ms=1000 * cpu / args.samples, peak_mb=peak))
    server.terminate()
    text = report(rows, args.connections, args.latency, args.samples)
    print(text)
    if args.write:
        put("backends.md", "measured load", text)


def report(rows: list[Row], connections: int, latency: float, samples: int) -> str:
    """The rows as a Markdown table."""
    lines = [
        f"{connections} connections, {latency:g} s an answer, {samples} samples of {CALLS} calls; memory above what the "
        "imports take.",
        "",
        "| asked by | share of connections ÷ latency | CPU ms a sample | peak MB |",
        "|---|---:|---:|---:|",
    ]
    return "\n".join([*lines, *(f"| {r.who} | {r.share:.2f} | {r.cpu_ms:.0f} | {r.peak_mb:.0f} |" for r in rows)])


def _drawn(folder: Path, samples: int) -> Path:
    """A folder of edits: smooth noise of 1024×768 px as JPEG, a source and an edit for each sample."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    for side in ("source", "edited"):
        small = Image.fromarray(rng.integers(0, 256, (96, 128, 3), dtype=np.uint8))
        small.resize((1024, 768), Image.Resampling.BICUBIC).save(folder / "images" / f"{side}.jpg", quality=90)
    files = {"source_file_name": "images/source.jpg", "edited_file_name": "images/edited.jpg"}
    rows = [{"id": f"s{i}", **files, "instruction": f"Edit {i}."} for i in range(samples)]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def _measured(pipe: Connection, name: str, data: Path, url: str, connections: int) -> None:
    work = {"_lean": _lean, "_judged": _judged}[name]
    import openai  # noqa: F401 - before the clock starts

    import editloupe.runs.execute  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    work(data, url, connections)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pipe.send((seconds, cpu, (after.ru_maxrss - before.ru_maxrss) / 1024))


def _judged(data: Path, url: str, connections: int) -> None:
    from editloupe.runs.execute import execute
    from editloupe.runs.spec import Settings, Source, open_bench
    from editloupe.tools.settings import ToolSettings

    weights = ToolSettings(reader="off")
    bench = open_bench(Settings(backend=f"openai/m?base_url={url}&env=none", criteria=("if",), weights=weights))
    outcome = execute(bench, Source(path=data), data / "run", config={}, concurrency=connections, connections=connections)
    if any(finding.status != "ok" for finding in outcome.findings):
        raise SystemExit(f"not all was judged: {next(f.reason for f in outcome.findings if f.status != 'ok')}")


def _lean(data: Path, url: str, connections: int) -> None:
    """The same requests by the HTTP library alone, pictures encoded once for all."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)._client
    urls = [
        "data:image/jpeg;base64," + base64.b64encode((data / "images" / f"{side}.jpg").read_bytes()).decode()
        for side in ("source", "edited")
    ]
    samples = (data / "metadata.jsonl").read_text(encoding="utf-8").count("\n")

    def dialogue(number: int) -> None:
        pictures = [{"type": "image_url", "image_url": {"url": u}} for u in urls]
        messages: list[dict[str, object]] = [
            {"role": "user", "content": [{"type": "text", "text": f"Edit {number}."}, *pictures]}
        ]
        for _ in range(CALLS):
            answer = client.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}).json()
            said = answer["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Go on."}]

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(dialogue, range(samples)))


def _serve(pipe: Connection, latency: float) -> None:
    asyncio.run(_serving(pipe, latency))


async def _serving(pipe: Connection, latency: float) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                body = await reader.readexactly(length)
                turn = body.replace(b" ", b"").count(b'"role":"assistant"')
                await asyncio.sleep(latency)
                said = _LABEL if turn >= CALLS - 1 else _CALL % (100 + turn)
                usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
                reply = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})  # fmt: skip  # noqa: E501
                answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n{reply}"
                writer.write(answer.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**26, backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
