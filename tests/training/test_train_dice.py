"""The recipe of DICE in examples/training: its options, and its three stages on a tiny random Idefics3 on the CPU."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import Run
from editloupe.data.images import RGB
from editloupe.protocols.dice.differences import Op, detected
from examples.training.dice.train_dice import LORA_TARGETS, STAGES, Precision, main, precision
from examples.training.train_verifier import BadOption
from tests.training.recipes import needs_train, run, says, training, write_rows

Cli = Callable[..., tuple[int, str, str]]

SIDE = 112
COLORS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220)}
PAIRS: dict[str, tuple[Op, str, int, int]] = {
    "p0": ("ADD", "red", 8, 8), "p1": ("REMOVE", "red", 60, 8), "p2": ("EDIT", "green", 8, 60),
    "p3": ("ADD", "blue", 60, 60), "p4": ("REMOVE", "green", 8, 8), "p5": ("EDIT", "blue", 60, 8),
}  # fmt: skip
"""Pair → what differs: a square of 40 px at this place, on a gray ground of 112 px."""


def line_of(pair: str) -> str:
    """The difference as the detector writes it."""
    op, color, x, y = PAIRS[pair]
    box = ", ".join(f"{v / SIDE:.1f}" for v in (x, y, x + 40, y + 40))
    return f"{op}: {color} square, [{box}]"


def pictures_of(pair: str) -> tuple[RGB, RGB]:
    op, color, x, y = PAIRS[pair]
    source, edited = (np.full((SIDE, SIDE, 3), 128, dtype=np.uint8) for _ in range(2))
    place = slice(y, y + 40), slice(x, x + 40)
    if op != "ADD":
        source[place] = COLORS[color] if op == "REMOVE" else (240, 240, 20)
    if op != "REMOVE":
        edited[place] = COLORS[color]
    return source, edited


def draw(folder: Path) -> Path:
    """Write the pairs as an ImageFolder."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for pair in PAIRS:
        names = [f"images/{pair}-{which}.png" for which in ("source", "edited")]
        for name, rgb in zip(names, pictures_of(pair), strict=True):
            Image.fromarray(rgb).save(folder / name)
        asked = "Add a square." if PAIRS[pair][0] == "ADD" else "Leave it as it is."
        rows.append({"id": pair, "instruction": asked, "source_file_name": names[0], "edited_file_name": names[1]})
    return write_rows(folder / "metadata.jsonl", rows).parent


def row(pair: str, *, images: int = 2, answer: str | None = None) -> dict[str, Any]:
    """A row of sft.jsonl beside the images."""
    names = [f"images/{pair}-{which}.png" for which in ("source", "edited")]
    messages = [says("user", "What differs?", images), says("assistant", line_of(pair) if answer is None else answer)]
    return {"messages": messages, "images": names[:images]}


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """A file of rows beside the images of the pairs."""
    return write_rows(draw(tmp_path / "data") / "sft.jsonl", [row(pair) for pair in PAIRS])


def test_each_stage_has_the_papers_settings_as_defaults(capsys: pytest.CaptureFixture[str]):
    # The supplement's training details: 9k and 30k steps at 1e-4 with 8 rows, 550 at 1e-5 with one.
    found = {name: (stage.steps, stage.learning_rate, stage.batch_size) for name, stage in STAGES.items()}
    assert found == {"pairs": (9000, 1e-4, 8), "inpainted": (30000, 1e-4, 8), "coherence": (550, 1e-5, 1)}
    for name, steps, rate in (("pairs", 9000, "0.0001"), ("inpainted", 30000, "0.0001"), ("coherence", 550, "1e-05")):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        for told in (f"weight updates. Default: {steps}, the paper's", f"Default: {rate}, the paper's", "Default: 64, the",
                     "Default: 16, the", "Default: 0.1, the", "Idefics3-8B-Llama3, the paper's"):  # fmt: skip
            assert told in text


def test_four_bits_are_taken_where_they_can_be_had():
    paper = Precision(four_bit=True, optimizer="paged_adamw_8bit", dtype="bfloat16")
    assert precision("auto", cuda=True, bitsandbytes=True) == precision("4bit", cuda=True, bitsandbytes=True) == paper
    sixteen = Precision(four_bit=False, optimizer="paged_adamw_8bit", dtype="bfloat16")
    assert precision("16bit", cuda=True, bitsandbytes=True) == sixteen
    assert precision("auto", cuda=True, bitsandbytes=False).optimizer == "adamw_torch"
    assert precision("auto", cuda=False, bitsandbytes=True).dtype == "float32"
    with pytest.raises(BadOption, match="--weights 4bit needs bitsandbytes"):
        precision("4bit", cuda=True, bitsandbytes=False)
    with pytest.raises(BadOption, match="--weights 4bit needs an NVIDIA GPU"):
        precision("4bit", cuda=False, bitsandbytes=True)


def test_the_adapter_sits_on_the_blocks_of_the_text_alone():
    for name, trained in {
        "model.text_model.layers.31.self_attn.o_proj": True,
        "model.language_model.layers.0.self_attn.q_proj": True,
        "model.vision_model.encoder.layers.0.self_attn.q_proj": False,
        "model.connector.modality_projection.proj": False,
        "lm_head": False,
    }.items():
        assert (re.fullmatch(LORA_TARGETS, name) is not None) == trained, name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--batch-size", "0"), "--batch-size: expected 1 or more, found 0"),
        pytest.param(
            ("--batch-size", "8", "--rows-at-once", "3"), "--batch-size 8 is no multiple of --rows-at-once 3 × 1",
            marks=needs_train,
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_an_option_that_means_nothing_is_named(
    drawn: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(["pairs", str(drawn), "--out", str(drawn.parent / "out"), *words])
    assert ended.value.code == 2 and told in capsys.readouterr().err


def test_a_row_without_both_images_is_named(drawn: Path, capsys: pytest.CaptureFixture[str]):
    write_rows(drawn, [row("p0"), row("p1", images=1)])
    with pytest.raises(SystemExit) as ended:
        main(["pairs", str(drawn), "--out", str(drawn.parent / "out")])
    assert ended.value.code == 2
    assert "answer 2: expected two images before it, the source and the edited one; found 1" in capsys.readouterr().err


def train(stage: str, data: Path, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A stage in a process of its own."""
    quick = ("--dropout", "0", *(f"--set={name}" for name in ("use_cpu=true", "gradient_checkpointing=false")))
    return run("-m", "examples.training.dice.train_dice", stage, data, "--out", out, *quick, *words)


def trained(stage: str, data: Path, out: Path, *words: str) -> dict[str, Any]:
    """training.json of a stage."""
    done = train(stage, data, out, *words)
    told = training(out, done)
    losses = told["losses"]
    assert f"first loss {losses[0]:.4g}, last loss {losses[-1]:.4g}" in done.stdout
    return told


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.tiny_idefics3 import build

    return build(tmp_path_factory.mktemp("models") / "tiny", spread=0.2)


@needs_train
def test_an_adapter_of_the_papers_rank_trains_the_text_alone_and_goes_on_where_it_stopped(tiny: Path, drawn: Path):
    from safetensors.torch import load_file

    out, words = drawn.parent / "out", ("--base", str(tiny), "--set", "logging_steps=1", "--set", "save_steps=2")
    first = trained("pairs", drawn, out, *words, "--steps", "3", "--batch-size", "2", "--learning-rate", "1e-2")
    assert (first["rows"], first["updates"], len(first["losses"]), first["optimizer"]) == (6, 3, 3, "adamw_torch")
    assert first["losses"][-1] < first["losses"][0]
    tensors = load_file(out / "adapter_model.safetensors")
    # One block: seven layers, with A and B of rank 64 each.
    assert len(tensors) == 14 and all(".text_model.layers.0." in name for name in tensors)
    assert all(64 in tensor.shape for tensor in tensors.values())
    assert any(bool(tensor.any()) for name, tensor in tensors.items() if "lora_B" in name), "B begins at zero"
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (64, 16, str(tiny))

    for rest in (out / "checkpoints" / "checkpoint-3").glob("*"):
        rest.unlink()
    (out / "checkpoints" / "checkpoint-3").rmdir()
    second = trained("pairs", drawn, out, *words, "--steps", "3", "--batch-size", "2", "--learning-rate", "1e-2")
    assert second["updates"] == 3 and second["losses"][:2] == first["losses"][:2]
    other = train("pairs", drawn, out, *words, "--steps", "3", "--batch-size", "1", "--learning-rate", "1e-2")
    assert other.returncode == 2
    assert "holds a training with another batch_size 2 (now 1); name another folder" in other.stderr


@needs_train
def test_a_loss_that_is_not_finite_saves_nothing(tiny: Path, drawn: Path):
    out = drawn.parent / "out"
    done = train("coherence", drawn, out, "--base", str(tiny), "--steps", "3", "--learning-rate", "1e30")
    assert done.returncode == 1
    assert "the loss is not finite" in done.stderr and "Try a lower --learning-rate" in done.stderr
    assert not (out / "adapter_model.safetensors").exists() and not (out / "training.json").exists()


@needs_train
def test_the_loss_is_on_the_answer_alone(tiny: Path, drawn: Path):
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    write_rows(drawn, [row("p0")])
    words = ("--base", str(tiny), "--steps", "1", "--batch-size", "1")
    (loss,) = trained("pairs", drawn, drawn.parent / "out", *words)["losses"]
    # Before the first update the adapter does nothing: the loss is the base's own, by hand.
    processor = AutoProcessor.from_pretrained(tiny, backend="pil")
    pictures = [{"type": "image", "image": Image.fromarray(rgb)} for rgb in pictures_of("p0")]
    asked, said = says("user", "What differs?"), says("assistant", line_of("p0"))
    asked["content"][:0] = pictures
    whole, question = (
        processor.apply_chat_template(
            talk, add_generation_prompt=opens, tokenize=True, return_dict=True, return_tensors="pt"
        )
        for talk, opens in (([asked, said], False), ([asked], True))
    )
    with torch.inference_mode():
        logits = AutoModelForImageTextToText.from_pretrained(tiny)(**whole).logits[0, :-1]
    each = torch.nn.functional.cross_entropy(logits, whole["input_ids"][0, 1:], reduction="none")
    answer = each[question["input_ids"].shape[1] - 1 :]
    # " ", "ADD" and each further letter of the line, then <end_of_utterance> and the line's end.
    assert len(answer) == len(" ADD: red square, [0.1, 0.1, 0.4, 0.4]") - 2 + 2
    assert loss == pytest.approx(float(answer.mean()), abs=2e-3)
    assert abs(float(each.mean()) - loss) > 0.02


def exported(editloupe: Cli, data: Path, out: Path) -> None:
    """Write out/all/NAME.jsonl for both questions of the protocol, as they are asked of a model, with the true answers."""
    (out / "found.jsonl").write_text(json.dumps(f"<Start Final Answer>{line_of('p0')}</Start Final Answer>") + "\n")
    (out / "asked.jsonl").write_text(json.dumps("<Start Final Answer>yes</Start Final Answer>") + "\n")
    (out / "find.md").write_text("List what differs.\n")
    (out / "ask.md").write_text("Asked for: {{ instruction }} In the {{ color }} box {{ change }}. Was it asked for?\n")
    roles = (f"detector=scripted/{out / 'found.jsonl'}", f"coherence=scripted/{out / 'asked.jsonl'}")
    judge(editloupe, data, out, *roles, to=out / "scripted")
    assert editloupe("export", out / "scripted", "--sft", out / "all")[0] == 0
    rows = [json.loads(line) for line in (out / "all" / "sft.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 2 * len(PAIRS)
    for one in rows:
        pair, metric = one["lineage"]["sample"], one["lineage"]["metric"]
        true = line_of(pair) if metric == "differences" else "yes" if PAIRS[pair][0] == "ADD" else "no"
        one["messages"][-1]["content"] = [{"type": "text", "text": f"<Start Final Answer>{true}</Start Final Answer>"}]
    for metric in ("differences", "coherence"):
        write_rows(out / "all" / f"{metric}.jsonl", [one for one in rows if one["lineage"]["metric"] == metric])


def judge(editloupe: Cli, data: Path, out: Path, *roles: str, to: Path) -> None:
    given = [
        word
        for option in ("form=lines", f"detector_prompt={out / 'find.md'}", f"coherence_prompt={out / 'ask.md'}")
        for word in ("--set", option)
    ]
    named = [word for role in roles for word in ("--set", f"role.{role}")]
    code, _, told = editloupe(
        "judge", data, "--protocol", "dice", *given, *named, "--set", "max_reply_tokens=60", "--out", to
    )
    assert code == 0, told


def words_in(*files: Path) -> list[str]:
    """The words of the questions, and the tags: as tokens of their own they make a tiny model's task short."""
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [part["text"] for one in rows for m in one["messages"] for part in m["content"] if part["type"] == "text"]
    tags = ["<Start Final Answer>", "</Start Final Answer>", "<Start Thinking>", "</Start Thinking>"]
    found = {word for text in texts for word in re.findall(r" ?[A-Za-z]{3,}", text)} - {"ADD", "EDIT", "REMOVE"}
    return [*tags, *sorted(found - {f" {op}" for op in ("ADD", "EDIT", "REMOVE")})]


@needs_train
@pytest.mark.filterwarnings("ignore")
def test_three_stages_train_a_detector_and_a_judge_that_the_protocol_asks(editloupe: Cli, tmp_path: Path):
    from tests.models.tiny_idefics3 import build

    data = draw(tmp_path / "pairs")
    exported(editloupe, data, tmp_path)
    found, asked = (tmp_path / "all" / f"{metric}.jsonl" for metric in ("differences", "coherence"))
    base = build(tmp_path / "base", spread=0.2, layers=2, words=words_in(found, asked))
    at_once = ("--batch-size", "6", "--rows-at-once", "6")

    first = trained(
        "pairs", found, tmp_path / "stage1", "--base", str(base), *at_once, "--steps", "150", "--learning-rate", "1e-2"
    )
    second = trained(
        "inpainted", found, tmp_path / "detector", "--base", str(tmp_path / "stage1"), *at_once, "--steps", "20",
        "--learning-rate", "1e-3",
    )  # fmt: skip
    third = trained(
        "coherence", asked, tmp_path / "coherent", "--base", str(base), *at_once, "--steps", "60", "--learning-rate", "1e-2"
    )
    assert all(one["losses"][-1] < one["losses"][0] for one in (first, second, third))
    # Stage 2 begins where stage 1 ended: the merged model lies beside its adapter.
    assert second["losses"][0] < first["losses"][0] / 2
    config = json.loads((tmp_path / "detector" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "detector" / "base")

    roles = (f"detector=transformers/{tmp_path / 'detector'}", f"coherence=transformers/{tmp_path / 'coherent'}")
    judge(editloupe, data, tmp_path, *roles, to=tmp_path / "run")
    findings = Run(tmp_path / "run").findings
    for pair, (op, color, x, y) in PAIRS.items():
        listed = next(detected(f) for f in findings if f.sample_id == pair and f.metric == "differences")
        assert listed is not None and listed.source == "logprob"
        (one,) = listed.differences
        assert (one.op, one.object) == (op, f"{color} square")
        assert tuple(one.box) == pytest.approx([round(v / SIDE, 1) for v in (x, y, x + 40, y + 40)])
        # Written greedily, the command is the likeliest of the three.
        assert one.confidence is not None and 1 / 3 < one.confidence <= 1
        said = next(f for f in findings if f.sample_id == pair and f.metric == "coherence")
        assert said.label == ("yes" if op == "ADD" else "no")
    assert all(math.isfinite(loss) for told in (first, second, third) for loss in told["losses"])
