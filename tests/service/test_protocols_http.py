"""A protocol that is not DLEBench over HTTP: waves, measures, metrics of several kinds, and what becomes the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.chat import Request
from editloupe.runs.store import RunStore
from editloupe.scores import Binary, Interval, Metric, Real, Score
from editloupe.service.http_models import options_out, reward_of
from tests.conftest import final
from tests.service.loopback_judge import edit, serving
from tests.service.waves import MeanChange, install


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions so far; the protocol is installed."""
    install(monkeypatch)
    return []


def backbone(asked: list[str]) -> Any:
    """Answers both waves, and keeps the questions."""

    def answer(request: Request) -> Any:
        text = request.messages[0].text
        asked.append("object" if "Name the object" in text else "there")
        return final("mug") if "Name the object" in text else final("yes" if "Is there a mug?" in text else "no")

    return answer


def test_what_a_finding_makes_ready_is_judged_too_and_a_measure_is_computed_once(tmp_path: Path, asked: list[str]):
    with serving(tmp_path / "run", backbone(asked), protocol="waves", options={}) as service:
        status, _, said = service.ask("/v1/judge", edit(1))
        assert status == 200, said
        again = service.ask("/v1/judge", edit(1))[2]
        another = service.ask("/v1/judge", edit(1, repeat=1))[2]
    found = [(f["metric"], f["turn"], f["role"], f["status"], f["answer"], f["reused"]) for f in said["findings"]]
    # Every pixel goes from 90 to 120: 30 / 255 = 0.117647.
    assert found == [
        ("object", 0, "judge", "ok", "mug", False),
        ("change", 0, "measure", "ok", "0.117647", False),
        ("there", 1, "judge", "ok", "yes", False),
    ]
    assert [(s["metric"], s["turn"], s["value"]) for s in said["scores"]] == [
        ("there", 1, 1.0),
        ("change", 0, pytest.approx(30 / 255)),
    ]
    # Less change is better: 100 − 11.76 = 88.24; with 100 for `there` the mean is 94.12.
    assert said["reward"]["scores"] == {"there": 100.0, "change": pytest.approx(88.235, abs=0.001)}
    assert said["reward"]["value"] == pytest.approx(94.118, abs=0.001)
    assert [f["reused"] for f in again["findings"]] == [True, True, True] and again["reward"] == said["reward"]
    # Another repeat asks the judge again; the measure can say nothing else.
    assert [f["reused"] for f in another["findings"]] == [False, True, False]
    assert asked == ["object", "there"] * 2 and MeanChange.calls == 1
    store = RunStore.read(tmp_path / "run")
    assert not store.problems and len(store.findings) == 5
    assert set(store.roles().values()) == {"judge", "measure"}
    assert not list((tmp_path / "run" / "traces").rglob("*aside*"))


def test_only_the_metrics_that_are_asked_for_are_judged_and_what_they_rest_on(tmp_path: Path, asked: list[str]):
    with serving(tmp_path / "run", backbone(asked), protocol="waves", options={}) as service:
        one = service.ask("/v1/judge", edit(1, criteria=["T"]))[2]
        assert [f["metric"] for f in one["findings"]] == ["object", "there"] and MeanChange.calls == 0
        assert one["reward"] == {"value": 100.0, "why": None, "scores": {"there": 100.0}}
        assert [s["metric"] for s in one["scores"]] == ["there"]
        status, _, said = service.ask("/v1/judge", edit(1, criteria=["object"]))
        assert status == 422 and "no metric 'object'; there are: there (T), change" in said["detail"]


def test_a_wave_that_does_not_come_leaves_no_number(tmp_path: Path, asked: list[str]):
    def mumbles(request: Request) -> Any:
        return "I cannot say."

    with serving(tmp_path / "one", mumbles, protocol="waves", options={}) as service:
        said = service.ask("/v1/judge", edit(1))[2]
        assert [(f["metric"], f["status"]) for f in said["findings"]] == [("object", "unparsed"), ("change", "ok")]
        assert said["reward"]["value"] is None and said["reward"]["why"] == "there: not judged yet"
    with serving(tmp_path / "two", backbone(asked), protocol="waves", options={"fails": True}) as service:
        status, _, said = service.ask("/v1/judge", edit(1))
        assert status == 200 and said["reward"]["value"] is None
        broken = [f for f in said["findings"] if f["status"] == "input_error"]
        assert {f["metric"] for f in broken} == {"there", "change"}
        assert all("raised in plan: LookupError: no second wave today" in f["reason"] for f in broken)


def test_who_judges_is_told_by_protocol_and_options(tmp_path: Path, asked: list[str]):
    with serving(tmp_path / "waves", protocol="waves", options={"strict": True}) as service:
        ready = service.ask("/readyz")[2]
        assert (ready["protocol"], ready["options"]) == ("waves", {"strict": True, "fails": False})
        assert (ready["mode"], ready["rubric"], ready["criteria"]) == (None, None, ["there", "change"])
    with serving(tmp_path / "dlebench") as service:
        ready = service.ask("/readyz")[2]
        assert (ready["protocol"], ready["mode"], ready["rubric"]) == ("dlebench", "plain", "dlebench")
        assert ready["options"]["mask_pad"] == 0.05 and ready["criteria"][0] == "instruction_following"


def test_the_old_names_of_a_finding_are_marked_as_deprecated(tmp_path: Path):
    with serving(tmp_path / "run") as service:
        schema = service.ask("/openapi.json")[2]["components"]["schemas"]
        finding = service.ask("/v1/judge", edit(1))[2]["findings"][0]
    fields = schema["FindingOut"]["properties"]
    assert {name for name, field in fields.items() if field.get("deprecated")} == {"criterion", "target"}
    assert finding["criterion"] == finding["metric"] == "instruction_following"
    assert schema["Ready"]["properties"]["taken"]["description"] == "Edits that are judged or wait."


def scored(metric: str, value: float | None, normalised: float | None = None, *, turn: int = 0) -> Score:
    missing = "refused" if value is None else None
    return Score(sample_id="a", turn=turn, metric=metric, value=value, normalised=normalised, missing=missing)


def test_a_reward_is_the_mean_over_metrics_of_the_mean_over_turns():
    quality, shift = (
        Metric(id="quality", domain=Interval(low=0, high=10)),
        Metric(id="shift", domain=Binary(), better="lower"),
    )
    scores = [scored("quality", 4, 40, turn=1), scored("quality", 8, 80, turn=2), scored("shift", 0, 0)]
    # (40 + 80) / 2 = 60; no shift is the best, 100; (60 + 100) / 2 = 80.
    assert reward_of(scores, [quality, shift]).model_dump() == {
        "value": 80.0,
        "why": None,
        "scores": {"quality": 60.0, "shift": 100.0},
    }
    torn = reward_of([scores[0], scored("quality", None, turn=2)], [quality])
    assert torn.model_dump() == {"value": None, "why": "quality: refused", "scores": {"quality": None}}
    assert reward_of([], [quality]).why == "quality: the protocol gives no score"


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (Metric(id="psnr", domain=Real(), unit="dB"), "psnr: a metric without bounds is no reward"),
        (Metric(id="area", domain=Interval(low=0, high=1), better=None), "area: a metric without a direction is no reward"),
    ],
)
def test_a_metric_that_cannot_be_a_reward_gives_none_and_says_so(metric: Metric, reason: str):
    said = reward_of([scored(metric.id, 0.5, metric.normalise(0.5))], [metric])
    assert said.value is None and said.scores == {metric.id: None} and (said.why or "").startswith(reason)


def test_options_show_no_text_of_an_object():
    options = options_out({"a": 1, "rubric": {"id": "mine", "secret": "x"}, "prompt": {"name": "p.md"}, "other": {"b": 2}})
    assert options | {"other": ""} == {"a": 1, "rubric": "mine", "prompt": "p.md", "other": ""}
    assert len(str(options["other"])) == 16
