"""Tools that compute share the machine's cores; tasks that wait for a backend hold none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cv2
import pytest
from pydantic import BaseModel

from editloupe import cores as of_process
from editloupe.backends.function import FunctionLMM
from editloupe.findings import Observation
from editloupe.tools.base import Toolbox
from tests.conftest import final
from tests.setups import open_with, run_over


class _Meets:
    """A tool that answers when `parties` calls are under way at once, or after a while."""

    name, version, description = "meets", "1", "Waits for others."

    class Args(BaseModel):
        """No arguments."""

    def __init__(self, parties: int, *, computes: bool, wait_s: float) -> None:
        self.computes, self.most, self._wait_s = computes, 0, wait_s
        self._barrier, self._lock, self._under_way = threading.Barrier(parties), threading.Lock(), 0

    def __call__(self, args: object, context: object) -> Observation:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(self._wait_s)
        with self._lock:
            self._under_way -= 1
        return Observation(text="done")


@pytest.mark.parametrize(("computes", "given"), [(False, None), (True, None), (True, 1)])
def test_tools_that_compute_wait_for_a_core_and_others_do_not(
    computes: bool, given: int | None, edits: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(of_process, "_free", of_process._free)
    if given is not None:
        of_process.use_cores(given)
    cores = given or of_process.usable_cores()
    meets = _Meets(cores + 1, computes=computes, wait_s=0.3 if computes else 60)
    call = '<tool_call>{"name": "meets", "parameters": {}}</tool_call>'
    setup = open_with(
        backend=FunctionLMM(lambda messages: call if len(messages) < 3 else final("Wrong Action")), criteria=("if",)
    )
    setup = replace(setup, toolbox=Toolbox(tools={"meets": meets}))
    threads = cv2.getNumThreads()
    outcome = run_over(setup, edits(cores + 1), tmp_path / "run", concurrency=cores + 1)
    assert [finding.status for finding in outcome.findings] == ["ok"] * (cores + 1)
    assert meets.most == cores + (not computes)
    assert cv2.getNumThreads() == threads


class _Judges:
    """A tool that computes, and judges a folder for it."""

    name, version, description, computes = "judges", "1", "Asks a judge.", True

    class Args(BaseModel):
        """No arguments."""

    def __init__(self, path: Path, out: Path) -> None:
        self._path, self._runs, self._parties = (
            path,
            (out / str(n) for n in itertools.count()),
            threading.Barrier(of_process.usable_cores()),
        )

    def __call__(self, args: object, context: object) -> Observation:
        self._parties.wait(60)  # every core is held
        inner = open_with(backend=FunctionLMM(lambda messages: final("Wrong Action")), criteria=("if",))
        outcome = run_over(inner, self._path, next(self._runs))
        return Observation(text=", ".join(finding.status for finding in outcome.findings))


def test_tools_that_compute_may_ask_a_judge_while_they_hold_every_core(edits: Callable[..., Path], tmp_path: Path):
    cores, path = of_process.usable_cores(), edits(of_process.usable_cores())
    call = '<tool_call>{"name": "judges", "parameters": {}}</tool_call>'
    lmm = FunctionLMM(lambda messages: call if len(messages) < 3 else final("Wrong Action"))
    setup = replace(
        open_with(backend=lmm, criteria=("if",)), toolbox=Toolbox(tools={"judges": _Judges(path, tmp_path / "inner")})
    )
    outcome = run_over(setup, path, tmp_path / "run", concurrency=cores)
    assert [finding.status for finding in outcome.findings] == ["ok"] * cores
    assert len(list((tmp_path / "inner").iterdir())) == cores


def test_a_task_that_waits_for_its_backend_holds_no_core(edits: Callable[..., Path], tmp_path: Path):
    tasks = of_process.usable_cores() + 2
    together = threading.Barrier(tasks)

    def reply(messages: object) -> str:
        # All are asked before any is answered; else the barrier breaks, and the finding is `backend_failed`.
        together.wait(60)
        return final("Wrong Action")

    setup = open_with(backend=FunctionLMM(reply), criteria=("if",))
    outcome = run_over(setup, edits(tasks), tmp_path / "run", concurrency=tasks)
    assert [finding.status for finding in outcome.findings] == ["ok"] * tasks
