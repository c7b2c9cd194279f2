"""Work at once: what begins when, what comes before a failure, and who holds a core meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cv2
import pytest
from pydantic import BaseModel

from editloupe import cores as of_process
from editloupe.backends.function import FunctionLMM
from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import RunConfig
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError
from editloupe.findings import Observation
from editloupe.runs.executors import Stop, together
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.tools.base import Toolbox
from tests.conftest import Edits, final
from tests.setups import open_with, run_over


def test_the_next_item_begins_while_results_are_looked_at_and_nothing_after_a_failure():
    begun = [threading.Event() for _ in range(4)]
    items = iter(range(4))

    def work(item: int) -> int:
        begun[item].set()
        if item == 2:
            raise RuntimeError("no room")
        return item

    batches = together(work, lambda: next(items, None), width=1)
    assert next(batches) == [0]
    # Nobody has asked for another result yet.
    assert begun[1].wait(5) and not begun[2].is_set()
    # What ended before a failure is handed out.
    assert next(batches) == [1]
    with pytest.raises(RuntimeError, match="no room"):
        next(batches)
    assert next(items) == 3, "nothing is begun after it"


def test_a_stop_that_waits_no_longer_leaves_what_is_under_way() -> None:
    stop, late = Stop(), threading.Event()
    items = iter([0.0, 30.0])

    def work(seconds: float) -> float:
        late.wait(seconds)
        return seconds

    batches = together(work, lambda: next(items, None), width=2, stop=stop)
    assert next(batches) == [0.0]
    began = time.monotonic()
    stop.within(0.3)
    assert list(batches) == []
    assert 0.3 <= time.monotonic() - began < 5
    late.set()


def test_what_does_not_go_with_ray_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for given, told in (
        ({"ray_gpus": 1.0}, "--set ray_gpus=… needs --executor ray"),
        ({"executor": "ray", "ray_gpus": 1.5}, "expected a whole number, or a fraction of one GPU, found 1.5"),
        ({"executor": "ray", "processes": 2}, "--processes is for one machine"),
    ):
        with pytest.raises(ConfigError, match=told):
            RunConfig.make(**given)
    config = RunConfig.make(judge={"backend": ScriptedLMM([])}, executor="ray")
    with pytest.raises(ConfigError, match="an object cannot go to another process; name it by its URI"):
        drive(open_setup(config), tmp_path / "run", loaded=Loaded(samples=(), format="manifest", rejected=()))
    assert not (tmp_path / "run").exists()


CALL = '<tool_call>{"name": "of_a_test", "parameters": {}}</tool_call>'


class OfATest:
    """A tool that does what the test gives it to do."""

    name, version, description = "of_a_test", "1", "Does something."

    class Args(BaseModel):
        """No arguments."""

    def __init__(self, does: Callable[[], object], *, computes: bool = True) -> None:
        self.does, self.computes = does, computes

    def __call__(self, args: object, context: object) -> Observation:
        self.does()
        return Observation(text="done")


def judged(path: Path, out: Path, tool: OfATest) -> list[str]:
    """The statuses of the edits, all judged at once with this tool."""
    lmm = FunctionLMM(lambda messages: CALL if len(messages) < 3 else final("Wrong Action"))
    setup = replace(open_with(backend=lmm, criteria=("if",)), toolbox=Toolbox(tools={tool.name: tool}))
    return [finding.status for finding in run_over(setup, path, out, concurrency=8 + of_process.usable_cores()).findings]


@pytest.mark.parametrize(("computes", "given"), [(False, None), (True, None), (True, 1)])
def test_tools_that_compute_wait_for_a_core_and_others_do_not(
    computes: bool, given: int | None, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(of_process, "_free", of_process._free)
    if given is not None:
        of_process.use_cores(given)
    cores = given or of_process.usable_cores()
    barrier, lock, under_way, most = threading.Barrier(cores + 1), threading.Lock(), [0], [0]

    def meet() -> None:
        """Wait for one more call than there are cores, or for a while."""
        with lock:
            under_way[0] += 1
            most.append(under_way[0])
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.3 if computes else 60)
        with lock:
            under_way[0] -= 1

    threads = cv2.getNumThreads()
    assert judged(edits(cores + 1), tmp_path / "run", OfATest(meet, computes=computes)) == ["ok"] * (cores + 1)
    assert max(most) == cores + (not computes)
    assert cv2.getNumThreads() == threads
