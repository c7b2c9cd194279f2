"""What is asked of a run: settings in, the run's specification and the judge's identity out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import editloupe
from editloupe import plugins
from editloupe.agent.judge import TEMPLATES, agent_digest
from editloupe.backends.base import LMM, open_backend
from editloupe.chat import Sampling, ToolProtocol
from editloupe.errors import ConfigError
from editloupe.prompts import prompt_digest
from editloupe.protocols.base import EvalProtocol
from editloupe.protocols.dlebench import MODES, Mode, Options
from editloupe.protocols.repeats import Repeats
from editloupe.records import Budget, JudgeSpec, RunSpec
from editloupe.rubrics.model import Criterion, Rubric, load_rubric
from editloupe.tools.ablations import ablated, checked
from editloupe.tools.base import PAPER_TOOLS, Toolbox, open_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json

ToolProtocolChoice: TypeAlias = Literal["text", "native", "auto"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to judge.

    backend: a URI, or an LMM of one's own.   criteria: ids or short names; None for all of the rubric's.
    rubric: a built-in name or a path.   tools: names; those that cannot be offered are declared absent.
    weights: the detector, the upscaler and the device of the tools; None reads the environment.
    options: the protocol's own, by name.
    tool_protocol: how tools are called; "auto" is native where the backend can. Text is the default for every backend, so
    that judges are comparable.
    ablate: what the tools show is hidden or shown from elsewhere (`tools.ablations`); in mode "tool" only.
    repeats: how often each question is asked, and how the answers are joined.
    prompt: the path of a question of one's own (.md); None for the protocol's.
    name: what the judge is called in tables; "" for its URI.
    """

    backend: str | LMM = "baseline"
    mode: Mode = "tool"
    criteria: tuple[str, ...] | None = None
    rubric: str | Path = "dlebench"
    tools: tuple[str, ...] = PAPER_TOOLS
    budget: Budget = field(default_factory=Budget)
    sampling: Sampling = field(default_factory=Sampling)
    constrain_labels: bool = False
    protocol: str = "dlebench"
    options: Mapping[str, Json] = field(default_factory=dict)
    weights: ToolSettings | None = None
    tool_protocol: ToolProtocolChoice = "text"
    ablate: tuple[str, ...] = ()
    repeats: Repeats = field(default_factory=Repeats)
    prompt: Path | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which edits to judge.

    path: a folder or metadata file.   format: a loader's name or "auto".   edited: editor → folder of its outputs.
    fields: a mapping file for the DLEBench importer.   limit: the first N samples.   only: sample ids.
    """

    path: Path
    format: str = "auto"
    edited: Mapping[str, Path] = field(default_factory=dict)
    fields: Path | None = None
    limit: int | None = None
    only: tuple[str, ...] = ()

    @property
    def narrowed(self) -> bool:
        """Whether this is a part of the data only."""
        return self.limit is not None or bool(self.only)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings made real: what a worker needs to answer tasks."""

    settings: Settings
    backend: LMM
    toolbox: Toolbox
    rubric: Rubric
    protocol: EvalProtocol
    judge: JudgeSpec
    spec: RunSpec
    tool_protocol: ToolProtocol

    @property
    def name(self) -> str:
        """What the judge is called."""
        return self.settings.name or self.judge.backend

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """Those that are asked about, in the rubric's order."""
        chosen = self.settings.criteria
        ids = None if chosen is None else {self.rubric.criterion(name).id for name in chosen}
        return tuple(c for c in self.rubric.criteria if ids is None or c.id in ids)


class _MakesProtocol(Protocol):
    def __call__(
        self,
        rubric: Rubric,
        *,
        mode: Mode,
        criteria: tuple[str, ...] | None,
        tools: tuple[str, ...],
        budget: Budget,
        options: Options,
        **own: Path,
    ) -> EvalProtocol: ...


def make_protocol(
    name: str,
    rubric: Rubric,
    *,
    mode: Mode,
    criteria: tuple[str, ...] | None,
    tools: tuple[str, ...] = (),
    budget: Budget | None = None,
    options: Options | None = None,
    prompt: Path | None = None,
) -> EvalProtocol:
    """A protocol by name. Raises UnknownPlugin, and ConfigError for criteria that the rubric does not have or a prompt that
    cannot be rendered.
    """
    make: _MakesProtocol = plugins.load("protocols", name)  # type: ignore[assignment]
    own = {} if prompt is None else {"prompt": prompt}
    budget, options = budget or Budget(), options or Options()
    return make(rubric, mode=mode, criteria=criteria, tools=tools, budget=budget, options=options, **own)


def open_bench(settings: Settings) -> Bench:
    """Everything that can be wrong with settings is found here, before anything is spent (ConfigError)."""
    if settings.mode not in MODES:
        raise ConfigError(f"unknown mode {settings.mode!r}; expected {', '.join(MODES)}")
    options = Options.read(settings.options)
    backend = open_backend(settings.backend) if isinstance(settings.backend, str) else settings.backend
    tool_protocol = _tool_protocol(settings, backend)
    rubric = load_rubric(settings.rubric)
    ablations = checked(settings.ablate)
    if ablations and settings.mode == "plain":
        raise ConfigError(
            f"ablation {', '.join(ablations)}: it changes what tools show, and mode 'plain' has no tools; use mode 'tool'"
        )
    toolbox = open_toolbox(() if settings.mode == "plain" else settings.tools, settings.weights)
    toolbox = ablated(toolbox, ablations)
    protocol = make_protocol(
        settings.protocol,
        rubric,
        mode=settings.mode,
        criteria=settings.criteria,
        tools=settings.tools,
        budget=settings.budget,
        options=options,
        prompt=settings.prompt,
    )
    prompts = prompt_digest([settings.prompt or f"{settings.protocol}/judge", *TEMPLATES])
    judge = JudgeSpec(
        backend=backend.uri,
        backend_version=backend.version,
        endpoint=backend.endpoint,
        sampling=settings.sampling,
        tool_protocol=tool_protocol,
        image_policy=str(backend.traits.image_policy),
        constrain_labels=settings.constrain_labels,
        prompts=agent_digest(),
        rubric=rubric.digest,
        tools=toolbox.versions(),
        prompt="" if settings.prompt is None else prompt_digest([settings.prompt]),
    )
    identity: dict[str, Json] = {
        "protocol": settings.protocol,
        "mode": settings.mode,
        "rubric": rubric.digest,
        "prompts": prompts,
        "tools": toolbox.versions(),
        "absent_tools": sorted(toolbox.absent),
        "budget": settings.budget.to_json(),
        "options": options.to_json(),
        # Only where there are some, so that runs of before stay what they are.
        **({"ablations": list(ablations)} if ablations else {}),
    }
    record: dict[str, Json] = {"editloupe": editloupe.__version__, "rubric": rubric.to_json()}
    if settings.repeats.count > 1:
        record["repeats"] = settings.repeats.to_json()
    return Bench(
        settings=settings,
        backend=backend,
        toolbox=toolbox,
        rubric=rubric,
        protocol=protocol,
        judge=judge,
        spec=RunSpec(identity=identity, record=record),
        tool_protocol=tool_protocol,
    )


def device_of(settings: Settings) -> str:
    """The tools' device, as the settings or the environment name it."""
    return (settings.weights or ToolSettings.from_environment()).device


def _tool_protocol(settings: Settings, backend: LMM) -> ToolProtocol:
    """Raises ConfigError for an unknown word, and for native tools that the backend cannot call."""
    can = backend.traits.native_tools
    match settings.tool_protocol:
        case "text":
            return "text"
        case "auto":
            return "native" if can else "text"
        case "native" if can:
            return "native"
        case "native":
            raise ConfigError(f"{backend.uri} cannot call tools natively; use the tool protocol text (the default) or auto")
        case other:
            raise ConfigError(f"unknown tool protocol {other!r}; expected 'text', 'native' or 'auto'")
