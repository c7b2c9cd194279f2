"""Which tasks a run has: what a plan may not ask for."""

from __future__ import annotations

from dataclasses import replace

from editloupe.answers import YES_NO, Choice
from editloupe.findings import Finding
from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.repeats import Repeats
from editloupe.runs.schedule import Schedule, ScheduledTask
from editloupe.scores import Binary, Metric
from editloupe.tasks import About, Ask
from editloupe.values import ImageRef, Sample, Turn


def a_sample(name: str) -> Sample:
    source = ImageRef(sha256=name * 64, width=8, height=8, media_type="image/png")
    return Sample(id=name, source=source, turns=(Turn(instruction="Do it.", edited=source),))


class Chained(BaseProtocol):
    """Asks four questions about each sample, and of each answer another one."""

    name = "chained"
    metrics = (Metric(id="right", domain=Binary()),)
    calls = 0

    def plan(self, group, known):  # type: ignore[no-untyped-def]
        self.calls += 1
        for sample in group:
            for number in range(4):
                about = About.of(sample, part=f"object {number}")
                metrics = ["seen", "right"] if known.answer("seen", about) else ["seen"]
                for metric in metrics:
                    yield Ask(protocol=self.name, metric=metric, about=about, prompt="Is it?", answer=YES_NO)

    def score(self, group, known):  # type: ignore[no-untyped-def]
        return ()


def finding(place: ScheduledTask) -> Finding:
    answer = Choice(name="yes")
    return Finding.of(place.task, judge_id="j", repeat=place.repeat, status="ok", ending="answer", answer=answer)


def test_a_group_is_planned_once_for_many_findings() -> None:
    sample = a_sample("a")
    protocol = Chained()
    schedule = Schedule(protocol, [replace(sample, editor=f"e{i}") for i in range(5)], Repeats(), lambda task, repeat: None)
    asked = []
    for place in iter(schedule.next, None):
        asked.append(place.task.metric)
        schedule.arrived(finding(place))
        assert schedule.grows == (len(asked) < 40)
    assert asked == ["seen"] * 20 + ["right"] * 20
    assert protocol.calls == 3


def test_nobody_waits_while_something_can_be_planned() -> None:
    schedule = Schedule(Chained(), [a_sample("a")], Repeats(), lambda task, repeat: None)
    under_way = list(iter(schedule.next, None))
    assert [place.task.metric for place in under_way] == ["seen"] * 4
    schedule.arrived(finding(under_way[0]))
    assert schedule.total == 5
    follows = schedule.next()
    assert follows is not None and follows.task.metric == "right"


def test_what_rests_on_answers_is_asked_before_others_are_asked_again() -> None:
    one, other = replace(a_sample("a"), id="one"), a_sample("b")
    schedule = Schedule(Chained(), [one, other], Repeats(count=2), lambda task, repeat: None)
    order = []
    places = [place for place in (schedule.next() for _ in range(8)) if place]
    assert [place.repeat for place in places] == [0] * 8
    again = [place for place in (schedule.next() for _ in range(4)) if place]
    assert {(place.task.about.sample_id, place.repeat) for place in again} == {("one", 1)}
    for place in (*places, *again):
        schedule.arrived(finding(place))
    for place in iter(schedule.next, None):
        order.append((place.task.metric, place.task.about.sample_id, place.repeat))
        schedule.arrived(finding(place))
    # The answers about one sample were complete: what rests on them comes before the other is asked a second time.
    assert order[:5] == [("right", "one", 0)] * 4 + [("seen", "b", 1)]


class Endless(Chained):
    """Asks one question about each sample, and of each answer another one."""

    name = "endless"

    def plan(self, group, known):  # type: ignore[no-untyped-def]
        for sample in group:
            number = 0
            while not number or known.answer("seen", About.of(sample, part=str(number))):
                number += 1
                yield Ask(
                    protocol=self.name,
                    metric="seen",
                    about=About.of(sample, part=str(number)),
                    prompt="Is it there?",
                    answer=YES_NO,
                )


def test_a_plan_that_follows_its_own_answers_without_an_end_is_given_up_early() -> None:
    sample = a_sample("a")
    schedule = Schedule(Endless(), [sample, replace(sample, id="b")], Repeats(count=1), lambda task, repeat: None)
    asked = 0
    while (place := schedule.next()) is not None:
        schedule.arrived(finding(place))
        asked += 1
    assert asked == 2 * 8
    problems = schedule.problems()
    assert {one.sample_id for one in problems} == {"a", "b"}
    assert {(one.status, one.ending) for one in problems} == {("input_error", "protocol")}
    assert "protocol 'endless'" in problems[0].reason
    assert "plans without an end: seen, a, 9 would be asked after 8 questions" in problems[0].reason
