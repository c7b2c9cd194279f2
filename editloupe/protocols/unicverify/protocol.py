"""UnicVerify: did an edit change anything, what was really done, and how well does that match what was asked.

UnicEdit-10M's post-verification. The role `verify` looks at both images; the role `parse` reads texts alone.

Reproduced:
- verification (section C): whether anything changed, and the restated instruction;
- Eq. 5, the atomic tasks of an instruction, and Eq. 6, alignment accuracy with w = 0.5, not clamped;
- the classes Normal, No Edit and Hallucination (section C), beside people's where the data has them;
- the comparison of ways to find No Edit (section B.2, Figure 6): the model, SSIM, and our own differences.

Differs:
- any LMM plays the verifier: the weights of Qwen-Verify are not published; the prompts are ours;
- Eq. 6 has no value where the reference has no task, as in a No Edit pair; the paper prints numbers there;
- when two tasks are the same is open in the paper: a model matches them, or equal texts (`matching`);
- which pair is a Hallucination by the model is open too (`hallucination`);
- rules may settle No Edit without a model (`rules`).

Not covered:
- the third kind of noise, bad anatomy and low aesthetics, and the training of the verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from editloupe.answers import Record, RecordOf
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options, Paper
from editloupe.scores import Binary, Metric, Score
from editloupe.tags import one_line
from editloupe.tasks import About, Ask, Budget, Recipe, Status, Task
from editloupe.values import Json, Sample

VERIFY: Final = "verify"
VERIFICATION: Final = "verification"
"""The question of the role `verify`."""
CHANGED: Final = "is_changed"

PROMPTS: Final = Path(__file__).parent / "prompts"


def _object(required: Mapping[str, Json], **optional: Json) -> RecordOf:
    properties: dict[str, Json] = {**required, **optional}
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": list(required)}
    return RecordOf(schema={**schema, "additionalProperties": False})


VERIFICATION_ANSWER: Final = _object(
    {"is_changed": {"type": "boolean"}, "instruction": {"type": "string"}}, reason={"type": "string"}
)


class UnicVerifyOptions(Options):
    """What a run may set."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: one look, as in the paper. tool: the verifier is an agent with tools."""


class UnicVerify(BaseProtocol):
    """One look at each edit."""

    name = "unicverify"
    paper = Paper(
        title="UnicEdit-10M: A Dataset and Benchmark Breaking the Scale-Quality Barrier via Unified Verification for "
        "Reasoning-Enriched Edits",
        url="https://arxiv.org/abs/2512.02790",
    )
    Options = UnicVerifyOptions
    roles: ClassVar[Mapping[str, str]] = {VERIFY: "says whether an edit changed anything, and what was really done"}

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        if self.options.mode == "plain":
            self.tools = ()
        self.metrics = [Metric(id=CHANGED, name="Changed", domain=Binary(), better=None, source="Section C")]

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the verification of each edit."""
        for sample in group:
            yield self._verification(sample)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return whether each edit changed anything."""
        for sample in group:
            finding = known.finding(VERIFICATION, sample)
            said = said_of(finding.answer if finding is not None else None)
            if finding is None or said is None:
                yield self.missing(CHANGED, sample, known, question=VERIFICATION)
                continue
            yield Score(
                sample_id=sample.id,
                editor=sample.editor,
                metric=CHANGED,
                value=float(said[0]),
                findings=(finding.task_id,),
            )

    def _verification(self, sample: Sample) -> Ask:
        images = {"Original Image": sample.source, "Edited Image": sample.edited}
        return Ask(
            protocol=self.name,
            metric=VERIFICATION,
            about=About.of(sample),
            role=VERIFY,
            prompt=render(PROMPTS / "verify.md", instruction=one_line(sample.instruction)),
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items() if image is not None),
            tools=self.tools,
            answer=VERIFICATION_ANSWER,
            budget=self.budget,
            blocked=missing_output(sample),
        )


def said_of(answer: object) -> tuple[bool, str] | None:
    """Return (changed, restated instruction) of an answer to the verification; None for anything else."""
    data = answer.data if isinstance(answer, Record) else None
    if not isinstance(data, Mapping):
        return None
    changed, restated = data.get("is_changed"), data.get("instruction")
    return (changed, restated.strip()) if isinstance(changed, bool) and isinstance(restated, str) else None


def missing_output(sample: Sample) -> tuple[Status, str] | None:
    """Return why an edit cannot be looked at; None where it can."""
    return None if sample.edited is not None else ("missing_output", "there is no edited image for this sample")
