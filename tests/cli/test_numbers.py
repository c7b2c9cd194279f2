"""Numbers that are none: no option takes infinity or NaN, wherever it is given, and none is absurdly large."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import pytest

from editloupe import cli
from editloupe.backends.base import open_backend
from editloupe.backends.prices import read_prices
from editloupe.cli.options import finite, kind_of
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.protocols.base import make_protocol
from editloupe.runs.judge import Judge

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]

FIELDS = {**JudgeConfig.model_fields, **RunConfig.model_fields}
NUMBERS = [name for name, field in FIELDS.items() if kind_of(field.annotation) is float]
WHOLE = [name for name, field in FIELDS.items() if kind_of(field.annotation) is int]


def test_every_command_refuses_infinity_and_nan_for_each_of_its_numbers():
    seen = 0
    for name in cli.COMMANDS:
        plain = f"{name}_" if iskeyword(name) else name
        module = import_module(f"editloupe.cli.{cli._MODULES.get(name, plain)}")
        functions = [getattr(module, plain), *(getattr(module, sub.replace("-", "_")) for sub in cli._GROUPS.get(name, ()))]
        for parameter in (p for f in functions for p in inspect.signature(f, eval_str=True).parameters.values()):
            if kind_of(parameter.annotation) is float:
                (option,) = parameter.annotation.__metadata__
                assert option.callback is finite, f"{name} --{parameter.name}"
                seen += 1
    # The numbers of a run in judge, rank and serve, and those of their own.
    assert seen >= 2 * len(NUMBERS)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize(
    "words",
    [
        *(("judge", "edits", f"--{name.replace('_', '-')}") for name in NUMBERS),
        ("compare", "run", "--level"),
        ("replay", "run", "--fail-above"),
        ("serve", "--out", "run", "--timeout"),
        ("serve", "--out", "run", "--grace"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_the_command_line_names_a_number_that_is_none(editloupe: Run, words: tuple[str, ...], value: str):
    code, said, told = editloupe(*words[:-1], f"{words[-1]}={value}")
    assert (code, said) == (2, "")
    assert words[-1] in told and "Traceback" not in told
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_file_of_options_names_a_number_that_is_none(name: str, value: float, editloupe: Run, tmp_path: Path):
    with pytest.raises(ConfigError, match=f"{name}: .*; found -?(inf|nan)"):
        RunConfig.each_judge({name: value})
    word = {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    (tmp_path / "config.yaml").write_text(f"path: edits\n{name}: {word}\n")
    code, _, told = editloupe("judge", "--config", "config.yaml")
    assert (code, told.count("\n")) == (2, 1)
    assert f"config.yaml: {name}: " in told


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_is_one_that_every_program_can_store(name: str):
    with pytest.raises(ConfigError, match=f"{name}: (expected a whole number of at most 64 bits|.* less than or equal to)"):
        RunConfig.each_judge({name: 2**63})


def test_digits_without_end_are_no_number(editloupe: Run, tmp_path: Path):
    for text, told in ((f"seed: {'9' * 5000}\n", "is not YAML"), ("seed: 2024-99-99\n", "is not YAML")):
        (tmp_path / "config.yaml").write_text(text)
        code, _, found = editloupe("judge", "edits", "--config", "config.yaml")
        assert code == 2 and told in found
    assert editloupe("judge", "edits", "--seed", "9" * 5000)[0] == 2
    assert editloupe("compare", "run", "--resamples", "1000000000000")[0] == 2


@pytest.mark.parametrize("value", ["inf", "nan", "1e999", math.inf, math.nan])
@pytest.mark.parametrize("name", ["mask_pad", "lambda_max", "lambda_min", "s_min", "s_max"])
def test_an_option_of_a_protocol_is_a_finite_number(name: str, value: str | float):
    with pytest.raises(ConfigError, match=f"protocol 'dlebench' .*: option {name}: "):
        make_protocol("dlebench", {name: value})


@pytest.mark.parametrize("value", ["inf", "nan", "1e308", "0", "9" * 5000])
@pytest.mark.parametrize("name", ["timeout_s", "max_image_side"])
def test_a_parameter_of_a_backend_is_a_number_of_a_sensible_size(name: str, value: str):
    with pytest.raises(ConfigError, match=f"{name}='") as caught:
        open_backend(f"openai/m?env=none&base_url=http://127.0.0.1:9/v1&{name}={value}")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e999", "9" * 400, "9" * 5000, "true"])
def test_a_price_is_a_number_of_usd(value: str, tmp_path: Path):
    (tmp_path / "prices.toml").write_text(f'[models."m"]\ninput = {value}\noutput = 1\n')
    with pytest.raises(ConfigError, match=r"prices .*prices\.toml"):
        read_prices(tmp_path / "prices.toml")


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e308])
def test_a_judge_in_python_has_finite_numbers_too(value: float):
    with pytest.raises(ConfigError, match="temperature: "):
        Judge(temperature=value)
