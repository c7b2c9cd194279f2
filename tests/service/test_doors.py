"""Rewards for trainers: flow-grpo's wire, TRL's function, an expression over metrics. No failure becomes a number."""

from __future__ import annotations

import asyncio
import io
import pickle
import random
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.backends.scripted import Line
from editloupe.chat import Request
from editloupe.errors import BackendError, ConfigError, Unavailable
from editloupe.rewards import Reward, async_reward_fn, reward_fn
from editloupe.scores import Interval, Metric, Score
from tests.conftest import final
from tests.service.loopback_judge import Client, by_number, needs_extra, number_of, serving, slow

IF = Metric(id="instruction_following", short="IF", domain=Interval(low=0, high=10))
VC = Metric(id="visual_consistency", short="VC", domain=Interval(low=0, high=10))


def jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (shade, shade, shade)).save(file, "JPEG")
    return file.getvalue()


def asked(numbers: list[int]) -> dict[str, Any]:
    """What Edit-R1's client pickles."""
    return {
        "ref_images": [jpeg(90)] * len(numbers),
        "images": [jpeg(number % 200) for number in numbers],
        "prompts": [f"Paint mug {number} blue." for number in numbers],
        "metadatas": [{"requirement": ""}] * len(numbers),
    }


def post(client: Client, body: Any) -> tuple[int, Any]:
    """Status, and the scores or the text."""
    import httpx

    data = body if isinstance(body, bytes) else pickle.dumps(body)
    answer = httpx.post(f"http://127.0.0.1:{client.port}/mode/logits_non_cot", content=data, timeout=360)
    return answer.status_code, pickle.loads(answer.content)["scores"] if answer.status_code == 200 else answer.text


def score(metric: str, value: float | None) -> Score:
    normalized = None if value is None else 10 * value
    missing = "refused" if value is None else None
    return Score(sample_id="s", editor="", metric=metric, value=value, normalized=normalized, missing=missing)


def test_a_reward_is_the_mean_or_an_expression_and_a_failure_is_none() -> None:
    scores = [score(IF.id, 8.0), score(VC.id, 2.0)]
    assert Reward([IF, VC]).of(scores)["value"] == pytest.approx(0.5)
    # 0.75 · 0.8 + 0.25 · 0.2
    assert Reward([IF, VC], "0.75 * IF + 0.25 * visual_consistency").of(scores)["value"] == pytest.approx(0.65)
    assert Reward([IF, VC], "min(IF, VC)").of(scores)["value"] == pytest.approx(0.2)
    for expression, told in (("IF + VC + 1", "gives 2"), ("IF / (VC - 0.2)", "expected 0 to 1")):
        graded = Reward([IF, VC], expression).of(scores)
        assert graded["value"] is None and told in str(graded["why"])
    lost = [score(IF.id, 8.0), score(VC.id, None)]
    assert Reward([IF, VC]).of(lost) == {"value": None, "why": f"{VC.id}: refused", "scores": {IF.id: 0.8, VC.id: None}}
    # What the expression does not name may be missing.
    assert Reward([IF, VC], "IF").of(lost)["value"] == pytest.approx(0.8)
    for wrong in ("IF +", "__import__('os')", "IF ** 9", "IF if VC else 0", "quality", "True", "max()", "'a'"):
        with pytest.raises(ConfigError):
            Reward([IF, VC], wrong)


def test_an_epoch_of_edits_is_scored_in_calls_of_sixty_four(tmp_path: Path) -> None:
    with serving(tmp_path / "run", slow(0.02), concurrency=32, max_queue=64, door="flow-grpo", criteria=("if",)) as client:
        numbers = list(range(132))
        found = []
        for at in range(0, 132, 64):
            status, scores = post(client, asked(numbers[at : at + 64]))
            assert status == 200
            found += scores
        # The labels' values 1 to 4, as shares of the way from 1 to 4.
        assert found == pytest.approx([(number % 4) / 3 for number in numbers])
        assert b'editloupe_rewards_total{scored="yes"} 132.0' in client.ask("/metrics")[2].encode()


def test_no_failure_is_a_number_and_the_repetition_asks_the_rest_alone(tmp_path: Path) -> None:
    rng, calls, lock = random.Random(7), [0], threading.Lock()

    def failing(request: Request) -> Line:
        with lock:
            calls[0] += 1
            fails = rng.random() < 0.4
        if fails:
            return rng.choice(("I will not say.", final("No Such Label"), ""))
        return by_number(request)

    with serving(tmp_path / "run", failing, concurrency=16, max_queue=64, door="flow-grpo", criteria=("if",)) as client:
        refused = 0
        while (answer := post(client, asked(list(range(32)))))[0] != 200:
            refused += 1
            assert refused < 60 and answer[0] == 500 and "instruction_following" in answer[1]
        found = answer[1]
        assert refused and found == pytest.approx([(number % 4) / 3 for number in range(32)])
        before = calls[0]
        assert post(client, asked(list(range(32))))[0] == 200 and calls[0] <= before + 3 * 32


def test_an_unscored_edit_may_get_its_groups_mean_and_a_group_without_any_is_an_error(tmp_path: Path) -> None:
    def some(request: Request) -> Line:
        return "Nothing." if number_of(request) >= 90 else by_number(request)

    group = asked([3, 3, 2])
    group["images"] = [jpeg(10), jpeg(20), jpeg(30)]
    with serving(tmp_path / "run", some, door="flow-grpo", criteria=("if",), group_mean=True) as client:
        assert post(client, group)[1] == pytest.approx([1.0, 1.0, 2 / 3])
        status, told = post(client, asked([91, 91]))
        assert status == 500 and "edit 0" in told


def hostile(rng: random.Random) -> bytes:
    """A pickle with a class, cut off, or with counts that nothing follows."""
    whole = pickle.dumps(asked([1]), protocol=rng.choice((2, 4, 5)))
    kinds = (
        lambda: pickle.dumps({"images": [Path("x")], "ref_images": [], "prompts": []}),
        lambda: b"cos\nsystem\n(S'touch stolen'\ntR.",
        lambda: b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0ctouch stolen\x85R.",
        lambda: whole[: rng.randrange(1, len(whole))],
        lambda: b"\x80\x05\x96" + struct.pack("<Q", 10**9) + b".",
        lambda: b"\x80\x04r" + struct.pack("<I", 2**31 - 1) + b".",
        lambda: b"\x80\x04]" + b"(" * 9 + bytes(rng.randrange(256) for _ in range(40)),
        lambda: pickle.dumps([1] * rng.randrange(5)),
        lambda: pickle.dumps({**asked([1]), "prompts": [rng.choice(("", "a" * 9000, 7, b"x"))]}),
        lambda: pickle.dumps({**asked([1, 2]), "prompts": ["a"]}),
    )
    return rng.choice(kinds)()


def test_hostile_pickles_make_no_class_and_get_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_extra()
    from editloupe.errors import SampleError
    from editloupe.service.flow_grpo import read_request

    monkeypatch.chdir(tmp_path)
    rng = random.Random(3)
    for _ in range(200):
        with pytest.raises(SampleError):
            read_request(hostile(rng))
    assert not list(tmp_path.iterdir())
    assert len(read_request(pickle.dumps(asked([1, 2])))) == 2


def test_known_bad_edits_are_mixed_in_and_stand_in_the_metrics(tmp_path: Path) -> None:
    with serving(tmp_path / "run", door="flow-grpo", criteria=("if",), canary=2) as client:
        assert post(client, asked([3, 2]))[0] == 200
        for _ in range(100):
            told = client.ask("/metrics")[2]
            if told.count('editloupe_canary_reward_count{kind="null"} 1.0') and 'kind="black"} 1.0' in told:
                break
            threading.Event().wait(0.05)
        else:
            pytest.fail(told)


def test_trls_function_gives_a_number_or_none_for_each_completion() -> None:
    def judge(messages: list[dict[str, Any]]) -> str:
        if "unavailable" in messages[0]["content"][0]["text"]:
            raise Unavailable("gone")
        return final("Over Modification")

    picture, logged = Image.new("RGB", (64, 48), "red"), {}
    reward = reward_fn(judge, mode="plain", criteria="if")
    columns = {"source": [picture] * 3, "instruction": ["Paint it.", "unavailable", "Paint it."]}
    completions = [Image.new("RGB", (64, 48), "blue"), Image.new("RGB", (64, 48), "green"), b"no image"]
    told = reward(["p"] * 3, completions, **columns, log_metric=lambda name, value: logged.update({name: value}))
    # (3 − 1) / 3; the endpoint failed; the completion is not an image.
    assert told == [pytest.approx(2 / 3), None, None] and logged == {"editloupe/unscored": pytest.approx(2 / 3)}
    # Without the column the prompt says what was asked; a completion may be made into an image.
    painted = async_reward_fn(judge, mode="plain", criteria="if", edited=lambda text, row: Image.new("RGB", (64, 48), text))
    prompts = [[{"role": "user", "content": "Paint it."}]]
    assert asyncio.run(painted(prompts, ["blue"], source=[picture])) == [pytest.approx(2 / 3)]
    with pytest.raises(BackendError, match="none of 1 edits"):
        reward(["unavailable"], [picture], source=[picture])
    with pytest.raises(ConfigError, match="no column 'source'"):
        reward(["p"], [picture])
