"""A protocol that asks what UnicEdit's verifier is asked: was something changed, and which instruction says what."""

from __future__ import annotations

from editloupe.answers import RecordOf
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Recipe

SCHEMA = {
    "type": "object",
    "properties": {"is_changed": {"type": "boolean"}, "instruction": {"type": "string"}},
    "required": ["is_changed", "instruction"],
}


class Verify(BaseProtocol):
    name = "verify"
    roles = {"verify": "restates the instruction"}  # noqa: RUF012 - as a protocol's own package would write it
    metrics = (Metric(id="edit_class", domain=Binary()),)

    def plan(self, group, known):
        for sample in group:
            yield Ask(
                protocol=self.name,
                metric="verification",
                role="verify",
                about=About.of(sample),
                prompt=f"What was done? Asked for: {sample.instruction}",
                views=(
                    Recipe(alias="Original Image", origin=sample.source),
                    Recipe(alias="Edited Image", origin=sample.edited),
                ),
                answer=RecordOf(schema=SCHEMA),
                budget=self.budget,
            )

    def score(self, group, known):
        for sample in group:
            finding = known.finding("verification", sample)
            if finding is None or finding.answer is None:
                yield self.missing("edit_class", sample, known)
                continue
            data = finding.answer.data
            right = data["instruction"] == sample.extra.get("reference_instruction")
            label = "No Edit" if not data["is_changed"] else "Normal" if right else "Hallucination"
            yield Score(
                sample_id=sample.id,
                editor=sample.editor,
                metric="edit_class",
                value=float(right),
                label=label,
                findings=(finding.task_id,),
            )
