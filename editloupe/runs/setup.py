"""A RunConfig made real: the protocol, who answers in each role, the tools, and the run's specification."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from editloupe.agent.judge import agent_digest
from editloupe.backends.base import LMM, Traits, checked_lmm, open_backend, takes_tools, wait_at_most
from editloupe.chat import Reply, Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.hub import origin_of
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError
from editloupe.findings import JudgeSpec
from editloupe.measures import base as measures
from editloupe.protocols.base import EvalProtocol, make_protocol
from editloupe.protocols.repeats import Repeats
from editloupe.runs.judges import JudgeEntry, RunSpec
from editloupe.tasks import Task
from editloupe.tools.base import BUILT_IN_TOOLS, Tool, Toolbox, open_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json, digest
from editloupe.version import VERSION

JUDGE: Final = "judge"
"""The usual role."""


@dataclass(frozen=True, kw_only=True)
class Respondent:
    """Who answers in one role."""

    name: str
    """As the user gave it; "" for none."""
    backend: LMM
    spec: JudgeSpec
    """How it is asked."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that is needed to answer a run's tasks."""

    config: RunConfig
    protocol: EvalProtocol
    respondents: Mapping[str, Respondent]
    """Role → who answers. "judge" is always there: without a role of this name it is the protocol's first one, and without
    any role it stands for the protocol's measures."""
    toolbox: Toolbox
    spec: RunSpec
    models: measures.Models = field(default_factory=measures.Models)
    """What measures open their weights by."""

    @property
    def main(self) -> Respondent:
        """Who has the role "judge"."""
        return self.respondents[JUDGE]

    @property
    def backend(self) -> LMM:
        """The judge's backend."""
        return self.main.backend

    @property
    def judge(self) -> JudgeSpec:
        """The judge's identity."""
        return self.main.spec

    @property
    def name(self) -> str:
        """What the judge is called."""
        return self.main.name or self.judge.backend

    @property
    def repeats(self) -> Repeats:
        """How often each question of the judge is asked, and how the answers become one."""
        config = self.config
        return Repeats(count=config.repeats, by=config.aggregate_repeats, abstain_above=config.abstain_above)

    @property
    def metrics(self) -> list[str]:
        """Ids of the metrics that the protocol reports."""
        return [metric.id for metric in self.protocol.metrics]

    @property
    def options(self) -> dict[str, Json]:
        """The protocol's options as JSON."""
        return options_of(self.protocol)

    def judge_of(self, task: Task) -> JudgeSpec:
        """Return who answers a task. Raises ConfigError for a measure that cannot be opened."""
        if task.kind == "measure":
            return measures.judge_of(task.measure, self.models)
        return self.respondents[task.role].spec

    def entries(self, *, options: bool = False) -> list[JudgeEntry]:
        """Return how run.json lists those who answer, a role each.   options: with those that ask the judge again."""
        own: dict[str, Json] = {"backend": "baseline", **self.config.judge.own()} if options else {}
        roles = self.protocol.roles or (JUDGE,)
        return [
            JudgeEntry(judge=one.spec, name=one.name, role=role, options=own if role == JUDGE else {})
            for role, one in self.respondents.items()
            if role in roles
        ]

    def with_backends(self, wrap: Callable[[LMM], LMM]) -> Setup:
        """Return the same with every backend wrapped."""
        wrapped = {role: replace(one, backend=wrap(one.backend)) for role, one in self.respondents.items()}
        return replace(self, respondents=wrapped)


class MeasuresOnly:
    """The backend of a protocol that asks no model."""

    uri = "measure"
    endpoint = "in process"
    version = ""
    traits = Traits(describes="measures, no model", is_lmm=False)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Raise BackendError: nothing is asked of it."""
        raise BackendError("this protocol has no role 'judge', so that no model can be asked")


def open_questions(config: RunConfig, *, own_tools: Sequence[Tool] = ()) -> Setup:
    """Open what a config asks, and nobody who answers: the specification is without roles. Raises ConfigError.

    own_tools: tools at hand that the config names.
    """
    offered = BUILT_IN_TOOLS if config.tools is None else config.tools
    protocol = make_protocol(config.protocol, config.option, tools=offered, budget=config.budget)
    offered = getattr(protocol, "tools", offered)
    toolbox = open_toolbox(offered, weights_of(config), own=own_tools)
    ablations: tuple[str, ...] = ()
    if config.ablate:
        # Few runs ablate, and the import takes long.
        from editloupe.tools.ablations import ablated, checked

        ablations = checked(config.ablate)
        if not offered:
            raise ConfigError(f"ablation {', '.join(ablations)}: it changes what tools show, and no tool is offered here")
        toolbox = ablated(toolbox, ablations)
    identity: dict[str, Json] = {
        "tools": toolbox.versions(),
        "absent_tools": sorted(toolbox.absent),
        "budget": config.budget.to_json(),
        # Only where there are some, so that a run without them stays what it is.
        **({"ablations": list(ablations)} if ablations else {}),
    }
    origin = None if config.path is None else origin_of(config.path)
    spec = spec_of(config.protocol, protocol, identity, {} if origin is None else {"hub": dict(origin)})
    models = models_of(weights_of(config))
    return Setup(config=config, protocol=protocol, respondents={}, toolbox=toolbox, spec=spec, models=models)


def spec_of(name: str, protocol: EvalProtocol, identity: Mapping[str, Json], record: Mapping[str, Json]) -> RunSpec:
    """Return the specification of a run by the protocol of this name.

    identity, record: what else makes it the run that it is, and what else is said of how it was made.
    """
    return RunSpec(
        identity={**identity, "protocol": name, "options": identity_options(protocol)},
        record={
            **record,
            "editloupe": VERSION,
            "options": {**options_of(protocol), **dict.fromkeys(_free(protocol))},
            "metrics": [metric.to_json() for metric in protocol.metrics],
        },
    )


def settled_tools(setup: Setup) -> Setup:
    """Return the setup with `tool_protocol=auto` settled: text where an endpoint takes no tools, which is asked of it.

    Raises BackendError.
    """
    if not setup.toolbox.tools:
        return setup
    found: dict[str, Respondent] = {}
    for role, one in setup.respondents.items():
        given = setup.config.role.get(role, setup.config.judge)
        refused = given.tool_protocol == "auto" and one.spec.tool_protocol == "native" and not takes_tools(one.backend)
        found[role] = replace(one, spec=replace(one.spec, tool_protocol="text")) if refused else one
    return replace(setup, respondents=found)


def open_setup(config: RunConfig, *, own_tools: Sequence[Tool] = ()) -> Setup:
    """Open everything that a config names. What is wrong with it is found here, before anything is spent (ConfigError).

    own_tools: tools at hand that the config names.
    """
    asked = open_questions(config, own_tools=own_tools)
    digest_of_questions = digest({"protocol": config.protocol, "options": identity_options(asked.protocol)})
    respondents = _respondents(config, asked.protocol, asked.toolbox, digest_of_questions)
    others: dict[str, Json] = {role: r.spec.id for role, r in respondents.items() if role != JUDGE}
    for respondent in respondents.values():
        wait_at_most(respondent.backend, config.patience)
    identity = {**asked.spec.identity, **({"roles": others} if others else {})}
    record = {**asked.spec.record, **({"repeats": asked.repeats.to_json()} if config.repeats > 1 else {})}
    return replace(asked, respondents=respondents, spec=RunSpec(identity=identity, record=record))


_SETTINGS: Final = {
    "detect": "detector", "upscale": "upscaler", "clip": "clip", "clip_text": "clip", "dino": "dino", "lpips": "lpips",
    "faces": "faces", "preference": "preference", "edit": "editor", "segment": "segmenter",
    "aesthetic": "aesthetic",
}  # fmt: skip
"""Kind of model → the setting that names its weights."""


def models_of(weights: ToolSettings) -> measures.Models:
    """Return the door to models with these weights."""
    names = {kind: getattr(weights, name) for kind, name in _SETTINGS.items()}
    return measures.Models(device=weights.device, names=names)


def options_of(protocol: EvalProtocol) -> dict[str, Json]:
    """Return a protocol's options as JSON, from which it can be made again."""
    data: dict[str, Json] = protocol.options.model_dump(mode="json")
    return data


def weights_of(config: RunConfig) -> ToolSettings:
    """Return what the environment says of the tools' weights, and the config above it."""
    given: dict[str, Any] = {
        one.name: value for one in fields(ToolSettings) if (value := getattr(config, one.name)) is not None
    }
    return replace(ToolSettings.from_environment(os.environ), **given)


def identity_options(protocol: EvalProtocol) -> dict[str, Json]:
    """Return the options that two invocations on one run must share."""
    return {name: value for name, value in options_of(protocol).items() if name not in _free(protocol)}


def _free(protocol: EvalProtocol) -> frozenset[str]:
    """Return options that may differ from invocation to invocation, such as the metrics. A run is reported without them."""
    free: frozenset[str] = getattr(protocol.Options, "free", frozenset())
    return free


def _respondents(config: RunConfig, protocol: EvalProtocol, toolbox: Toolbox, questions: str) -> dict[str, Respondent]:
    unknown = sorted(set(config.role) - set(protocol.roles))
    if unknown:
        known = ", ".join(protocol.roles) or "none: it asks no model"
        raise ConfigError(f"--set role.{unknown[0]}: protocol {protocol.name!r} has the roles {known}")
    if config.repeats > 1 and JUDGE not in protocol.roles:
        asks = f"asks the roles {', '.join(protocol.roles)}, which answer once" if protocol.roles else "asks no model"
        raise ConfigError(f"--repeats {config.repeats}: protocol {protocol.name!r} {asks}; leave --repeats out")
    found: dict[str, Respondent] = {}
    if not protocol.roles:
        if config.judge.backend is not None:
            raise ConfigError(f"protocol {protocol.name!r} asks no model; leave --backend out")
        spec = JudgeSpec(kind="measure", backend=MeasuresOnly.uri, endpoint="in process", questions=questions)
        found[JUDGE] = Respondent(name=config.judge.name, backend=MeasuresOnly(), spec=spec)
    # Where nobody has the role "judge", --backend answers in the roles that have no backend of their own.
    others = config.judge if JUDGE not in protocol.roles and config.judge.backend is not None else None
    for role in protocol.roles:
        given = config.judge if role == JUDGE else config.role.get(role, others)
        if given is None:
            raise ConfigError(
                f"protocol {protocol.name!r} needs a backend for the role {role!r} ({protocol.roles[role]}); name one with "
                f"--set role.{role}=provider/model"
            )
        found[role] = _respondent(given, toolbox, questions)
    # What a run says of its judge is then said of its first role.
    return {JUDGE: next(iter(found.values())), **found}


def _respondent(given: JudgeConfig, toolbox: Toolbox, questions: str) -> Respondent:
    opened = given.backend if given.backend is not None else "baseline"
    backend: LMM = open_backend(opened) if isinstance(opened, str) else checked_lmm(opened)
    native = backend.traits.native_tools
    if given.tool_protocol == "native" and not native:
        raise ConfigError(f"{backend.uri} cannot call tools natively; use the tool protocol text (the default) or auto")
    if given.answers == "schema" and not backend.traits.constrains_schema:
        raise ConfigError(
            f"--set answers=schema: {backend.uri} cannot hold an answer to a JSON schema; use auto (default) or tags"
        )
    spec = JudgeSpec(
        backend=backend.uri,
        backend_version=backend.version,
        endpoint=backend.endpoint,
        sampling=given.sampling,
        tool_protocol="text" if given.tool_protocol == "text" or not native else "native",
        image_policy=str(backend.traits.image_policy),
        answers=given.answers,
        remind_answers=given.remind_answers and not backend.traits.bare_replies,
        bare_replies=backend.traits.bare_replies,
        prompts=agent_digest(bare=backend.traits.bare_replies),
        questions=questions,
        tools=toolbox.versions(),
    )
    return Respondent(name=given.name, backend=backend, spec=spec)
