"""How fast recorded tasks replay, and how large a long trace is.

    python -m benchmarks.replay               # some two minutes, on one core
    python -m benchmarks.replay --write       # and put the table into benchmarks/README.md

Replay: the examples judged by the pixel baseline, then replayed with recorded model and tools, and the gallery that comes
with editloupe; tasks a second of CPU time, so that what else the machine does counts for little. Bytes: twenty turns of
zoom_in at twenty places, by a script; text is what the messages say, each once.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import timeit
from collections.abc import Iterable
from pathlib import Path

from benchmarks.pages import options, show, table
from editloupe.backends.scripted import ScriptedLMM
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replay
from editloupe.runs.store import RunStore
from editloupe.tasks import Budget
from editloupe.traces import GALLERY
from editloupe.traces.read import read_trace
from tests.setups import open_with, run_over

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "edits"
TURNS = 20
ROUNDS = 20

Row = tuple[str, str, str]


def main() -> None:
    args = options(__doc__).parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        rows = [*replayed(Path(folder) / "run"), *sized(Path(folder) / "long")]
    show("replay", table(("what", "measured", "wanted"), rows), write=args.write)


def replayed(out: Path) -> Iterable[Row]:
    """Tasks a second of CPU time, judged and replayed."""
    setup = open_with()
    began = time.process_time()
    outcome = run_over(setup, EXAMPLES, out, config={}, concurrency=1)
    judged = outcome.asked / (time.process_time() - began)
    yield "tasks a second of CPU, judged by the pixel baseline", f"{judged:.1f}", ""
    rate = _replayed(out)
    yield "the same tasks, replayed", f"{rate:.0f}, {rate / judged:.0f} times as many", "250 and more"
    yield "the gallery, replayed", f"{_replayed(GALLERY):.0f}", "250 and more"


def _replayed(folder: Path) -> float:
    """Return how many recorded tasks of a run replay in a second of CPU time. All must say what they said."""
    findings = RunStore.read(folder).current()
    replay = Replay(folder=folder, live=Live())

    def once() -> None:
        verdicts = {one.verdict for one in replay.tasks(findings)}
        assert verdicts == {"same"}, verdicts

    once()
    # The fastest of several rounds: what else the machine did is not measured.
    return len(findings) / min(timeit.repeat(once, timer=time.process_time, number=1, repeat=ROUNDS))


def sized(out: Path) -> Iterable[Row]:
    """Bytes of one long trace."""
    disk, pictures, text = long_trace(out)
    ratio = f"{disk / (pictures + text):.3f} × unique pictures ({pictures:,}) and text ({text:,})"
    yield f"bytes on disk of {TURNS} turns with {TURNS} crops", f"{disk:,}: {ratio}", "at most 1.1 ×"


def long_trace(out: Path) -> tuple[int, int, int]:
    """Bytes of a task of TURNS turns with a crop each: trace and pictures on disk, pictures once, text of messages once."""

    def call(turn: int) -> str:
        x, y = 180 * (turn % 5), 240 * (turn // 5)
        bbox = json.dumps([x, y, x + 240, y + 240])
        parameters = f'{{"target_image": "Edited Image", "bbox": {bbox}}}'
        return f'<tool_call>{{"name": "zoom_in", "parameters": {parameters}}}</tool_call>'

    script = [f"<Start Thinking>Place {i + 1}.</Start Thinking>\n{call(i)}" for i in range(TURNS)]
    script.append("<Start Final Answer>Flawless Execution</Start Final Answer>")
    setup = open_with(backend=ScriptedLMM(script), criteria=("if",), budget=Budget(max_turns=TURNS))
    outcome = run_over(setup, EXAMPLES, out, config={}, concurrency=1, limit=1)
    (finding,) = outcome.findings
    path = out / str(finding.trace)
    trace = read_trace(path)
    crops = {image.sha256 for step in trace.steps() for o in step.observations for image in o.images}
    assert (finding.turns, len(crops)) == (TURNS, TURNS), (finding.turns, len(crops))
    text = sum(len(message.text.encode()) for message in trace.messages())
    pictures = sum(blob.stat().st_size for blob in (out / "blobs").glob("*/*"))
    return path.stat().st_size + pictures, pictures, text


if __name__ == "__main__":
    main()
