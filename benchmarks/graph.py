"""What LangGraph costs a task: the same nodes run by the compiled graph, and walked one after another by hand.

    python -m benchmarks.graph [--tasks 200] [--rounds 7]

A task has three thinks, two acts and a conclude; the model is a script and the tool returns a text, so that little else is
measured. Both ways run in turn in each round. Printed are the medians of the rounds, in ms of CPU a task.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from editloupe.agent.judge import initial_state, run_loop
from editloupe.agent.nodes import NODES
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context, LoopState
from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.findings import Observation
from editloupe.runs.setup import open_setup
from editloupe.tools.base import Toolbox
from editloupe.traces.record import TraceWriter
from editloupe.values import Sample, View

CALL = '<tool_call>{"name": "notes", "parameters": {}}</tool_call>'
SCRIPT = [CALL, CALL, "<Start Final Answer>Wrong Action</Start Final Answer>"]


class Notes:
    """A tool that only returns a text."""

    name, version, description = "notes", "1", "Returns a note."

    class Args(BaseModel):
        """No arguments."""

    def __call__(self, args: object, context: object) -> Observation:
        return Observation(text="a note")


def walk(state: LoopState, context: Context) -> LoopState:
    """Walk the nodes one after another, which no run does."""
    while state["next"] != "end":
        state = cast(LoopState, {**state, **NODES[state["next"]](state, context)})
    return state


def contexts(count: int) -> list[tuple[LoopState, Context]]:
    """Return tasks that are ready to run, each with its state."""
    picture = np.zeros((64, 64, 3), np.uint8)
    sample = Sample.from_images(picture, 255 - picture, "Invert it.")
    judge: dict[str, Any] = {"backend": ScriptedLMM(SCRIPT)}
    setup = open_setup(RunConfig.make(judge=judge, option={"criteria": ["if"]}))
    toolbox = Toolbox(tools={"notes": cast(Any, Notes())})
    (task,) = setup.protocol.plan([sample], {})
    images = ImageStore()
    views = {recipe.alias: View.whole(recipe.origin) for recipe in task.views}
    made = []
    for _ in range(count):
        recorder = TraceRecorder.resume(TraceWriter(None))
        context = Context(
            backend=setup.backend, judge=setup.judge, toolbox=toolbox, images=images, recorder=recorder, task=task
        )
        made.append((initial_state(context, views), context))
    return made


def cpu_ms(run: Callable[[LoopState, Context], LoopState], tasks: int) -> float:
    """Return the CPU of one task in ms."""
    made = contexts(tasks)
    began = time.process_time()
    ended = [run(state, context) for state, context in made]
    took = time.process_time() - began
    assert all(state["outcome"] and state["outcome"]["status"] == "ok" and state["turns"] == 2 for state in ended)
    return 1000 * took / tasks


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tasks", type=int, default=200)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    cpu_ms(run_loop, 20)
    rounds = [(cpu_ms(run_loop, given.tasks), cpu_ms(walk, given.tasks)) for _ in range(given.rounds)]
    graph, walked = (median(one) for one in zip(*rounds, strict=True))
    share = median(a - b for a, b in rounds)
    print(f"compiled graph {graph:.2f} ms a task, nodes by hand {walked:.2f} ms, LangGraph's share {share:.2f} ms")


if __name__ == "__main__":
    main()
