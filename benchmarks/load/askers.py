"""Those who ask, each in a process of its own, so that CPU time and memory are its own:

    python benchmarks/load/askers.py WHO DATA URL CONNECTIONS

prints one line of JSON: seconds, cpu (seconds), peak (MB above what the imports take). Only the chosen one's packages are
needed. All hold the same dialogue: three calls with the same two pictures in each, and the replies between them.
"""

from __future__ import annotations

import base64
import json
import operator
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

CALLS = 3
GO_ON = "Go on."

Work = Callable[[Path, str, int], None]


def editloupe() -> Work:
    """A whole run: the loop, two zoomed crops, traces, blobs, findings. Text in crops is not read.

    Its own number of tasks at once: half as many more than connections.
    """
    return _run(crops=True)


def editloupe_alike() -> Work:
    """The same run with the others' dialogue: the tool that is called answers in two words and shows no picture."""
    return _run(crops=False)


def _run(*, crops: bool) -> Work:
    from dataclasses import replace

    import openai  # noqa: F401 - before the clock starts

    from editloupe.findings import Observation
    from editloupe.tools.settings import ToolSettings
    from editloupe.tools.zoom_in import ZoomIn
    from tests.setups import open_with, run_over

    class Words(ZoomIn):
        def __call__(self, args: Any, context: Any) -> Observation:
            return Observation(text=GO_ON)

    def work(data: Path, url: str, connections: int) -> None:
        weights = ToolSettings(reader="off")
        setup = open_with(backend=f"openai/m?base_url={url}&env=none", criteria=("if",), weights=weights)
        if not crops:
            tools = {**setup.toolbox.tools, "zoom_in": Words.open(weights)}
            setup = replace(setup, toolbox=replace(setup.toolbox, tools=tools))
        outcome = run_over(setup, data, data / f"run-{time.time_ns()}", config={}, max_connections=connections)
        if any(finding.status != "ok" for finding in outcome.findings):
            raise SystemExit(f"not all was judged: {next(f.reason for f in outcome.findings if f.status != 'ok')}")

    return work


def lean() -> Work:
    """The requests alone, by the HTTP library below the openai SDK, pictures encoded once: the least that it can cost."""
    import openai

    def work(data: Path, url: str, connections: int) -> None:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)._client
        pictures = _pictures(data)

        def dialogue(number: int) -> None:
            messages = [{"role": "user", "content": [{"type": "text", "text": f"Edit {number}."}, *pictures]}]
            for _ in range(CALLS):
                answer = client.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}).json()
                said = answer["choices"][0]["message"]["content"]
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": GO_ON}]

        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(dialogue, range(_samples(data))))

    return work


def langgraph() -> Work:
    """A plain graph of two nodes around ChatOpenAI, no trace, no tool, pictures encoded once for all."""
    from langchain_core.messages import AnyMessage, HumanMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    # The annotation is looked up in the module, since annotations are texts here.
    globals()["AnyMessage"] = AnyMessage

    def work(data: Path, url: str, connections: int) -> None:
        model = ChatOpenAI(model="m", base_url=url, api_key="none", max_retries=0, temperature=0)  # type: ignore[arg-type]
        pictures = _pictures(data)
        graph = StateGraph(State)
        graph.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("act", lambda state: {"messages": [HumanMessage(GO_ON)]})
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", lambda state: END if len(state["messages"]) >= 2 * CALLS else "act")
        graph.add_edge("act", "think")
        loop = graph.compile()

        def dialogue(number: int) -> None:
            content: list[Any] = [{"type": "text", "text": f"Edit {number}."}, *pictures]
            ended = loop.invoke({"messages": [HumanMessage(content)]})
            assert len(ended["messages"]) == 2 * CALLS

        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(dialogue, range(_samples(data))))

    return work


def inspect_ai() -> Work:
    """A task of Inspect AI with a solver that goes on twice, with its log as it comes; no scorer."""
    import openai  # noqa: F401 - before the clock starts
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, get_model
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    @solver
    def dialogue() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            for turn in range(CALLS):
                if turn:
                    state.messages.append(ChatMessageUser(content=GO_ON))
                state = await generate(state)
            return state

        return solve

    def work(data: Path, url: str, connections: int) -> None:
        pictures = [ContentImage(image=str(path)) for path in _files(data)]
        samples = [
            Sample(input=[ChatMessageUser(content=[ContentText(text=f"Edit {number}."), *pictures])])
            for number in range(_samples(data))
        ]
        [log] = eval(
            Task(dataset=MemoryDataset(samples), solver=dialogue()),
            model=get_model("openai/m", base_url=url, api_key="none", responses_api=False),
            max_connections=connections,
            max_samples=connections,
            adaptive_connections=False,
            temperature=0,
            display="none",
            log_dir=str(data / "logs"),
        )
        if log.status != "success":
            raise SystemExit(f"Inspect AI ended with {log.status}: {log.error and log.error.message}")

    return work


ASKERS: dict[str, Callable[[], Work]] = {f.__name__: f for f in (lean, editloupe, editloupe_alike, langgraph, inspect_ai)}


def _files(data: Path) -> list[Path]:
    return [data / "images" / f"{side}.jpg" for side in ("source", "edited")]


def _pictures(data: Path) -> list[dict[str, Any]]:
    texts = [base64.b64encode(path.read_bytes()).decode() for path in _files(data)]
    return [{"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}} for text in texts]


def _samples(data: Path) -> int:
    return (data / "metadata.jsonl").read_text(encoding="utf-8").count("\n")


def main(who: str, data: str, url: str, connections: str) -> None:
    try:
        work = ASKERS[who]()
    except ImportError as error:
        print(json.dumps({"missing": error.name}))
        return
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    work(Path(data), url, int(connections))
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = (after.ru_maxrss - before.ru_maxrss) / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
