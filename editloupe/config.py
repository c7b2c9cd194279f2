"""RunConfig: the one value that says what a run does. The command line, config.yaml, Python and HTTP all make one.

Two parts: what makes a run the same run (protocol, options, tools, budget of a task: `RunSpec.identity`), and how this visit
is made (limits, concurrency, paths).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from editloupe.chat import DEFAULT_REPLY_TOKENS, DEFAULT_SEED, Sampling
from editloupe.errors import ConfigError
from editloupe.tasks import Budget
from editloupe.values import Json

ToolProtocolChoice: TypeAlias = Literal["text", "native", "auto"]
Aggregation: TypeAlias = Literal["median", "majority"]

SHORTHANDS: Final = ("mode", "rubric", "criteria", "prompt")
"""Options of a protocol that have a flag of their own. The others are given by `--option NAME=VALUE`."""


def _words(value: Any) -> Any:
    """ "if,vc" as ("if", "vc")."""
    return tuple(word for part in value.split(",") if (word := part.strip())) if isinstance(value, str) else value


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return ["a=1"] as {"a": "1"}. Raises ConfigError for a text without a name or a value."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = str(text).partition("=")
        if not equals or not name.strip() or not rest.strip():
            raise ConfigError(f"--option {text}: expected NAME=VALUE, such as mask_pad=0.1")
        found[name.strip()] = rest.strip()
    return found


def _pairs(value: Any) -> Any:
    return pairs(value) if isinstance(value, list | tuple) else value


def _backend(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.strip()) or hasattr(value, "complete"):
        return value
    raise ValueError(f"expected provider/model, or an object with complete(request, images); found {value!r}")


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class JudgeConfig(_Strict):
    """One who answers: a backend and how it is asked."""

    name: str = ""
    """Its name in tables; "" for the backend's URI."""

    backend: Annotated[
        Any, BeforeValidator(_backend), PlainSerializer(lambda b: b if b is None or isinstance(b, str) else b.uri)
    ] = None
    """provider/model, or an LMM of one's own; None for the pixel baseline."""

    temperature: float | None = Field(default=0.0, ge=0)
    """None leaves it to the provider."""

    top_p: float | None = Field(default=None, ge=0, le=1)
    """Nucleus sampling."""

    seed: int | None = DEFAULT_SEED
    """Of the first repeat; each further one adds 1. None leaves it to the provider."""

    reply_tokens: int | None = Field(default=DEFAULT_REPLY_TOKENS, ge=1)
    """At most this many tokens a reply. None leaves it to the provider."""

    tool_protocol: ToolProtocolChoice = "text"
    """How tools are called: text (the same for every backend), native, or auto (native where the backend can)."""

    constrain_labels: bool = False
    """Hold the last answer to the labels, where the backend can."""

    launch: bool = False
    """Start vllm serve for vllm/MODEL."""

    launch_args: str | None = None
    """Arguments of that vllm serve."""

    @property
    def sampling(self) -> Sampling:
        """What is asked of the model."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed, max_tokens=self.reply_tokens)


class RunConfig(_Strict):
    """What a run does."""

    path: Path | None = None
    """Folder of edits, or a metadata file."""

    format: str = "auto"
    """A loader's name, or "auto"."""

    edited: Annotated[dict[str, Path], BeforeValidator(_pairs)] = Field(default_factory=dict)
    """Editor → folder of its outputs."""

    fields: Path | None = None
    """Field mapping (TOML) for the DLEBench importer."""

    limit: int | None = Field(default=None, ge=1)
    """At most this many samples, in the order of the data."""

    sample: tuple[str, ...] = ()
    """Only these sample ids."""

    protocol: str = "dlebench"
    """Which questions are asked, and how they are scored."""

    option: Annotated[dict[str, Any], BeforeValidator(_pairs)] = Field(default_factory=dict)
    """The protocol's own options (`editloupe protocols show NAME`)."""

    judge: JudgeConfig = JudgeConfig()
    """Who has the role "judge"."""

    role: dict[str, JudgeConfig] = Field(default_factory=dict)
    """Who has the protocol's other roles."""

    repeats: int = Field(default=1, ge=1, le=100)
    """Ask each question of the judge this often."""

    aggregate_repeats: Aggregation = "median"
    """How the answers of repeats become one."""

    abstain_above: float | None = Field(default=None, ge=0)
    """No score if the entropy of the answers exceeds this many bits."""

    tools: Words | None = None
    """Names of the tools on offer; None for the paper's five."""

    ablate: Words = ()
    """What tools show is hidden or falsified."""

    device: str | None = None
    """For tools with weights: auto, cpu, cuda:0, …"""

    detector: str | None = None
    """For grounding and detect_object: a folder, file or hub id."""

    upscaler: str | None = None
    """For enlarged crops: a Real-ESRGAN checkpoint."""

    reader: str | None = None
    """Of text in crops: auto, off or rapidocr."""

    max_turns: int = Field(default=6, ge=0, le=100)
    """Turns with tool calls."""

    max_calls_per_turn: int = Field(default=8, ge=1, le=100)
    """Tool calls that are run in one turn; further ones are refused."""

    max_reminders: int = Field(default=2, ge=0, le=100)
    """Format reminders of one task, extra to the turns."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Token budget of one task."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Time budget of one task."""

    concurrency: int | None = Field(default=None, ge=1, le=1024)
    """Tasks at once."""

    max_connections: int | None = Field(default=None, ge=1, le=1024)
    """Calls at once at the endpoint; None for as many as it takes."""

    max_run_tokens: int | None = Field(default=None, ge=1)
    """Token budget of the whole run."""

    max_run_seconds: float | None = Field(default=None, gt=0)
    """Time budget of the whole run."""

    max_cost: float | None = Field(default=None, ge=0)
    """Money budget of the whole run, USD."""

    prices: Path | None = None
    """Prices (TOML) of models that no list has."""

    fail_on_error: float = Field(default=0.0, ge=0, le=1)
    """Tolerated share of findings that are not ok."""

    @classmethod
    def make(cls, **given: Any) -> RunConfig:
        """Return a config. Raises ConfigError, which names the field, for values that do not fit."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigError("; ".join(map(_explained, error.errors()))) from error

    def with_judge(self, judge: JudgeConfig) -> RunConfig:
        """Return the same run with another judge."""
        return self.model_copy(update={"judge": judge})

    @property
    def budget(self) -> Budget:
        """The budget of one task."""
        return Budget(
            max_turns=self.max_turns,
            max_reminders=self.max_reminders,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
            max_calls_per_turn=self.max_calls_per_turn,
        )

    @property
    def narrowed(self) -> bool:
        """Whether only a part of the data is asked about."""
        return self.limit is not None or bool(self.sample)


def _explained(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"])) or "config"
    if problem["type"] == "extra_forbidden":
        return f"unknown option {where!r}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}; found {problem.get('input')!r}"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run as a value."""

    identity: Mapping[str, Json]
    """What two visits to one folder must share: protocol, options, roles, tools, budget of a task."""

    record: Mapping[str, Json] = field(default_factory=dict)
    """How this visit was made: version, repeats. Never compared."""

    def differs_from(self, other: RunSpec) -> list[tuple[str, Json, Json]]:
        """Return (field, ours, theirs) for every field of identity that differs; of an object each key."""
        return list(_differences("", self.identity, other.identity))


def _differences(prefix: str, ours: Mapping[str, Json], theirs: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    for name in sorted({*ours, *theirs}):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(f"{prefix}{name}.", a, b)
        elif a != b:
            yield f"{prefix}{name}", a, b
