"""Which tasks a run has: what a plan may not ask for."""

from __future__ import annotations

from editloupe.answers import YES_NO
from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.repeats import Repeats
from editloupe.runs.schedule import Schedule
from editloupe.scores import Binary, Metric
from editloupe.tasks import About, Ask
from editloupe.values import ImageRef, Sample, Turn


class Shared(BaseProtocol):
    """Asks about the sample "a", whatever the group."""

    name = "shared"
    metrics = (Metric(id="right", domain=Binary()),)

    def plan(self, group, known):  # type: ignore[no-untyped-def]
        yield Ask(protocol=self.name, metric="right", about=About(sample_id="a"), prompt="Is it right?", answer=YES_NO)

    def score(self, group, known):  # type: ignore[no-untyped-def]
        return ()


def a_sample(name: str) -> Sample:
    source = ImageRef(sha256=name * 64, width=8, height=8, media_type="image/png")
    return Sample(id=name, source=source, turns=(Turn(instruction="Do it.", edited=source),))


def test_the_same_task_in_two_groups_is_a_fault_of_the_later_one() -> None:
    samples = [a_sample(name) for name in "abc"]
    schedule = Schedule(Shared(), samples, Repeats(count=2), lambda task, repeat: None)
    places = [schedule.next(), schedule.next()]
    assert [place and place.repeat for place in places] == [0, 1]
    assert schedule.next() is None
    problems = schedule.problems()
    assert [(one.sample_id, one.status) for one in problems] == [("b", "input_error"), ("c", "input_error")]
    assert "protocol 'shared'" in problems[0].reason
    assert "planned a task about a, which is not in the group (right)" in problems[0].reason
    assert schedule.total == 2 + 2
