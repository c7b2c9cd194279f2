"""The recipe in examples/training: what it reads, and both stages on a tiny random Qwen2.5-VL on the CPU."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from examples.training.train_verifier import BadRow, main, read_rows
from tests.training.recipes import needs_train, run, says, training, write_rows

SCRIPT = Path(__file__).parents[2] / "examples" / "training" / "train_verifier.py"


def pair_names(number: int) -> list[str]:
    return [f"images/{number}-before.png", f"images/{number}-after.png"]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSONL beside the pictures of six edits."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(6):
        for name in pair_names(number):
            Image.fromarray(rng.integers(0, 255, (56, 56, 3), dtype=np.uint8)).save(tmp_path / name)

    return lambda name, rows: write_rows(tmp_path / name, rows)


def sft_row(number: int) -> dict[str, Any]:
    answer = json.dumps(
        {"is_changed": number % 3 > 0, "instruction": f"Paint wall {number} red." if number % 3 else "No Edit"}
    )
    messages = [says("user", "What was done?", images=2), says("assistant", answer)]
    return {"messages": messages, "images": pair_names(number), "lineage": {"run": "runs/v", "sample": str(number)}}


def dpo_row(number: int) -> dict[str, Any]:
    return {
        "prompt": [says("user", "What was done?", images=2)],
        "chosen": [says("assistant", f"Paint wall {number} red.")],
        "rejected": [says("assistant", "Add a dog.")],
        "images": pair_names(number),
    }


def test_a_row_has_full_paths_and_the_last_word_as_completion(written: Callable[..., Path], tmp_path: Path):
    (row,) = read_rows(written("sft.jsonl", [sft_row(1)]), "sft")
    assert row["images"] == [str(tmp_path / name) for name in pair_names(1)]
    assert [m["role"] for m in row["prompt"]] == ["user"]
    assert row["completion"][0]["content"][0]["text"].startswith('{"is_changed": true')
    (pair,) = read_rows(written("dpo.jsonl", [dpo_row(1)]), "dpo")
    assert set(pair) == {"prompt", "chosen", "rejected", "images"}


def test_each_message_of_the_model_in_a_dialogue_is_learned_with_the_pictures_before_it(written: Callable[..., Path]):
    messages = [
        says("user", "Look.", images=2), says("assistant", "<tool_call>zoom</tool_call>"),
        says("user", "Crop 1", images=1), says("assistant", "Flawless Execution"),
    ]  # fmt: skip
    file = written("sft.jsonl", [{"messages": messages, "images": [*pair_names(0), "images/1-after.png"]}])
    first, second = read_rows(file, "sft")
    assert [len(first["prompt"]), len(first["images"])] == [1, 2]
    assert [len(second["prompt"]), len(second["images"])] == [3, 3]


@pytest.mark.parametrize(
    ("stage", "row", "said"),
    [
        ("sft", dpo_row(0), "line 2: expected a row of editloupe export --sft with messages, images"),
        ("dpo", sft_row(0), "with prompt, chosen, rejected, images"),
        ("sft", {**sft_row(0), "images": ["gone.png"]}, "gone.png; images are named relative to the file"),
        ("sft", {**sft_row(0), "images": pair_names(0)[:1]}, "2 places for images in the messages and 1 images"),
        ("sft", {"messages": [says("user", "Hello")], "images": []}, "no message has the role assistant"),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_named_before_a_model_loads(
    stage: str, row: Any, said: str, written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
):
    file = written("rows.jsonl", [sft_row(1) if stage == "sft" else dpo_row(1), row])
    with pytest.raises(BadRow, match="line 2"):
        list(read_rows(file, stage))
    with pytest.raises(SystemExit) as ended:
        main([stage, str(file), "--out", str(file.parent / "model")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_papers_settings_are_the_defaults_and_the_unknown_ones_are_called_so(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["dpo", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Qwen/Qwen2.5-VL-7B-Instruct, the paper's" in text
    assert "Default: 20000" in text
    for option in ("--learning-rate", "--epochs", "--beta"):
        assert "The paper's value is not known. Default: trl's." in text.partition(f"{option} ")[2].partition(" --")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rows", "0"), "--rows: expected 1 or more, found 0"),
        (("--out", "sft.jsonl"), "--out sft.jsonl is a file; name a folder"),
        pytest.param(("--set", "nonsense=1"), "--set nonsense=1: expected NAME=VALUE", marks=needs_train),
        # What the script sets itself may be set, too: the next message is another one.
        pytest.param(("--set", "bf16=false", "--set", "use_cpu=true"), "--base nowhere/here cannot be", marks=needs_train),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_option_that_means_nothing_is_named(
    written: Callable[..., Path], tmp_path: Path, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = written("sft.jsonl", [sft_row(0)])
    with pytest.raises(SystemExit) as ended:
        main(["sft", str(data), "--out", "model", "--base", "nowhere/here", *words])
    assert ended.value.code == 2 and told in capsys.readouterr().err


def trained(stage: str, data: Path, *words: str) -> dict[str, Any]:
    """training.json of a stage in a process of its own, on the CPU and offline; its model is beside the data."""
    out = data.parent / f"{stage}-model"
    base = ("--max-steps", "3", "--batch-size", "2", "--accumulate", "1", "--set", "logging_steps=1", "--set=use_cpu=true")
    return training(out, run(SCRIPT, stage, data, "--out", out, *base, *words))


def changed(one: Path, other: Path) -> set[str]:
    """Names of the weights that differ."""
    from safetensors.torch import load_file

    before, after = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert before.keys() == after.keys()
    return {name for name in before if not bool((before[name] == after[name]).all())}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.backends.tiny_qwen_vl import build

    folder = tmp_path_factory.mktemp("tiny")
    build("qwen2.5-vl", folder)
    return folder


@needs_train
@pytest.mark.filterwarnings("ignore")
def test_both_stages_train_a_model_that_loads_and_answers(written: Callable[..., Path], tiny: Path, tmp_path: Path):
    first = trained(
        "sft", written("sft.jsonl", [sft_row(i) for i in range(6)]), "--base", str(tiny), "--learning-rate", "1e-3"
    )
    assert (first["rows"], first["updates"], len(first["losses"])) == (6, 3, 3)
    # Answers of random weights over 320 tokens: ln 320 = 5.77, and less after it.
    assert first["losses"][0] == pytest.approx(math.log(320), abs=0.3)
    assert first["losses"][-1] < first["losses"][0]
    stage1 = tmp_path / "sft-model"
    assert any(".layers." in name for name in changed(tiny, stage1))

    pairs = written("dpo.jsonl", [dpo_row(i) for i in range(6)])
    second = trained("dpo", pairs, "--base", str(stage1), "--lora", "4", "--learning-rate", "1e-2")
    # The policy is the reference at first: -log sigmoid(0) = ln 2.
    assert second["losses"][0] == pytest.approx(math.log(2), abs=1e-3)
    assert all(map(math.isfinite, second["losses"]))
    # Adapters sit on the language model alone.
    adapted = changed(stage1, tmp_path / "dpo-model")
    assert adapted and all("proj" in name and "visual" not in name for name in adapted)
    assert answer(tmp_path / "dpo-model", [tmp_path / name for name in pair_names(0)])


def answer(folder: Path, images: list[Path]) -> int:
    """How many tokens a trained model says about two pictures."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    from examples.training.train_verifier import open_processor

    processor = open_processor(str(folder))
    content = [{"type": "image", "image": Image.open(file)} for file in images]
    asked = processor.apply_chat_template(
        [{"role": "user", "content": [*content, {"type": "text", "text": "What was done?"}]}],
        tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True,
    )  # fmt: skip
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    said = model.generate(**asked, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    return int(said.shape[1] - asked["input_ids"].shape[1])


def test_what_editloupe_exports_of_a_verifier_can_be_read(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path]
):
    folder = edits(2)
    rows = [json.loads(line) | {"human_is_changed": 1} for line in (folder / "metadata.jsonl").read_text().splitlines()]
    write_rows(folder / "metadata.jsonl", rows)
    said = {
        "right": '{"is_changed": true, "instruction": "Add a dog."}',
        "wrong": '{"is_changed": false, "instruction": ""}',
    }
    for name, answer in said.items():
        Path(f"{name}.jsonl").write_text(json.dumps(f"<Start Final Answer>{answer}</Start Final Answer>") + "\n")
        words = ("--set", "matching=none", "--backend", f"scripted/{name}.jsonl", "--out", name)
        assert editloupe("judge", folder, "--protocol", "unicverify", *words)[0] == 0
    assert editloupe("export", "right", "--sft", "sft")[0] == 0
    code, _, told = editloupe("export", "right", "wrong", "--sft", "dpo", "--dpo", "--human", "samples")
    assert code == 0, told
    answers = list(read_rows(Path("sft/sft.jsonl"), "sft"))
    assert len(answers) == 2 and all(len(row["images"]) == 2 for row in answers)
    assert "Add a dog." in answers[0]["completion"][0]["content"][0]["text"]
    pairs = list(read_rows(Path("dpo/dpo.jsonl"), "dpo"))
    assert [("Add a dog." in str(row["chosen"]), "false" in str(row["rejected"])) for row in pairs] == [(True, True)] * 2
