"""RunConfig: the one value that says what a run does. The command line, config.yaml, Python and HTTP all make one.

Two parts: what makes a run the same run (protocol, options, tools, budget of a task: `runs.judges.RunSpec`), and how
this invocation is made (limits, concurrency, paths). The docstrings of the fields are the help texts of the command line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from editloupe.chat import DEFAULT_SEED, Sampling
from editloupe.errors import ConfigError, did_you_mean
from editloupe.tasks import Budget
from editloupe.values import Json

Aggregation: TypeAlias = Literal["median", "majority"]

DEFAULT_PATIENCE_S: Final = 600.0
"""How long an endpoint that answers nobody is waited for."""

SHORTHANDS: Final = ("mode", "asks", "rubric", "criteria", "prompt")
"""Options of a protocol that have a flag of their own, such as `--mode`. The others are given by `--set NAME=VALUE`."""


ALIASES: Final[Mapping[str, str]] = {
    "layout": "format",
    "max_reply_tokens": "reply_tokens",
    "task_tokens": "max_tokens",
    "task_seconds": "max_seconds",
    "run_tokens": "max_run_tokens",
    "run_seconds": "max_run_seconds",
    "judges_file": "judges",
}
"""Option as users name it, on the command line and in files → field. The field's own name is understood in files too."""


def _words(value: Any) -> Any:
    """Return "if,vc" as ("if", "vc")."""
    if not isinstance(value, str):
        return value
    words = tuple(word for part in value.split(",") if (word := part.strip()))
    if not words:
        raise ValueError("expected comma-separated words")
    return words


def pairs(texts: Iterable[str], option: str = "--set", example: str = "NAME=VALUE, such as mask_pad=0.1") -> dict[str, str]:
    """Return ["a=1"] as {"a": "1"}. Raises ConfigError for a text without a name or a value, and a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = str(text).partition("=")
        if not equals or not name.strip() or not rest.strip():
            raise ConfigError(f"{option} {text}: expected {example}")
        if name.strip() in found:
            raise ConfigError(f"{text}: {name.strip()!r} is given twice, first as {found[name.strip()]!r}; give it once")
        found[name.strip()] = rest.strip()
    return found


def _pairs(value: Any) -> Any:
    return pairs(value) if isinstance(value, list | tuple) else value


def _columns(value: Any) -> Any:
    """Return "source=image,edited=output" as {"source": "image", "edited": "output"}."""
    return pairs(value.split(","), "--columns", "ROLE=COLUMN,…, such as source=image") if isinstance(value, str) else value


def _by_backend(value: Any) -> Any:
    """Return {"decompose": "openai/m"} as {"decompose": {"backend": "openai/m"}}."""
    value = _pairs(value)
    if not isinstance(value, Mapping):
        return value
    return {role: {"backend": given} if isinstance(given, str) else given for role, given in value.items()}


def _stored(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("expected a whole number of at most 64 bits")
    return value


OWN_BACKEND: Final = (
    "a function from the messages to the reply's text (docs/python.md), or an object with uri, endpoint, version, traits "
    "and complete(request, images) -> Reply (docs/backends.md, A backend of your own)"
)
"""What a backend is that is not named by a URI, for messages."""


def _backend(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.strip()) or hasattr(value, "complete"):
        return value
    raise ValueError(f"expected provider/model, such as openai/gpt-4.1, or {OWN_BACKEND}")


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Whole = Annotated[int, Strict(), AfterValidator(_stored)]
"""A whole number that every program can store."""
Number = Annotated[float, Strict()]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def make(cls, **given: Any) -> Self:
        """Return a config. Raises ConfigError, which names the field, for values that do not fit."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigError("; ".join(map(_explained, error.errors()))) from error


Answers: TypeAlias = Literal["auto", "schema", "tags"]
"""How a judge is asked for its answer."""


class JudgeConfig(_Strict):
    """One who answers: a backend and how it is asked."""

    name: str = ""
    """Its name in tables; "" for the backend's URI."""

    backend: Annotated[Any, BeforeValidator(_backend), PlainSerializer(lambda b: getattr(b, "uri", b))] = None
    """[NAME=]provider/model; may be repeated. Default: baseline."""

    temperature: Number | None = Field(default=0.0, ge=0, le=100)
    """Sampling temperature."""
    top_p: Number | None = Field(default=None, ge=0, le=1)
    """Nucleus sampling."""
    seed: Whole | None = DEFAULT_SEED
    """Seed of the first repeat; each further one adds 1."""
    reply_tokens: Whole | None = Field(default=None, ge=1)
    """Maximum tokens of one reply. Default: the server's own bound."""

    tool_protocol: Literal["text", "native", "auto"] = "text"
    """How tools are called: text (the same for every backend), native, or auto (native where the backend can)."""
    answers: Answers = "auto"
    """How answers are asked for: tags (the papers' text form), schema (a JSON schema where only an answer is expected), or
    auto (schema where the backend has it, else tags)."""
    remind_answers: bool = True
    """Send a reminder after an unusable answer too, such as one that matches no label."""

    @property
    def title(self) -> str:
        """The name in tables."""
        return self.name or getattr(self.backend, "uri", self.backend) or "baseline"

    @property
    def sampling(self) -> Sampling:
        """What is asked of the model."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed, max_tokens=self.reply_tokens)

    def own(self) -> dict[str, Json]:
        """Return the options of this judge by which it can be asked again, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"name"})


OF_A_JUDGE: Final = tuple(name for name in JudgeConfig.model_fields if name != "name")
"""Options that the judges of one run may differ in. What else there is, is the run's: other questions are another run."""


_OF_ONE_COMMAND: Final = {"judge", "langsmith", "batch_file", "batch_answers"}
"""Fields that no file of settings holds."""
OF_SAMPLING: Final = ("temperature", "top_p", "seed", "reply_tokens")
"""Those of them by which every role is asked, unless it says otherwise."""


class RunConfig(_Strict):
    """What a run does."""

    path: Path | None = None
    """Folder of edits, a metadata file, or hf://OWNER/NAME:SPLIT."""
    format: str = "auto"
    """imagefolder, pairs, or a benchmark's, such as dlebench."""
    edited: Annotated[dict[str, Path], BeforeValidator(_pairs)] = Field(default_factory=dict)
    """Folder of an editor's outputs; may be repeated."""
    null_edit: bool = False
    """Judge each original as its own edit: what a judge says where nothing was done. Needs no outputs."""
    fields: Path | None = None
    """Which columns and folders hold what, as TOML (docs/data.md)."""
    columns: Annotated[dict[str, str], BeforeValidator(_columns)] = Field(default_factory=dict)
    """Which column holds what, such as source=photo,edited=result."""
    limit: Whole | None = Field(default=None, ge=1)
    """The first N samples."""
    sample: tuple[str, ...] = ()
    """Only this sample; may be repeated."""

    protocol: str = "dlebench"
    """What is asked and how it is scored (list protocols)."""
    option: Annotated[dict[str, Any], BeforeValidator(_pairs)] = Field(default_factory=dict)
    """Option of the protocol, such as mask_pad=0.1; may be repeated."""

    judge: JudgeConfig = JudgeConfig()
    """Who has the role "judge"."""
    role: Annotated[dict[str, JudgeConfig], BeforeValidator(_by_backend)] = Field(default_factory=dict)
    """Backend for another role of the protocol; may be repeated."""

    repeats: Whole = Field(default=1, ge=1, le=100)
    """Ask each question this many times."""
    aggregate_repeats: Aggregation = "median"
    """How the answers of repeats become one."""
    abstain_above: Number | None = Field(default=None, ge=0)
    """Give no score if the entropy of the answers exceeds this many bits."""

    tools: Words | None = None
    """Tools on offer. Default: the five built-in ones."""
    ablate: Words = ()
    """Hide what tools show: black-crops."""
    device: str | None = None
    """Where weights run: auto, cpu, cuda:0. Default: auto."""
    detector: str | None = None
    """For grounding and detect_object: a folder, file or hub id."""
    upscaler: str | None = None
    """For enlarged crops: a Real-ESRGAN checkpoint."""
    clip: str | None = None
    """CLIP for the measure clip: a folder or hub id. Default: openai/clip-vit-base-patch32 from the local cache."""
    dino: str | None = None
    """DINOv2 or DINOv3 for the measure dino: a folder or hub id."""
    lpips: str | None = None
    """Weights for the measure lpips: a file."""
    faces: str | None = None
    """For the measure face: a folder with YuNet's and SFace's ONNX files, or KIND=WEIGHTS of another package."""
    preference: str | None = None
    """Model of human preference such as HPSv3, in a process of its own: its address, such as http://127.0.0.1:8100."""
    aesthetic: str | None = None
    """Head over CLIP that says how an image pleases, for the measure aesthetic: a file."""
    editor: str | None = None
    """Image editor: drawing, 'cmd:PROGRAM {input} {output} {instruction}', or NAME:… of a package."""
    segmenter: str | None = None
    """Segmenter that makes masks of boxes: a folder or hub id of SAM. Default: SAM from the local cache."""
    picture_budget: Number | None = Field(default=None, gt=0)
    """Image tokens of localize_differences as a share of what the pair costs. Default: 0.5."""

    max_turns: Whole = Field(default=6, ge=0, le=100)
    """Turns with tool calls in one task."""
    max_calls_per_turn: Whole = Field(default=8, ge=1, le=100)
    """Maximum tool calls in one turn; further ones are refused."""
    max_reminders: Whole = Field(default=2, ge=0, le=100)
    """Maximum reminders of unusable replies and answers in one task, extra to the turns."""
    max_tokens: Whole | None = Field(default=None, ge=1)
    """Token budget of one task."""
    max_seconds: Number | None = Field(default=None, gt=0)
    """Time budget of one task."""

    concurrency: Whole | None = Field(default=None, ge=1, le=1024)
    """Tasks at once. Default: cores, or what the endpoint takes."""
    max_connections: Whole | None = Field(default=None, ge=1, le=1024)
    """Calls at once at the endpoint. Default: as many as it takes."""
    patience: Number = Field(default=DEFAULT_PATIENCE_S, ge=0, le=7 * 86400)
    """Seconds to wait for an endpoint that answers no call; 0 does not wait."""
    processes: Whole | None = Field(default=None, ge=1, le=1024)
    """Processes in which tools compute; 1 uses threads. Default: one a core."""
    executor: Literal["local", "ray"] = "local"
    """Where tasks run: local, or ray (RAY_ADDRESS names a cluster)."""
    ray_gpus: Number = Field(default=0.0, ge=0, le=64)
    """GPUs that Ray reserves for each of its processes; a fraction shares one."""

    max_run_tokens: Whole | None = Field(default=None, ge=1)
    """Token budget of the whole run."""
    max_run_seconds: Number | None = Field(default=None, gt=0)
    """Time budget of the whole run."""
    max_cost: Number | None = Field(default=None, ge=0)
    """Budget of the whole run, in USD."""

    batch: bool = False
    """Ask by the provider's batch endpoint, at half the price: the command sends and ends; the same command goes on."""
    batch_waves: Whole = Field(default=3, ge=1, le=100)
    """With --batch, steps of a conversation with tools that go into batches; what comes after them is asked live."""
    batch_file: Path | None = None
    """With --batch, write the files of questions into this folder, for vLLM's run-batch; for this command only."""
    batch_answers: Path | None = None
    """With --batch, read answers from the JSONL files of this folder; for this command only."""

    prices: Path | None = None
    """Prices (TOML) of models that no list has."""
    fail_on_error: Number = Field(default=0.0, ge=0, le=1)
    """Share of findings that may fail before exit code 3."""
    langsmith: bool = False
    """Send traces of the loop to LangSmith, for this command only; no file of settings turns it on."""

    @model_validator(mode="after")
    def _check_ray(self) -> Self:
        if self.ray_gpus and self.executor != "ray":
            raise ValueError("--set ray_gpus=… needs --executor ray, which reserves them")
        if self.ray_gpus > 1 and self.ray_gpus % 1:
            raise ValueError(
                f"--set ray_gpus=…: expected a whole number, or a fraction of one GPU, found {self.ray_gpus:g}"
            )
        if self.processes is not None and self.executor == "ray":
            raise ValueError("--processes is for one machine; with --executor ray its processes compute")
        return self

    @model_validator(mode="after")
    def _check_batch(self) -> Self:
        files = [f"batch_{name}" for name, value in (("file", self.batch_file), ("answers", self.batch_answers)) if value]
        if not self.batch and files:
            raise ValueError(f"--set {files[0]}=… needs --batch")
        if self.batch and self.executor == "ray":
            raise ValueError("--batch asks from one machine, which holds no thread meanwhile; leave --executor ray out")
        if self.batch and (self.max_cost, self.max_run_tokens) != (None, None):
            raise ValueError(
                "--batch sends all questions before an answer is counted, so that no budget of money or tokens can stop "
                "it; choose with --limit, and see the price with --dry-run"
            )
        if self.batch and self.repeats > 1 and self.judge.seed is None:
            raise ValueError("--batch tells repeats apart by their seeds; leave the setting seed at its default")
        return self

    @classmethod
    def each_judge(cls, data: Mapping[str, Any]) -> list[RunConfig]:
        """Return the run that these options describe, once for each of its judges.

        data: the fields of a run and, beside them, those of its judge, as on the command line and in config.yaml;
        `backend` may be a list. `judges` maps names to the options of each. What a judge does not set there is taken from
        `data`, and so is the sampling of the other roles. Options without a value (None) count as not given.

        Raises ConfigError.
        """
        given = {name: value for name, value in folded(data).items() if value is not None}
        listed, backends = given.pop("judges", {}), given.pop("backend", ())
        shared = {name: given.pop(name) for name in OF_A_JUDGE if name in given}
        if isinstance(roles := _by_backend(given.get("role")), Mapping):
            sampling = {name: shared[name] for name in OF_SAMPLING if name in shared}
            given["role"] = {role: {**sampling, **own} if isinstance(own, Mapping) else own for role, own in roles.items()}
        run = cls.make(**given)
        if not isinstance(listed, Mapping):
            raise ConfigError(
                f"judges: expected names, each with its backend, such as 'small: openai/MODEL'; found {listed!r}"
            )
        if not isinstance(backends, list | tuple):
            backends = [backends]
        judges = [_named(one) for one in backends]
        judges += [(name, _options_of(name, own)) for name, own in listed.items()]
        runs = [run.with_judge(_judge(name, {**shared, **own})) for name, own in judges or [("", {})]]
        titles = Counter(run.judge.title for run in runs)
        # Of judges without a name, those with one title are one judge given twice.
        if twice := list(dict.fromkeys(run.judge.name for run in runs if run.judge.name and titles[run.judge.name] > 1)):
            raise ConfigError(f"several judges are called {', '.join(twice)}; each needs a name of its own")
        return runs

    def to_options(self) -> dict[str, Json]:
        """Return what `each_judge` reads, without defaults: the content of config.yaml."""
        data: dict[str, Json] = self.model_dump(mode="json", exclude_defaults=True, exclude=_OF_ONE_COMMAND)
        return {**data, **self.judge.own()}

    def with_judge(self, judge: JudgeConfig) -> RunConfig:
        """Return the same run with another judge."""
        return self.model_copy(update={"judge": judge})

    @property
    def budget(self) -> Budget:
        """The budget of one task."""
        return Budget(**self.model_dump(include={one.name for one in fields(Budget)}))


def by_field(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of fields. Raises ConfigError for one that is given under two names."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        field = ALIASES.get(name, name)
        if field in found:
            raise ConfigError(f"{name!r} and {field!r} are the same option; give one of them")
        found[field] = value
    return found


def folded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of fields, with the shorthands (`mode`, `rubric`, …) among those of the protocol.

    Raises ConfigError.
    """
    data = by_field(data)
    short = {name: value for name in SHORTHANDS if (value := data.get(name)) is not None}
    option = _pairs(data.get("option")) or {}
    if not isinstance(option, Mapping):
        raise ConfigError(f"option: expected names with values, found {option!r}")
    rest = {name: value for name, value in data.items() if name not in (*SHORTHANDS, "option")}
    return {**rest, "option": {**option, **short}}


def _options_of(name: Any, given: Any) -> dict[str, Any]:
    """Return the options of a named judge. Raises ConfigError, which names judge and key."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"a judge's name must be a word, found {name!r}")
    own = {"backend": given} if isinstance(given, str) else by_field(given) if isinstance(given, Mapping) else given
    if not isinstance(own, Mapping) or own.get("backend") is None:
        raise ConfigError(f"judge {name!r}: expected a backend, or options with one; found {given!r}")
    if unknown := next((key for key in own if key not in OF_A_JUDGE), None):
        raise ConfigError(
            f"judge {name!r}: {unknown!r} is no option of a judge; {did_you_mean(str(unknown), OF_A_JUDGE)}expected "
            f"some of {', '.join(OF_A_JUDGE)}. All other options (mode, rubric, tools, budgets) are the "
            "same for all judges of a run: give them on the command line"
        )
    return dict(own)


def _named(backend: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of `--backend`, which may be NAME=URI. A URI has no "=" before its first "/"."""
    found = re.match(r"([\w.@ -]+)=(.*)", backend, re.DOTALL) if isinstance(backend, str) else None
    if found is None:
        return "", {"backend": backend}
    name, uri = found[1].strip(), found[2].strip()
    if not name or not uri:
        raise ConfigError(f"--backend {backend!r}: expected NAME=provider/model, such as small=openai/gpt-4.1-mini")
    return name, {"backend": uri}


def _judge(name: str, options: Mapping[str, Any]) -> JudgeConfig:
    # config.yaml has a judge without a name under its backend.
    try:
        return JudgeConfig.make(name="" if name == options.get("backend") else name.strip(), **options)
    except ConfigError as error:
        raise ConfigError(f"judge {name!r}: {error}" if name else str(error)) from error


def _explained(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"])) or "config"
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(str(problem["loc"][-1]), [*setting_fields(), "option", "role"])
        return (
            f"there is no setting {where!r}; {hint}`editloupe list settings` prints all of them; options of the protocol "
            "stand below 'option:'"
        )
    found = repr(problem.get("input"))
    found = found if len(found) <= 200 else f"{found[:199]}…"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}; found {found}{meant_one(problem)}"


def meant_one(problem: Any) -> str:
    """Return "; did you mean 'tool'?" for pydantic's complaint about a word that is not one of several; else ""."""
    if problem["type"] != "literal_error":
        return ""
    # They are told in words: "'tool', 'oracle' or 'plain'".
    hint = did_you_mean(str(problem.get("input")), re.findall(r"'([^']+)'", problem["ctx"]["expected"])).rstrip()
    return f"; {hint}" if hint else ""


def setting_fields() -> dict[str, FieldInfo]:
    """Return the settings of a run by the names that users write: on the command line, after --set, and in files."""
    named = {field: name for name, field in ALIASES.items()}
    own = {**RunConfig.model_fields, **JudgeConfig.model_fields, **_ONLY_HERE}
    return {named.get(name, name): field for name, field in own.items() if name not in ("judge", "name", "option", "role")}


_ONLY_HERE: Final = {
    name: FieldInfo(annotation=kind, default=None, description=text)
    for name, kind, text in (
        ("mode", str, "How the protocol asks, such as tool, oracle or plain."),
        ("asks", str, "Whose questions the protocol probes asks: dlebench, unicbench or giebench."),
        ("rubric", str, "A built-in rubric or your own .toml file."),
        ("criteria", str, "Criteria, such as if,vc. Default: all."),
        ("prompt", Path, "Your own template (.md) of the question."),
        ("judges", Path, "Named judges with options of their own (YAML)."),
        ("config", Path, "Take options from this config.yaml of a run."),
        ("trust", bool, "Use addresses, weights and files that only a file or run names."),
    )
}
"""Options of a run that are no field of it: shorthands for options of the protocol, and files of options."""
