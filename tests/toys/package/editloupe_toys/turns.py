"""Yes or no for each turn, in two dependent waves; a sample passes if all its turns do."""

from editloupe.answers import YES_NO
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Binary, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Ask, Recipe


class EveryTurn(BaseProtocol):
    name = "turns"
    metrics = (Metric(id="passed", domain=Binary()),)
    tables = (
        TableSpec(title="By turn", name="by-turn", rows="turn", columns="metric", overall=False),
        TableSpec(title="By editor", name="by-editor", rows="editor", columns="metric", overall=False),
    )

    def plan(self, group, known):
        for sample in group:
            for number, turn in enumerate(sample.turns, 1):
                about = About.of(sample, turn=number)
                yield self._ask(about, "visible", f"Is anything changed? {turn.instruction}", turn.edited)
                first = known.finding("visible", about)
                if first is not None and first.label == "yes":
                    yield self._ask(about, "right", f"Is it right? {turn.instruction}", turn.edited, first.task_id)

    def _ask(self, about, metric, prompt, edited, *rests_on):
        return Ask(
            protocol=self.name,
            metric=metric,
            about=about,
            prompt=prompt,
            views=() if edited is None else (Recipe(alias="Edited Image", origin=edited),),
            answer=YES_NO,
            budget=self.budget,
            rests_on=rests_on,
            blocked=("missing_output", "there is no edited image") if edited is None else None,
        )

    def score(self, group, known):
        for sample in group:
            turns = [self._turn(About.of(sample, turn=number), known) for number in range(1, len(sample.turns) + 1)]
            yield from turns
            missing = next((score.missing for score in turns if score.missing), None)
            value = None if missing else min(score.value for score in turns)
            findings = tuple(id_ for score in turns for id_ in score.findings)
            yield Score(
                sample_id=sample.id, editor=sample.editor, metric="passed", value=value, missing=missing, findings=findings
            )

    def _turn(self, about, known):
        seen, right = known.finding("visible", about), known.finding("right", about)
        last = right if seen is not None and seen.label == "yes" else seen
        if last is None or last.answer is None:
            return self.missing("passed", about, known, question="visible" if last is seen else "right")
        place = {"sample_id": about.sample_id, "editor": about.editor, "turn": about.turn}
        return Score(**place, metric="passed", value=float(last.label == "yes"), findings=(last.task_id,))
