"""Those who ask, each in a process of its own, so that CPU time and memory are its own:

    python -m benchmarks.load.askers WHO DATA URL CONNECTIONS OUT

prints "ready" when all is imported, begins with the next line of standard input, prints one line of JSON: began (by the
monotonic clock), seconds, disk (MB written to OUT), and ends with its input. Only the chosen one's packages are needed. All
hold the same dialogue about each pair: three calls with the same two pictures in each, the replies between them, and a crop
that is at hand after each reply.
"""

from __future__ import annotations

import atexit
import base64
import json
import operator
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.load.data import CROPS, crop_file
from benchmarks.load.server import LOOKS

CALLS = CROPS + 1
GO_ON = "Go on."


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One sample: what it asks, the two pictures, and the crops to come."""

    text: str
    pictures: tuple[Path, ...]
    crops: tuple[Path, ...]


Work = Callable[[Path, str, int, Path], None]
"""Takes the data, the server's URL, the connections and the folder to write into."""
Dialogue = Callable[[Pair], None]
"""Asks about one sample, three times."""


def one_core(model: str) -> Work:
    """A whole run on one core, as under `taskset -c 0`."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return whole_run(model)


def on_ray(model: str) -> Work:
    """A whole run on a Ray cluster of two nodes with a core each, both on this machine. Its start does not count; that of
    the processes of its tasks does."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    atexit.register(cluster.shutdown)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    return whole_run(model, executor="ray")


def whole_run(model: str, *, crops_at_hand: bool = False, **spread: Any) -> Work:
    """A whole run: the loop, the tools, traces, blobs, findings. Its own number of tasks at once: half as many more than
    connections.

    crops_at_hand: the others' dialogue; the tool that is called answers in two words and shows a crop at hand.
    spread: `processes` and `executor` of the run.
    """
    from dataclasses import replace

    # Before the clock starts, as all of the others' packages are.
    import jsonschema  # noqa: F401
    import openai  # noqa: F401

    import editloupe.agent.graph  # noqa: F401
    from editloupe.data.samples import endings
    from editloupe.findings import Observation
    from editloupe.runs.setup import Setup
    from editloupe.tools.settings import ToolSettings
    from editloupe.tools.zoom_in import ZoomIn
    from editloupe.values import View
    from tests.setups import open_with, run_over

    def opened(url: str) -> Setup:
        return open_with(backend=f"openai/{model}?base_url={url}&env=none", criteria=("if",), **spread)

    # The protocol, the backend, the tools and the loaders are imported when they are first asked for.
    opened("http://127.0.0.1:9/v1")
    endings("auto")

    def work(data: Path, url: str, connections: int, out: Path) -> None:
        class AtHand(ZoomIn):
            def __call__(self, args: Any, context: Any) -> Observation:
                edited = context.view("Edited Image").image.sha256
                crop = context.images.add_file(crop_file(data, edited, context.crops + 1))
                return Observation(text=GO_ON, views=(View.whole(crop),))

        setup = opened(url)
        if crops_at_hand:
            tools = {**setup.toolbox.tools, "zoom_in": AtHand.open(ToolSettings())}
            setup = replace(setup, toolbox=replace(setup.toolbox, tools=tools))
        outcome = run_over(setup, data, out / "run", config={}, max_connections=connections, spreads=True)
        if any(finding.status != "ok" for finding in outcome.findings):
            raise SystemExit(f"not all was judged: {next(f.reason for f in outcome.findings if f.status != 'ok')}")

    return work


def lean() -> Callable[[str, int], Dialogue]:
    """The requests alone, by the HTTP library, each picture encoded once: the least that it can cost."""
    import httpx2

    def opened(url: str, connections: int) -> Dialogue:
        client = httpx2.Client(limits=httpx2.Limits(max_connections=connections), timeout=120)

        def dialogue(pair: Pair) -> None:
            messages = _first(pair)
            for turn in range(CALLS):
                answer = client.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}).json()
                messages += _goes_on(pair, turn, answer["choices"][0]["message"]["content"])

        return dialogue

    return opened


def threads_openai() -> Callable[[str, int], Dialogue]:
    """Threads that share a client of the openai SDK, each picture encoded once; no trace, no tool."""
    import openai

    def opened(url: str, connections: int) -> Dialogue:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

        def dialogue(pair: Pair) -> None:
            messages: list[Any] = _first(pair)
            for turn in range(CALLS):
                answer = client.chat.completions.create(model="m", messages=messages, temperature=0)
                messages += _goes_on(pair, turn, answer.choices[0].message.content or "")

        return dialogue

    return opened


def langgraph() -> Callable[[str, int], Dialogue]:
    """A plain graph of two nodes around ChatOpenAI, each picture encoded once; no trace, no tool."""
    from langchain_core.messages import AnyMessage, HumanMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]
        pair: Pair

    # The annotation is looked up in the module, since annotations are texts here.
    globals()["AnyMessage"] = AnyMessage

    def opened(url: str, connections: int) -> Dialogue:
        model = ChatOpenAI(model="m", base_url=url, api_key="none", max_retries=0, temperature=0)  # type: ignore[arg-type]

        def act(state: State) -> dict[str, Any]:
            crop = state["pair"].crops[len(state["messages"]) // 2 - 1]
            return {"messages": [HumanMessage([{"type": "text", "text": GO_ON}, _picture(crop)])]}

        graph = StateGraph(State)
        graph.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("act", act)
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", lambda state: END if len(state["messages"]) >= 2 * CALLS else "act")
        graph.add_edge("act", "think")
        loop = graph.compile()

        def dialogue(pair: Pair) -> None:
            ended = loop.invoke({"messages": [HumanMessage(_first(pair)[0]["content"])], "pair": pair})
            assert len(ended["messages"]) == 2 * CALLS

        return dialogue

    return opened


def _threads(asker: Callable[[], Callable[[str, int], Dialogue]]) -> Work:
    """Return what asks about all samples, as many at once as there are connections."""
    opened = asker()

    def work(data: Path, url: str, connections: int, out: Path) -> None:
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(opened(url, connections), _pairs(data)))

    return work


ASKERS: dict[str, Callable[[], Work]] = {
    **{f.__name__: partial(_threads, f) for f in (lean, threads_openai, langgraph)},
    "editloupe": partial(whole_run, LOOKS),
    "editloupe_threads": partial(whole_run, LOOKS, processes=1),
    "editloupe_one_core": partial(one_core, LOOKS),
    "editloupe_ray": partial(on_ray, LOOKS),
    "editloupe_alike": partial(whole_run, "m", crops_at_hand=True),
}


def _pairs(data: Path) -> list[Pair]:
    rows = map(json.loads, (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        Pair(
            text=row["instruction"],
            pictures=tuple(data / row[f"{side}_file_name"] for side in ("source", "edited")),
            crops=tuple(crop_file(data, row["edited_sha256"], number) for number in range(1, CALLS)),
        )
        for row in rows
    ]


def _first(pair: Pair) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": pair.text}, *map(_picture, pair.pictures)]}]


def _goes_on(pair: Pair, turn: int, said: str) -> list[dict[str, Any]]:
    if turn == CALLS - 1:
        return []
    content = [{"type": "text", "text": GO_ON}, _picture(pair.crops[turn])]
    return [{"role": "assistant", "content": said}, {"role": "user", "content": content}]


def _picture(path: Path) -> dict[str, Any]:
    kind = "jpeg" if path.suffix == ".jpg" else "png"
    text = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{text}"}}


def main(who: str, data: str, url: str, connections: str, out: str) -> None:
    try:
        work = ASKERS[who]()
    except ImportError as error:
        print(json.dumps({"missing": error.name}), flush=True)
        return
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    work(Path(data), url, int(connections), Path(out))
    seconds = time.monotonic() - began
    disk = sum(file.stat().st_blocks * 512 for file in Path(out).rglob("*") if file.is_file()) / 1e6
    print(json.dumps({"began": began, "seconds": seconds, "disk": disk}), flush=True)
    # Who watches looks a last time.
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
