"""The judge as a graph for LangGraph's server and Studio: files and URIs in, the verdict out. langgraph.json names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

# Pydantic, with which the server describes inputs and outputs, takes that of `typing` from Python 3.12 on.
from typing_extensions import TypedDict

from editloupe.agent.graph import Loop, build_graph
from editloupe.backends.base import parse_uri
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.samples import load_sample
from editloupe.errors import ConfigError, DataError
from editloupe.runs.run import Driver
from editloupe.runs.setup import open_setup
from editloupe.runs.trust import foreign

StudioGraph: TypeAlias = "CompiledStateGraph[Any, Any, Any, Any]"


class Question(TypedDict):
    """What is judged."""

    source: str
    """Path of the image before the edit, on the server."""
    edited: str
    """Path of the image after it."""
    instruction: str
    """What the editor was asked to do."""
    criterion: NotRequired[str]
    """Id or short name; instruction_following if left out."""


class Verdict(TypedDict):
    """What the judge says."""

    status: str
    label: str | None
    """None unless the status is "ok"."""
    reason: str
    turns: int
    """Number of turns with at least one tool call."""


class QuestionAndVerdict(Question, Verdict):
    """The graph's state."""


class WrongInput(ConfigError, ValueError):
    """The question or the context cannot be used. LangGraph's server tells clients the reason of a ValueError only."""


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Runtime context by URIs: swap `backend` to swap the backbone."""

    backend: str = "baseline"
    """A provider and a model. Addresses and keys come from the server's own environment (OPENAI_BASE_URL and its like)."""
    mode: str = "tool"
    rubric: str = "dlebench"
    max_turns: int = 6


def graph() -> StudioGraph:
    """Return the judge as a compiled graph. Input: `Question`. Context: `Wiring`. Output: `Verdict`.

    Its one node, `judge`, runs the loop, whose nodes LangGraph draws inside it.
    """
    # Not kept by the server: the state names messages that only the running node has. A node that is resumed begins anew.
    loop = build_graph()

    def judge(state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        try:
            return _verdict(state, runtime.context or Wiring(), loop)
        except (ConfigError, DataError) as error:
            raise WrongInput(str(error)) from error

    made = StateGraph(QuestionAndVerdict, context_schema=Wiring, input_schema=Question, output_schema=Verdict)
    made.add_node("judge", judge)
    made.add_edge(START, "judge")
    made.add_edge("judge", END)
    return made.compile()


def _verdict(question: Mapping[str, Any], wiring: Wiring, loop: Loop) -> dict[str, Any]:
    """Raises ConfigError and DataError."""
    for name in ("source", "edited", "instruction"):
        if not isinstance(question.get(name), str):
            found = f"found {type(question[name]).__name__}" if name in question else "it is missing"
            raise ConfigError(f"the input's {name!r}: expected a text, {found}; give two image paths and an instruction")
    if what := foreign(parse_uri(wiring.backend)):
        # Whoever reaches the server writes the context; the keys in its environment are not theirs.
        raise ConfigError(
            f"backend {wiring.backend}: the context names {what}, which only the server's environment may; set "
            "OPENAI_BASE_URL or the provider's own variables there"
        )
    criterion = question.get("criterion") or "instruction_following"
    options = {"mode": wiring.mode, "rubric": wiring.rubric, "criteria": [criterion]}
    judge = JudgeConfig(backend=wiring.backend)
    setup = open_setup(RunConfig.make(judge=judge, option=options, max_turns=wiring.max_turns))
    sample = load_sample(question["source"], question["edited"], question["instruction"])
    try:
        findings = Driver(setup, graph=loop).judge(sample)
    except KeyError as error:
        # The server resumes a loop whose state names messages that were in the memory of the earlier call.
        raise ConfigError("this question was interrupted and cannot be gone on with; ask it again") from error
    if not findings:
        raise ConfigError(f"protocol {setup.protocol.name!r} asks nothing about this edit")
    finding = findings[0]
    return {"status": finding.status, "label": finding.label, "reason": finding.reason, "turns": finding.turns}
