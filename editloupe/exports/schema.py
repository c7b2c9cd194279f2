"""Make the JSON Schema of what a run folder holds from the types that write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from editloupe.chat import Message, Reply, ToolCall
from editloupe.data.rows import RejectedRow
from editloupe.findings import Finding, JudgeSpec, Observation
from editloupe.traces.events import EVENT
from editloupe.values import Json, Sample, Serialisable, is_empty

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, kw_only=True)
class JudgeRecord(JudgeSpec):
    """A judge as run.json lists it."""

    name: Annotated[str, Field(exclude_if=is_empty)] = ""
    options: Annotated[Mapping[str, Json], Field(exclude_if=is_empty)] = field(default_factory=dict)
    role: Annotated[str, Field(exclude_if=is_empty)] = "judge"


@dataclass(frozen=True, kw_only=True)
class RunRecord(Serialisable):
    """run.json."""

    schema: int
    identity: Mapping[str, Json]
    """What two visits to one run folder must share."""
    record: Mapping[str, Json]
    """How the last visit was made, with the metrics; never compared."""
    judges: Mapping[str, JudgeRecord]
    """Judge id → judge."""
    digest: Annotated[str, Field(exclude_if=is_empty)] = ""
    """SHA-256 of the rest, in runs of 0.2.0. It is not read."""


@dataclass(frozen=True, kw_only=True)
class RejectedRecord(Serialisable):
    """A line of samples.jsonl for a row that cannot be judged."""

    rejected: RejectedRow


File: TypeAlias = Literal["trace", "findings", "samples", "run"]
"""What a schema describes: a line of a trace, of findings.jsonl, of samples.jsonl, or run.json."""

_ROOTS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "trace": EVENT,
    "findings": TypeAdapter(Finding),
    "samples": TypeAdapter(Sample | RejectedRecord),
    "run": TypeAdapter(RunRecord),
}

_DIGEST: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}

_INSIDE: Final[Mapping[tuple[str, str], type]] = {
    ("MessageEvent", "message"): Message,
    ("ModelCall", "reply"): Reply,
    ("ToolStarted", "call"): ToolCall,
    ("ToolResult", "call"): ToolCall,
    ("ToolResult", "observation"): Observation,
    ("FindingEvent", "finding"): Finding,
    ("Header", "judge"): JudgeSpec,
}
"""(event, field) that the reader of traces takes as a plain object → the type that it holds."""


class _AsWritten(GenerateJsonSchema):
    """Every field is written, but those that are left out if they say nothing."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field.get("serialization_exclude_if") is None


def schema(name: File) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one line of a trace, of findings.jsonl or of samples.jsonl, or of run.json."""
    inside = _INSIDE if name == "trace" else {}
    adapters = [(name, _ROOTS[name]), *((type_.__name__, TypeAdapter(type_)) for type_ in inside.values())]
    listed: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]]
    listed = [(key, "serialization", adapter) for key, adapter in dict(adapters).items()]
    schemas, found = TypeAdapter.json_schemas(listed, schema_generator=_AsWritten)
    definitions = found["$defs"]
    for definition in definitions.values():
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    if "Finding" in definitions:
        _complete(definitions["Finding"])
    if name == "samples":
        _add(definitions["Sample"], content=_DIGEST)
    for (event, inner), type_ in inside.items():
        definitions[event]["properties"][inner] = schemas[type_.__name__, "serialization"]
    return {"$schema": DIALECT, "title": f"editloupe {name}", **schemas[name, "serialization"], "$defs": definitions}


def _add(definition: dict[str, Any], **properties: dict[str, Any]) -> None:
    """Add fields that every line has and that the type does not."""
    definition["properties"] |= properties
    definition["required"] += properties


def _complete(finding: dict[str, Any]) -> None:
    """Add the flat columns of a finding, and the rule that a failure has no answer and an answer is no failure."""
    text, number = {"type": ["string", "null"]}, {"type": ["number", "null"]}
    _add(finding, kind=text, label=text, value=number)
    finding["if"] = {"properties": {"status": {"const": "ok"}}}
    finding["then"] = {"properties": {"answer": {"type": "object"}}}
    finding["else"] = {"properties": {name: {"type": "null"} for name in ("answer", "kind", "label", "value")}}
