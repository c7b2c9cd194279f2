"""Work at once: what begins when, and what comes before a failure."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import RunConfig
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError
from editloupe.runs.executors import Stop, together
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup


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
    assert not begun[3].is_set()


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
        ({"ray_gpus": 1.0}, "--ray-gpus needs --executor ray"),
        ({"executor": "ray", "ray_gpus": 1.5}, "expected a whole number, or a fraction of one GPU, found 1.5"),
        ({"executor": "ray", "processes": 2}, "--processes is for one machine"),
    ):
        with pytest.raises(ConfigError, match=told):
            RunConfig.make(**given)
    config = RunConfig.make(judge={"backend": ScriptedLMM([])}, executor="ray")
    with pytest.raises(ConfigError, match="an object cannot go to another process; name it by its URI"):
        drive(open_setup(config), tmp_path / "run", loaded=Loaded(samples=(), format="manifest", rejected=()))
    assert not (tmp_path / "run").exists()
