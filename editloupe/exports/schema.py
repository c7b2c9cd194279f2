"""JSON Schema of what a run folder holds: a line of a trace, a line of findings.jsonl, run.json."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from editloupe.tasks import Status
from editloupe.traces.events import EVENT

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Sha256: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Box: TypeAlias = Annotated[list[float], Field(min_length=4, max_length=4, description="x0, y0, x1, y1 in px")]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Image(_Row):
    """An image, named by the SHA-256 of its bytes; they lie in blobs/AB/SHA256.EXT."""

    sha256: Sha256
    width: int = Field(ge=1, description="px, after EXIF rotation")
    height: int = Field(ge=1, description="px, after EXIF rotation")
    media_type: str


class View(_Row):
    """`window` of `image` shows `region` of `origin`."""

    image: Image
    origin: Image
    region: Box
    window: Box
    op: str
    params: dict[str, Any]


class Text(_Row):
    type: Literal["text"]
    text: str


class Picture(_Row):
    type: Literal["image"]
    alias: str
    image: Image


class Call(_Row):
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: dict[str, Any]


class Malformed(_Row):
    raw: str
    error: str


class Message(_Row):
    """One message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: list[Text | Picture]
    tool_calls: list[Call] = []
    tool_call_id: str = ""
    carry: Any = Field(None, description="what a provider wants back as it gave it")


class Usage(_Row):
    """Tokens; what the provider did not count is left out."""

    input_tokens: int = 0
    output_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Reply(_Row):
    """What a model answered."""

    text: str
    reasoning: str
    tool_calls: list[Call]
    malformed_calls: list[Malformed]
    finish: Literal["stop", "length", "tools", "refusal", "filter"]
    usage: Usage
    model: str
    raw: Any = Field(description="the provider's own payload")
    sent: dict[str, Any] = Field(description="the parameters that were really on the wire")
    carry: Any = None
    logprob: float = Field(0.0, description="natural logarithm of the text's probability, where it was told")


class Observation(_Row):
    """What a tool gave back. kept: pictures that the model was not shown."""

    text: str
    views: list[View]
    data: dict[str, Any]
    error: bool
    kept: list[View]


class LabelAnswer(_Row):
    kind: Literal["label"]
    name: str
    value: float


class NumberAnswer(_Row):
    kind: Literal["number"]
    value: float


class ChoiceAnswer(_Row):
    kind: Literal["choice"]
    name: str


class StructuredAnswer(_Row):
    kind: Literal["structured"]
    data: Any


class Evidence(_Row):
    """A place that a verdict rests on."""

    image: str
    box: Box


class Finding(_Row):
    """One verdict, or the status that says why there is none: `answer` is null exactly when `status` is not "ok"."""

    task_id: Sha256
    judge_id: str
    repeat: int = Field(ge=0)
    sample_id: str
    editor: str
    criterion: str
    target: int = Field(1, ge=1, description="the one target that is asked about; left out where all are")
    status: Status
    label: str | None
    value: float | None
    answer: Annotated[LabelAnswer | NumberAnswer | ChoiceAnswer | StructuredAnswer, Field(discriminator="kind")] | None
    reason: str
    evidence: list[Evidence]
    usage: Usage
    turns: int = Field(ge=0)
    counts: dict[str, int]
    seconds: float = Field(ge=0)
    trace: str | None = Field(description="path inside the run folder")


class Judge(_Row):
    """Who judges; its digest is the judge id."""

    backend: str
    backend_version: str
    endpoint: str
    sampling: dict[str, float | None]
    tool_protocol: Literal["text", "native"]
    image_policy: str
    constrain_labels: bool
    prompts: str
    rubric: Sha256
    tools: dict[str, str]


class Identity(BaseModel):
    """What two visits to one run folder must share; a protocol may add fields."""

    protocol: str
    mode: str
    rubric: Sha256
    prompts: Sha256
    tools: dict[str, str]
    absent_tools: list[str]
    budget: dict[str, float | None]
    options: dict[str, Any] = {}
    ablations: list[str] = []


class Run(_Row):
    """run.json. record: how the last visit was made, with the rubric; never compared."""

    schema_: int = Field(alias="schema", ge=1)
    identity: Identity
    record: dict[str, Any]
    judges: dict[str, Judge]


_INSIDE: Final[dict[str, dict[str, type[BaseModel]]]] = {
    "MessageEvent": {"message": Message},
    "ModelCall": {"reply": Reply},
    "ToolStarted": {"call": Call},
    "ToolResult": {"call": Call, "observation": Observation},
    "FindingEvent": {"finding": Finding},
    "Header": {"judge": Judge},
}
"""Fields that the reader of traces takes as plain objects → what they hold."""


def schema(name: Literal["trace", "findings", "run"]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one line of a trace or of findings.jsonl, or of run.json."""
    match name:
        case "trace":
            found = _trace()
        case "findings":
            found = Finding.model_json_schema()
            # null and "ok" exclude each other: the rule that no failure becomes a number.
            answered = {"properties": {"answer": {"type": "object"}}}
            failed = {"properties": {name: {"type": "null"} for name in ("answer", "label", "value")}}
            found |= {"if": {"properties": {"status": {"const": "ok"}}}, "then": answered, "else": failed}
        case "run":
            found = Run.model_json_schema(by_alias=True)
    return {"$schema": DIALECT, "title": f"editloupe {name}", **{k: v for k, v in found.items() if k != "title"}}


def _trace() -> dict[str, Any]:
    # As they are written: every field is there, those with a default too.
    found = EVENT.json_schema(mode="serialization")
    definitions = found["$defs"]
    for event, fields in _INSIDE.items():
        for field, model in fields.items():
            inner = TypeAdapter(model).json_schema(ref_template="#/$defs/{model}")
            definitions |= {**inner.pop("$defs", {}), model.__name__: inner}
            definitions[event]["properties"][field] = {"$ref": f"#/$defs/{model.__name__}"}
    return found
