"""What a run may spend: tokens, seconds and money, and what the money is counted by."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from editloupe.backends.base import Traits
from editloupe.backends.image_tokens import ImageTokens
from editloupe.backends.prices import ModelPrice, Prices, read_prices
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Usage
from editloupe.cli.judge_report import spent_message
from editloupe.errors import ConfigError, Interrupted
from editloupe.runs.budget import Ledger, RunBudget
from editloupe.runs.judge import Judge
from editloupe.runs.outcome import Outcome
from editloupe.values import Sample
from tests.conftest import final
from tests.setups import open_with, run_over

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"


class Priced(ScriptedLMM):
    """A script that says it is an LMM of that name; every answer takes 1 000 input and 100 output tokens."""

    def __init__(self, uri: str, usage: Usage | None = None, rule: ImageTokens | None = None) -> None:
        usage = usage or Usage(input_tokens=1000, output_tokens=100)
        super().__init__([Reply(text=final("Wrong Action"), usage=usage)])
        self.traits = Traits(describes="a script in an LMM's place", image_tokens=rule)
        self._uri = uri

    @property
    def uri(self) -> str:
        return self._uri


def run(
    folder: Path, uri: str = "openai/m", prices: Prices | None = None, lmm: ScriptedLMM | None = None, **budget: float
) -> Outcome:
    setup = open_with(backend=lmm or Priced(uri), criteria=("if",))
    return run_over(
        setup,
        EXAMPLES,
        folder,
        config={},
        concurrency=1,
        budget=RunBudget(**budget),  # type: ignore[arg-type]
        prices=prices,
    )


CHEAP = Prices(by_name={"m": ModelPrice(input=2.0, output=10.0)}, file=Path("prices.toml"))
"""1 000 · 2 $/M + 100 · 10 $/M = 0.003 $ an answer."""


@pytest.mark.parametrize(
    ("budget", "reason"),
    # 1 100 tokens and 0.003 $ an answer: the limit is reached with the third.
    [({"max_tokens": 3300}, "tokens: 3,300 of 3,300 used"), ({"max_cost": 0.009}, "cost: 0.009 of 0.009 USD used")],
)
def test_a_run_stops_when_its_budget_is_used_up_and_goes_on_with_the_next(
    tmp_path: Path, budget: dict[str, float], reason: str
):
    outcome = run(tmp_path, prices=CHEAP, **budget)
    assert (outcome.ledger.calls, outcome.interrupted, outcome.ledger.reason) == (3, True, reason)
    assert len(outcome.findings) == 3
    again = run(tmp_path, prices=CHEAP)
    assert (again.reused, again.ledger.calls, again.interrupted) == (3, 9, False)


HUNDRED = ImageTokens(rule="100 for each image", count=lambda width, height: 100)


def silent(rule: ImageTokens | None) -> Priced:
    """Like many servers: an answer, and no word on what it took."""
    return Priced("openai/m", usage=Usage(image_tokens=3), rule=rule)


def test_answers_without_usage_are_estimated_and_said_to_be(tmp_path: Path):
    lmm = silent(HUNDRED)
    outcome = run(tmp_path, prices=CHEAP, lmm=lmm)
    asked = [len(request.messages[0].text) for request in lmm.requests]
    # Two images of 100 tokens and a token for every 4 characters, begun ones too; as for the answer.
    read = sum(200 + -(-characters // 4) for characters in asked)
    written = 12 * -(-len(final("Wrong Action")) // 4)
    ledger = outcome.ledger
    assert (ledger.calls, ledger.calls_without_usage, ledger.usage.total) == (12, 12, 0)
    assert ledger.estimated == Usage(input_tokens=read, output_tokens=written)
    assert ledger.cost == pytest.approx((2 * read + 10 * written) / 1e6)
    assert ledger.to_json()["calls_without_usage"] == 12
    told = spent_message(ledger, outcome.setup.backend)
    assert told.startswith(f"Spent: 12 calls, about {read:,} input and {written:,} output tokens, about ")
    assert told.endswith(f"\n12 calls reported no usage: {read + written:,} of these tokens are estimated.")


@pytest.mark.parametrize("budget", [{"max_tokens": 5500}, {"max_cost": 0.015}])
def test_calls_under_way_count_against_a_budget_as_much_as_the_largest_so_far(budget: dict[str, float]):
    # Room for 5 answers of 1 100 tokens and 0.003 $.
    backend = Priced("openai/m")
    ledger = Ledger(budget=RunBudget(**budget), prices=CHEAP, stop=threading.Event())  # type: ignore[arg-type]
    most: list[int] = []

    def call() -> None:
        try:
            with ledger.call(backend):
                most.append(ledger._under_way)
                time.sleep(0.02)
                ledger.spend(backend, Usage(input_tokens=1000, output_tokens=100), Usage())
        except Interrupted:
            pass

    with ThreadPoolExecutor(16) as pool:
        for _ in range(16):
            pool.submit(call)
    assert ledger.stop.is_set() and ledger.reason
    assert ledger.calls == 5
    # None is known to be small before the first has ended; then all that fit go at once.
    assert most[0] == 1 and max(most) >= 3


@pytest.mark.parametrize(
    ("rule", "tokens", "cost", "reason"),
    [
        (HUNDRED, 1, 1e-6, ": about "),
        (None, 10**9, 1e9, "tells no usage, and no rule is known for the tokens of images of openai/m"),
    ],
)
def test_a_budget_holds_or_stops_the_run_where_the_endpoint_tells_no_usage(
    tmp_path: Path, rule: ImageTokens | None, tokens: float, cost: float, reason: str
):
    for name, most in (("max_tokens", tokens), ("max_cost", cost)):
        outcome = run(tmp_path / name, prices=CHEAP, lmm=silent(rule), **{name: most})
        assert (outcome.ledger.calls, outcome.interrupted) == (1, True)
        assert reason in outcome.ledger.reason


def test_time_ends_a_run_too(tmp_path: Path):
    outcome = run(tmp_path, max_seconds=1e-6)
    assert outcome.interrupted
    assert outcome.ledger.reason.startswith("time: ")
    assert 1 <= len(outcome.findings) < 12


def test_a_judge_in_python_asks_no_more_once_its_budget_is_used_up_and_keeps_what_it_had(tmp_path: Path):
    """1,100 tokens an answer: the third question meets 2,200 of 2,000, and a further judge of the run asks it."""
    images = EXAMPLES / "images"
    sample = Sample.from_images(images / "kitchen.png", images / "kitchen-mug.png", "Change the color of the red mug.")
    options = {"mode": "plain", "repeats": 3, "criteria": "if", "out": tmp_path / "run"}
    first = Priced("openai/m")
    with Judge(first, run_tokens=2000, **options) as judge:
        for _ in range(2):
            with pytest.raises(Interrupted, match=r"the budget is used up \(tokens: 2,200 of 2,000 used\)"):
                judge.judge(sample)
        stream = judge.stream([sample])
        with pytest.raises(Interrupted, match="not all samples were judged"):
            next(stream)
    second = Priced("openai/m")
    with Judge(second, **options) as judge:
        assert [(f.repeat, f.status) for f in judge.judge(sample)] == [(0, "ok"), (1, "ok"), (2, "ok")]
    assert (len(first.requests), len(second.requests)) == (2, 1)
    others = [Sample.from_images(images / "kitchen.png", images / "kitchen-mug.png", f"Turn {n}.") for n in range(4)]
    stream = Judge(Priced("openai/m"), run_tokens=2000, mode="plain", criteria="if").stream(others, concurrency=1)
    assert [finding.status for _ in range(2) for finding in next(stream)[1]] == ["ok", "ok"]
    with pytest.raises(Interrupted, match="not all samples were judged"):
        next(stream)
    with pytest.raises(ConfigError, match=r"Judge\(limit=…\) is an option of editloupe judge alone"):
        Judge(limit=3)


def test_an_unknown_price_is_no_zero(tmp_path: Path):
    outcome = run(tmp_path, "vllm/own")
    assert outcome.ledger.cost is None
    assert outcome.ledger.prices.basis(outcome.setup.backend) == "no price is known"
    with pytest.raises(ConfigError, match=r"no price is known for vllm/own; give one with --set prices=FILE"):
        run(tmp_path / "other", "vllm/own", max_cost=1.0)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(find_spec("genai_prices") is None, reason="genai-prices is not installed")
def test_list_prices_hold_for_a_providers_own_endpoint_only():
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cached_tokens=0)
    listed = Prices().of(Priced("openai/gpt-4o-mini"), usage)
    # 0.15 $ for a million input tokens and 0.60 $ for a million output tokens.
    assert listed == pytest.approx(0.75)
    assert Prices().of(Priced("langchain/openai:gpt-4o-mini"), usage) == pytest.approx(0.75)
    assert Prices().of(Priced("openai/gpt-4o-mini?base_url=http://127.0.0.1:9/v1"), usage) is None
    assert Prices().of(Priced("openai/no-such-model"), usage) is None


def test_a_file_of_prices_is_read_by_model_or_by_uri(tmp_path: Path):
    path = tmp_path / "prices.toml"
    path.write_text('[models."vllm/own"]\ninput = 1\noutput = 2.5\n[models.m]\ninput = 3\noutput = 3\ncached_input = 0\n')
    prices = read_prices(path)
    million = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert prices.of(Priced("vllm/own?base_url=http://127.0.0.1:9/v1"), million) == pytest.approx(3.5)
    assert prices.of(Priced("openai/m"), million) == pytest.approx(6.0)
    assert prices.of(Priced("vllm/m2"), million) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("input = 1", "expected tables like"),
        ("[models.m]\ninput = 1", "expected input, output and perhaps cached_input"),
        ("[models.m]\ninput = 1\noutput = -2", "output = -2; expected a number of USD"),
        ("[models.m]\ninput = 1\noutput = nan", "expected a number of USD"),
        ("[models.m]\ninput = 1\noutput = true", "expected a number of USD"),
        ("[models", "not valid TOML"),
    ],
)
def test_a_broken_file_of_prices_says_what_is_wrong(tmp_path: Path, text: str, told: str):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_prices(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prices(tmp_path / "none.toml")
