"""A small protocol with two waves and a measure, as an installed package would bring it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

import pytest

from editloupe import plugins
from editloupe.answers import YES_NO, FreeText, Number
from editloupe.measures.base import Args
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.scores import Binary, Interval, Metric, Score
from editloupe.tasks import About, Ask, Measure, Recipe, Task
from editloupe.values import ImageRef, Sample


class WavesOptions(Options):
    """What a run may set."""

    strict: bool = False
    fails: bool = False
    """The second wave raises."""


class Waves(BaseProtocol):
    """Ask what the edit is about, then whether it is there; a measure says how much of the image has changed."""

    name = "waves"
    Options = WavesOptions
    metrics = (
        Metric(id="there", short="T", domain=Binary()),
        Metric(id="change", domain=Interval(low=0, high=1), better="lower"),
    )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the first question and the measure; and the second question once the first has an answer."""
        for sample in group:
            assert sample.edited is not None
            before, after = _whole("Before", sample.source), _whole("After", sample.edited)
            prompt = f"Name the object in: {sample.instruction}"
            yield Ask(protocol=self.name, metric="object", about=About.of(sample), prompt=prompt, answer=FreeText())
            views = (before, after)
            yield Measure(protocol=self.name, metric="change", about=About.of(sample), measure="mean-change", views=views)
            found = known.finding("object", sample)
            if found is not None and found.answer is not None:
                if self.options.fails:
                    raise LookupError("no second wave today")
                yield Ask(
                    protocol=self.name,
                    metric="there",
                    about=About.of(sample, turn=1),
                    prompt=f"Is there a {found.answer}?",
                    views=(after,),
                    answer=YES_NO,
                    rests_on=(found.task_id,),
                )

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return a score for both metrics."""
        for sample in group:
            yield self._score(sample, "there", About.of(sample, turn=1), known)
            yield self._score(sample, "change", About.of(sample), known)

    def _score(self, sample: Sample, metric: str, about: About, known: Known) -> Score:
        finding = known.finding(metric, about)
        if finding is None or finding.answer is None:
            return self.missing(metric, about, known)
        value = finding.value if metric == "change" else float(finding.label == "yes")
        return Score(sample_id=sample.id, turn=about.turn, metric=metric, value=value, findings=(finding.task_id,))


class MeanChange:
    """Mean absolute difference of two images, 0 to 1."""

    name = "mean-change"
    version = "1"
    Args = Args
    needs: tuple[str, ...] = ()
    calls = 0

    def __call__(self, args: object, images: dict, models: object) -> Number:
        """Return the difference."""
        type(self).calls += 1
        first, second = (rgb.astype(float) for rgb in images.values())
        return Number(value=float(abs(first - second).mean() / 255))


def _whole(alias: str, image: ImageRef) -> Recipe:
    return Recipe(alias=alias, origin=image)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add both to what is installed."""
    own = {"protocols": "waves:Waves", "measures": "mean-change:MeanChange"}
    found = plugins._found

    def with_own(group: plugins.Group) -> dict[str, EntryPoint]:
        if group not in own:
            return found(group)
        name, _, cls = own[group].partition(":")
        point = EntryPoint(name=name, value=f"{__name__}:{cls}", group=f"editloupe.{group}")
        return {**found(group), name: point}

    monkeypatch.setattr(plugins, "_found", with_own)
    monkeypatch.setattr(MeanChange, "calls", 0)
