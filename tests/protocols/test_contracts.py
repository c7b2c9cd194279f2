"""Protocols and measures, built-in and of another package, keep their contracts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from editloupe import plugins
from editloupe.answers import YES_NO
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError, ProtocolError
from editloupe.protocols.base import BaseProtocol, Known, group_scores, groups, make_protocol, planned, scored
from editloupe.scores import Binary, Interval, Metric, Score, protocol_faults
from editloupe.tasks import About, Ask, Measure, Recipe
from editloupe.testing import check_measure, check_protocol
from editloupe.testing.protocols import drawn_samples

pytestmark = pytest.mark.usefixtures("toys")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("dlebench", {"mode": mode}) for mode in ("tool", "plain", "oracle")),
        *((name, {}) for name in ("pairwise", "choice", "turns", "pixels", "objects", "measures", "giebench-build")),
        ("stars", {"polite": True}),
        ("edival-build", {"grounding": "none", "turns": 9}),
        ("dlebench-build", {"grounding": "given"}),
        ("giebench-build", {"masks": "given", "edits": 9}),
        ("measures", {"measures": "mse,l1,toy-share", "align": "sift"}),
        *(("dice", given) for given in ({}, {"form": "lines"}, {"detector": "localize"}, {"patch": "coherent"})),
        *((name, {}) for name in ("unicbench", "unicverify")),
    ],
)
def test_a_protocol_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    scores = check_protocol(plugins.load("protocols", name), options=options)
    assert any(score.value is not None for score in scores)


def test_every_protocol_that_asks_can_be_asked_without_tools() -> None:
    store, tools = ImageStore(), ("zoom_in", "localize_differences")
    samples, offering = drawn_samples(store), set[str]()
    for name in plugins.names("protocols"):
        if not getattr(plugins.load("protocols", name), "roles", ()):
            continue
        for mode in ("tool", "plain"):
            protocol = make_protocol(name, {"mode": mode}, tools=tools)
            with suppress(DataError):  # from those that ask about rows of a built set
                protocol.check(samples)
                tasks = [task for group in groups(samples) for task in protocol.plan(group, Known())]
                if any(task.kind == "ask" and task.tools for task in tasks):
                    offering.add(f"{name} {mode}")
    assert {"dlebench tool", "pairwise tool"} <= offering
    # One without a word on modes, of another package.
    stars = [make_protocol("stars", {"mode": mode}, tools=tools) for mode in ("tool", "plain")]
    assert [getattr(protocol, "tools", None) for protocol in stars] == [tools, ()]
    assert not any(one.endswith("plain") for one in offering), offering
    # Whose questions need no look closer: the tools are no part of their judge's identity.
    for name in ("targets", "measures", "dlebench-build", "edival-build", "giebench-build"):
        assert getattr(make_protocol(name, tools=tools), "tools", None) == (), name
    with pytest.raises(ConfigError, match="expected tool or plain, found 'oracle'"):
        make_protocol("stars", {"mode": "oracle"}, tools=tools)


@pytest.mark.parametrize("name", ["mse", "psnr", "toy-share", "toy-red"])
def test_a_measure_keeps_the_contract(name: str) -> None:
    check_measure(plugins.load("measures", name))


class Faulty(BaseProtocol):
    """A yes-or-no question a sample."""

    name = "faulty"
    metrics = (Metric(id="m", domain=Binary()),)

    def plan(self, group: Any, known: Any) -> Any:
        for sample in group:
            yield ask(sample)

    def score(self, group: Any, known: Any) -> Any:
        for sample in group:
            answer = known.answer("m", sample)
            yield self.missing("m", sample, known) if answer is None else number(sample, float(answer.name == "yes"))


def ask(sample: Any, **more: Any) -> Ask:
    fields: dict[str, Any] = {"metric": "m", "prompt": "?", "about": About.of(sample), **more}
    return Ask(protocol="faulty", answer=YES_NO, **fields)


def number(sample: Any, value: Any, **more: Any) -> Score:
    return Score(**{"sample_id": sample.id, "editor": sample.editor, "metric": "m", "value": value, **more})


def failure_is_zero(self: Any, group: Any, known: Any) -> Any:
    return [number(sample, float(getattr(known.answer("m", sample), "name", "no") == "yes")) for sample in group]


COUNT = itertools.count()
FAULTS: dict[str, dict[str, Callable[..., Any]]] = {
    "plan is not pure": {"plan": lambda self, group, known: [ask(one, prompt=str(next(COUNT))) for one in group]},
    "planned two different tasks for one question": {
        "plan": lambda self, group, known: [ask(group[0]), ask(group[0], prompt="another?")]
    },
    r"asks \['n'\], which it neither declares as metrics nor reads in plan or score": {
        "plan": lambda self, group, known: [ask(sample, metric="n") for sample in group]
    },
    "has no score of 'm', not even a missing one": {
        "score": lambda self, group, known: list(Faulty.score(self, group, known))[1:]
    },
    "every question failed, and yet there is a number": {"score": failure_is_zero},
    "is 7.0, outside": {"score": lambda self, group, known: [number(sample, 7.0) for sample in group]},
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_fault_is_named_by_the_check_and_one_without_passes(message: str) -> None:
    check_protocol(Faulty)
    with pytest.raises((AssertionError, ProtocolError), match=message):
        check_protocol(type("WithFault", (Faulty,), FAULTS[message]))


class Given(BaseProtocol):
    """Two metrics from 0 to 10; gives the scores that it is made with."""

    name = "given"
    metrics = tuple(Metric(id=id_, domain=Interval(low=0, high=10)) for id_ in ("m", "n"))

    def __init__(self, *scores: Any) -> None:
        super().__init__()
        self.scores = scores

    def plan(self, group: Any, known: Any) -> Any:
        return ()

    def score(self, group: Any, known: Any) -> Any:
        return (score for score in self.scores if getattr(score, "key", "a/one") in {sample.key for sample in group})


def of_one(value: Any, **more: Any) -> Score:
    return Score(**{"sample_id": "one", "editor": "a", "metric": "m", "value": value, **more})


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([of_one(99.0)], "the score of 'm' for a/one is 99.0, outside [0, 10]"),
        ([of_one(-0.001, part="target 2")], "the score of 'm' for a/one, target 2 is -0.001, outside [0, 10]"),
        ([of_one(float("nan"))], "the score of 'm' for a/one is nan"),
        ([of_one(float("inf"), turn=1)], "the score of 'm' for a/one, turn 1 is inf"),
        ([of_one("8")], "the score of 'm' for a/one is '8', which is no number"),
        ([of_one(10**400)], "the score of 'm' for a/one int too large"),
        ([of_one(1.0), of_one(2.0)], "gave the score of 'm' for a/one twice"),
        ([8.0], "gave 8.0 for a score; expected a Score"),
    ],
)
def test_a_wrong_score_is_no_number_and_other_samples_go_on(scores: list[Any], message: str) -> None:
    samples = drawn_samples(ImageStore())
    protocol = Given(*scores, of_one(5.0, sample_id="turns"))
    with pytest.raises(ProtocolError, match=rf"^protocol 'given' \(.*{re.escape(message)}"):
        group_scores(protocol, samples[:2], Known())
    found = scored(protocol, samples, ())
    assert [score.value for score in found if score.value is not None] == [5.0]
    assert {score.missing for score in found if score.key in ("a/one", "b/one")} == {"input_error"}
    assert all(message in score.reason for score in found if score.key in ("a/one", "b/one"))
    assert set(protocol_faults(found)) == {"a/one", "b/one"}


TWICE = Recipe(alias="Image", origin=drawn_samples(ImageStore())[0].source)


class Plans(Faulty):
    """Plans one task: of the first sample, with these fields."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.fields = fields

    def plan(self, group: Any, known: Any) -> Any:
        if "args" not in self.fields:
            return [ask(group[0], **self.fields)]
        return [Measure(protocol=self.name, metric="m", about=About.of(group[0]), measure="mse", **self.fields)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"about": About(sample_id="one", editor="nobody")}, "about nobody/one, which is not in the group (m)"),
        ({"blocked": ("ok", "")}, "(m, a/one) blocked as ('ok', ''); expected a reason behind one of unparsed, "),
        ({"blocked": ("gone", "no file")}, "(m, a/one) blocked as ('gone', 'no file')"),
        ({"blocked": "missing_output"}, "(m, a/one) blocked as 'missing_output'"),
        ({"views": (TWICE, TWICE)}, "(m, a/one) with two views of the alias 'Image'"),
        ({"prompt": None}, "(m, a/one) with the prompt None; expected a text"),
        ({"args": {"least": float("nan")}}, "that is no JSON (m, a/one): Out of range float"),
        ({"args": {"least": object()}}, "that is no JSON (m, a/one): Unable to serialize"),
    ],
)
def test_a_task_that_cannot_be_asked_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=rf"^protocol 'faulty' \(.*planned a task {re.escape(message)}"):
        planned(Plans(**fields), drawn_samples(ImageStore())[:2], Known())
