"""Protocols and measures, built-in and of another package, keep their contracts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe import plugins
from editloupe.answers import YES_NO
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask
from editloupe.testing import check_measure, check_protocol
from tests.toys.install import install


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The toy package, installed."""
    site = install(tmp_path_factory.mktemp("site"))
    sys.path.insert(0, str(site))
    plugins.forget()
    yield site
    sys.path.remove(str(site))
    plugins.forget()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dlebench", {}),
        ("dlebench", {"mode": "plain"}),
        ("dlebench", {"mode": "oracle"}),
        ("pairwise", {}),
        ("stars", {"polite": True}),
        ("choice", {}),
        ("turns", {}),
        ("pixels", {}),
        ("objects", {}),
    ],
)
def test_a_protocol_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    scores = check_protocol(plugins.load("protocols", name), options=options)
    assert any(score.value is not None for score in scores)


@pytest.mark.parametrize("name", ["mse", "psnr", "toy-share", "toy-red"])
def test_a_measure_keeps_the_contract(name: str) -> None:
    check_measure(plugins.load("measures", name))


class Faulty(BaseProtocol):
    """A yes-or-no question a sample, with one fault put in by a subclass."""

    name = "faulty"
    metrics = (Metric(id="m", domain=Binary()),)

    def plan(self, group: Any, known: Any) -> Any:
        for sample in group:
            yield self.ask(sample)

    def ask(self, sample: Any, **more: Any) -> Ask:
        fields: dict[str, Any] = {"metric": "m", "prompt": "?", "about": About.of(sample), **more}
        return Ask(protocol=self.name, answer=YES_NO, **fields)

    def score(self, group: Any, known: Any) -> Any:
        for sample in group:
            answer = known.answer("m", sample)
            if answer is None:
                yield self.missing("m", sample, known)
            else:
                yield Score(sample_id=sample.id, editor=sample.editor, metric="m", value=float(answer.name == "yes"))


def test_the_checked_protocol_without_a_fault_passes() -> None:
    check_protocol(Faulty)


class CountsCalls(Faulty):
    calls = 0

    def plan(self, group: Any, known: Any) -> Any:
        CountsCalls.calls += 1
        return [self.ask(sample, prompt=str(CountsCalls.calls)) for sample in group]


class PlansTwice(Faulty):
    def plan(self, group: Any, known: Any) -> Any:
        return [self.ask(group[0]), self.ask(group[0])]


class AsksInTwoWays(Faulty):
    def plan(self, group: Any, known: Any) -> Any:
        return [self.ask(group[0]), self.ask(group[0], prompt="another?")]


class PlansForever(Faulty):
    def plan(self, group: Any, known: Any) -> Any:
        number = 0
        while True:
            number += 1
            yield self.ask(group[0], about=About.of(group[0], part=str(number)))


class UnknownRole(Faulty):
    def plan(self, group: Any, known: Any) -> Any:
        return [self.ask(group[0], role="nobody")]


class ForgetsASample(Faulty):
    def score(self, group: Any, known: Any) -> Any:
        return list(super().score(group, known))[1:]


class FailureIsZero(Faulty):
    def score(self, group: Any, known: Any) -> Any:
        for sample in group:
            yes = getattr(known.answer("m", sample), "name", "no") == "yes"
            yield Score(sample_id=sample.id, editor=sample.editor, metric="m", value=float(yes))


class OffTheScale(Faulty):
    def score(self, group: Any, known: Any) -> Any:
        for sample in group:
            yield Score(sample_id=sample.id, editor=sample.editor, metric="m", value=7.0)


class Raises(Faulty):
    def score(self, group: Any, known: Any) -> Any:
        raise ZeroDivisionError("in score")


class RaisesInPlan(Faulty):
    def plan(self, group: Any, known: Any) -> Any:
        raise KeyError("in plan")


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (CountsCalls, "plan is not pure"),
        (PlansTwice, "planned the same task twice: m, a/one"),
        (AsksInTwoWays, "planned two different tasks for one question"),
        (PlansForever, "plans without an end"),
        (UnknownRole, "planned a task on the role 'nobody'; it declares judge"),
        (ForgetsASample, "has no score of 'm', not even a missing one"),
        (FailureIsZero, "every question failed, and yet there is a number"),
        (OffTheScale, "is 7.0, outside"),
        (Raises, "raised in score: ZeroDivisionError: in score"),
        (RaisesInPlan, "raised in plan: KeyError: 'in plan'"),
    ],
)
def test_a_fault_is_named(protocol: type[Faulty], message: str) -> None:
    from editloupe.errors import ProtocolError

    with pytest.raises((AssertionError, ProtocolError), match=message):
        check_protocol(protocol)
