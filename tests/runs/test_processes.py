"""Tools and measures in processes of their own: equal findings, and nothing lost or left behind when one dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from editloupe import plugins
from editloupe.backends.function import FunctionLMM
from editloupe.chat import ToolCall
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import MeasureError
from editloupe.measures.base import Models
from editloupe.models.upscale.base import NetworkUpscaler
from editloupe.runs.outcome import Outcome
from editloupe.runs.pool import Pool, measured_here, pool_of
from editloupe.runs.verify import verify
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.tools.enhancer import Enhancer
from editloupe.tools.function import tool
from editloupe.tools.outcome import ToolOutcome, run_call
from editloupe.traces.events import ToolResult
from editloupe.traces.read import read_trace
from editloupe.values import Json, View
from tests.conftest import LOOK, Edits, final, pixels, png
from tests.runs.computing import CALL, Dies, Where, naps
from tests.runs.test_kill import findings
from tests.setups import open_with, run_over
from tests.toys.install import install

ZOOM = '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Crop 1", "bbox": [0, 0, 400, 500]}}</tool_call>'


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as made:
        yield made


def context_of(images: ImageStore) -> ToolContext:
    before, after = (images.add_bytes(png(rgb)) for rgb in pixels(3, spots=2))
    return ToolContext(images=images, views={"Original Image": View.whole(before), "Edited Image": View.whole(after)})


def called(pool: Pool | None, one: Tool, context: ToolContext | None = None) -> ToolOutcome:
    box = Toolbox(tools={one.name: one})
    call = ToolCall(id="1", name=one.name, arguments={})
    return run_call(pool.tools(box) if pool else box, call, context or context_of(ImageStore(pool and pool.folder)), None)


def says(*replies: str) -> FunctionLMM:
    """A model that says one after the other in each conversation."""
    return FunctionLMM(lambda messages: replies[sum(message["role"] == "assistant" for message in messages)])


def judged(edits: Path, out: Path, own: Tool | None = None, *, processes: int, **given: Any) -> Outcome:
    lmm = says(*((LOOK, ZOOM) if own is None else (CALL,)), final("Wrong Action"))
    setup = open_with(backend=lmm, criteria=("if",), processes=processes)
    if own is not None:
        setup = replace(setup, toolbox=Toolbox(tools={own.name: own}))
    return run_over(setup, edits, out, **{"concurrency": 4, **given})


def recorded(out: Path) -> list[Mapping[str, Json]]:
    """The observations of a run, as its traces have them."""
    traces = [read_trace(path).events for path in sorted(out.glob("traces/*/*/*.jsonl"))]
    return [event.observation for events in traces for event in events if isinstance(event, ToolResult)]


def test_a_run_finds_the_same_with_and_without_processes(edits: Edits, tmp_path: Path):
    folder, runs = edits(4), (tmp_path / "1", tmp_path / "2")
    for out in runs:
        outcome = judged(folder, out, processes=int(out.name))
        assert [finding.status for finding in outcome.findings] == ["ok"] * 4
        assert outcome.tool_calls == len(recorded(out)) == 8
    for of_one, of_two in (
        [json.dumps(findings(out), sort_keys=True) for out in runs],
        [recorded(out) for out in runs],
        [{path.name: path.read_bytes() for path in out.glob("blobs/*/*")} for out in runs],
    ):
        assert of_one == of_two


def test_what_computes_and_can_be_pickled_crosses_and_all_else_stays(pool: Pool):
    @tool
    def notebook(text: str = "") -> str:
        """Say where it runs."""
        return str(os.getpid())

    class OfANotebook(Where):
        pass

    network = {"enhancer": Enhancer(NetworkUpscaler(Path("weights.pth"), digest="0"))}
    idle, big = Where(), Where()
    idle.computes = False  # type: ignore[misc]
    big.weights = bytes(2**20)  # type: ignore[attr-defined]
    here = str(os.getpid())
    assert called(pool, Where()).observation.text not in (here, "")
    assert pool.tools(Toolbox(tools=network)).tools == network
    for one in (Where(lambda: None), OfANotebook(), notebook, idle, big):
        for where in (pool, None):
            assert called(where, one).observation.text == here


def test_a_measure_is_computed_there_and_one_that_dies_has_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    points = "[editloupe.measures]\ndying = tests.runs.computing:DyingMeasure\n"
    monkeypatch.syspath_prepend(str(install(tmp_path, name="dying-measure", entry_points=points)))
    plugins.forget()
    context = context_of(images := ImageStore(tmp_path / "blobs"))
    views = dict(zip(("source", "edited"), context.views.values(), strict=True))
    with Pool(1) as pool:
        there, here = (of("psnr", {"mask": "none"}, views, images, Models()) for of in (pool.measured, measured_here))
        assert there == here
        with pytest.raises(MeasureError, match=r"the process that ran the measure dying was killed \(exit code -9") as lost:
            pool.measured("dying", {}, views, images, Models())
    assert lost.value.status == "tool_failed"
    plugins.forget()


def test_a_call_whose_process_dies_is_made_again_and_then_fails_alone(edits: Edits, tmp_path: Path):
    folder, killed = edits(2), "the process that ran where was killed (exit code -9, perhaps out of memory)"
    for times, statuses in ((1, ["ok", "ok"]), (2, ["tool_failed", "ok"])):
        dies = Dies(tmp_path / f"deaths{times}", times)
        outcome = judged(folder, tmp_path / f"run{times}", Where(dies), processes=2, concurrency=1)
        assert [finding.status for finding in outcome.findings] == statuses
        assert len(list(dies.folder.iterdir())) == times
    lost = outcome.findings[0]
    assert (lost.reason, lost.ending) == (killed, "tools")
    assert not any(part.wrong for part in verify(tmp_path / "run2"))
    # The same command goes on: the task is asked again.
    outcome = judged(folder, tmp_path / "run2", Where(dies), processes=2)
    assert [finding.status for finding in outcome.findings] == ["ok", "ok"]


def test_processes_start_where_they_are_asked_for_or_pay(tmp_path: Path):
    assert pool_of(RunConfig()) is None
    for given, unasked in (({"processes": 1}, True), ({"executor": "ray"}, True)):
        assert pool_of(RunConfig.model_validate(given), unasked=unasked) is None
    context = context_of(ImageStore(tmp_path))
    with Pool(1, after_s=0.05) as late:
        assert called(late, Where(), context).observation.text == str(os.getpid())
        called(late, Where(naps), context)
        assert called(late, Where(), context).observation.text != str(os.getpid())


def test_a_script_without_a_guard_judges_once(tmp_path: Path, edits: Edits):
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os
from editloupe import Judge, load_samples
from tests.runs.computing import CALL, Where
from tests.conftest import final
class Mine(Where):
    pass
print("begun", flush=True)
lmm = lambda messages: CALL if len(messages) < 3 else final("Wrong Action")
with Judge(lmm, criteria="if", tools=[Mine(), "localize_differences"], processes=2) as judge:
    [finding] = judge.judge(next(iter(load_samples({str(edits(1))!r}))))
print(finding.status)
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.stdout.split() == ["begun", "ok"], done.stderr


LEFT = """
import sys
from pathlib import Path
from editloupe.cli import output
from tests.runs.computing import Sleeps, Where
from tests.runs.test_processes import judged
output.GRACE_S = 0.2
edits, out, told = map(Path, sys.argv[1:])
with output.stoppable() as stop:
    judged(edits, out, Where(Sleeps(told)), processes=2, stop=stop)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, *(pytest.param(s, marks=pytest.mark.slow) for s in (SIGTERM, SIGINT))])
def test_no_process_is_left_behind(end: int, edits: Edits, tmp_path: Path):
    told = tmp_path / "told"
    command = [sys.executable, "-c", LEFT, str(edits(1)), str(tmp_path / "run"), str(told)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as parent:
        until = time.monotonic() + 60
        while not told.exists() and time.monotonic() < until and parent.poll() is None:
            time.sleep(0.02)
        # As a terminal and a service manager do: to all. A kill −9 reaches the parent alone.
        parent.kill() if end == signal.SIGKILL else os.killpg(parent.pid, end)
        # The pipe ends with the last process that holds it.
        assert "Traceback" not in parent.communicate(timeout=60)[1]
    assert told.read_text() != str(parent.pid)
