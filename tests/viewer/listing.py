"""A protocol for the viewer's tests: the data lists spots of an edit, and a judge is asked about each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from editloupe.answers import YES_NO, Choice, Record
from editloupe.protocols.base import BaseProtocol, Group, Known
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Measure, Recipe, Task


class Spots(BaseProtocol):
    """One list of spots a sample, one question a spot."""

    name = "spots"
    roles: ClassVar[Mapping[str, str]] = {"judge": "says of each spot whether it was asked for"}
    metrics = (
        Metric(id="fine", name="All spots asked for", domain=Binary()),
        Metric(id="wanted", name="Spot asked for", short="Asked for", domain=Binary()),
    )
    of_some = frozenset({"wanted"})

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Any = None) -> None:
        super().__init__(options, budget=budget)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        for sample in group:
            about = About.of(sample)
            answer = Record(data=dict(sample.extra["listed"])).to_json()  # type: ignore[arg-type, call-overload]
            first = Measure(protocol=self.name, metric="spots", about=about, measure="key", args={"answer": answer})
            yield first
            pictures = {"Original Image": sample.source, "Edited Image": sample.edited}
            views = tuple(Recipe(alias=alias, origin=ref) for alias, ref in pictures.items() if ref is not None)
            for number in range(1, _count(known, about) + 1):
                yield Ask(
                    protocol=self.name,
                    metric="wanted",
                    about=About.of(sample, part=f"spot {number}"),
                    prompt=f"Was spot {number}, op {_op(known, about, number)}, asked for?",
                    views=views,
                    answer=YES_NO,
                    rests_on=(first.id,),
                    # Such a question leaves a finding and no trace.
                    blocked=("not_defined", "there is nothing to ask about")
                    if _op(known, about, number) == "BLOCKED"
                    else None,
                )

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        for sample in group:
            about, said = About.of(sample), []
            for number in range(1, _count(known, about) + 1):
                own = About.of(sample, part=f"spot {number}")
                answer = known.answer("wanted", own)
                if isinstance(answer, Choice):
                    said.append(answer.name == "yes")
                    yield Score(**vars(own), metric="wanted", value=float(said[-1]))
                else:
                    yield self.missing("wanted", own, known)
            yield Score(**vars(about), metric="fine", value=float(all(said)))


def _spots(known: Known, about: About) -> list[Any]:
    answer = known.answer("spots", about)
    return list(answer.data["spots"]) if isinstance(answer, Record) else []  # type: ignore[index, arg-type, call-overload]


def _count(known: Known, about: About) -> int:
    return len(_spots(known, about))


def _op(known: Known, about: About, number: int) -> str:
    return str(_spots(known, about)[number - 1]["op"])
