"""The backend transformers/FOLDER: tiny random models through the code that takes real ones."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.backends.base import open_backend, reach
from editloupe.chat import ImagePart, Message, Reply, Request, Sampling, TextPart
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.models import chat
from editloupe.models.chat import TransformersLMM
from editloupe.testing import check_backend

needs_torch = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "peft")), reason="needs the extra `local`"
)
Copy = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    """No model that another test has opened."""
    chat._loaded.cache_clear()
    yield
    chat._loaded.cache_clear()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.tiny_idefics3 import build

    # Wide weights: the likeliest token then differs from place to place.
    return build(tmp_path_factory.mktemp("models") / "tiny", spread=0.3)


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Copy:
    """Makes a copy of the model that a test may change."""
    return lambda name: Path(shutil.copytree(tiny, tmp_path / name))


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of rank 64 which changes what the model says."""
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    torch.manual_seed(1)
    config = peft.LoraConfig(r=64, target_modules=r".*text_model.*\.(q|v|up)_proj", init_lora_weights=False)
    with warnings.catch_warnings():
        # peft and transformers warn each other of changes to come.
        warnings.simplefilter("ignore")
        peft.get_peft_model(AutoModelForImageTextToText.from_pretrained(tiny), config).save_pretrained(folder)
    return folder


def opened(folder: Path | str, query: str = "") -> TransformersLMM:
    lmm = open_backend(f"transformers/{folder}{query}")
    assert isinstance(lmm, TransformersLMM)
    return lmm


def question(images: ImageStore, *, text: str = "What changed?", colors: tuple[int, int] = (40, 200)) -> Request:
    """A question about two pictures, each behind its name."""
    parts: list[TextPart | ImagePart] = []
    for name, color in zip(("Original Image", "Edited Image"), colors, strict=True):
        rgb = np.full((60, 80, 3), color, dtype=np.uint8)
        parts += [TextPart(text=f"{name}:"), ImagePart(image=images.add_array(rgb), alias=name)]
    return Request(messages=(Message(role="user", parts=(*parts, TextPart(text=text))),), sampling=Sampling(max_tokens=12))


def ask(lmm: TransformersLMM, **more: Any) -> Reply:
    """The reply to `question`.   more: fields of the request, and of its sampling."""
    images = ImageStore()
    request = question(images)
    fields = {name: more.pop(name) for name in ("top_logprobs", "messages") if name in more}
    return lmm.complete(replace(request, sampling=replace(request.sampling, **more), **fields), images)


def rewrite(file: Path, **fields: Any) -> None:
    """Change fields of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@needs_torch
def test_an_idefics3_and_an_adapter_keep_the_contract_of_backends(tiny: Path, adapter: Path, copied: Copy):
    reply = check_backend(lambda: opened(tiny))
    assert 0 < (reply.usage.output_tokens or 0) <= 64 and reply.model.startswith("tiny@")
    assert reply.raw["device"] == "cpu" and reply.raw["precision"] == "float32"
    lmm, plain = opened(adapter), opened(tiny)
    assert ask(lmm, top_logprobs=1).tokens[0].logprob != ask(plain, top_logprobs=1).tokens[0].logprob
    assert lmm.uri.startswith("transformers/adapter@") and plain.version.startswith("idefics3 tiny sha256:")
    assert "idefics3 tiny sha256:" in lmm.version and "lora adapter sha256:" in lmm.version
    named = opened(adapter, f"?base={copied('base')}")
    assert ask(named).text == ask(lmm).text and named.uri == lmm.uri


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["qwen2.5-vl", "qwen3-vl"])
def test_a_qwen_vl_answers_without_torchvision(tmp_path: Path, kind: str):
    from tests.backends.tiny_qwen_vl import build as build_qwen

    build_qwen(kind, tmp_path / "qwen")
    images = ImageStore()
    reply = opened(tmp_path / "qwen").complete(question(images), images)
    # Each picture of 80×60 px is some squares of 28 or 32 px; the words around are letters.
    assert (reply.usage.input_tokens or 0) > 60 and reply.usage.output_tokens == 12


@needs_torch
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_each_token_comes_with_the_models_own_probability(tiny: Path, temperature: float):
    import torch

    lmm = opened(tiny)
    model, processor = chat._loaded(lmm._weights, "auto")
    written: list[Any] = []
    generate = model.generate

    def noted(**given: Any) -> Any:
        written.extend((given, generate(**given)))
        return written[1]

    model.generate = noted
    reply = ask(lmm, top_logprobs=3, temperature=temperature, max_tokens=8)
    assert "".join(token.text for token in reply.tokens) == reply.text
    # The same by one pass over the question and the answer, whatever the sampling.
    inputs, whole = {k: v for k, v in written[0].items() if k != "generation_config"}, written[1].sequences
    length = inputs["input_ids"].shape[1]
    with torch.inference_mode():
        logits = model(**{**inputs, "input_ids": whole, "attention_mask": torch.ones_like(whole)}).logits
    rows = [
        (row, id_)
        for row, id_ in zip(logits[0, length - 1 : -1].log_softmax(-1), whole[0, length:].tolist(), strict=True)
        if id_ not in processor.tokenizer.all_special_ids
    ]
    assert len(rows) == len(reply.tokens) >= 4
    for token, (row, id_) in zip(reply.tokens, rows, strict=True):
        assert token.logprob == pytest.approx(float(row[id_]), abs=1e-4)
        assert [logprob for _, logprob in token.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
        assert temperature or token.top[0] == (token.text, token.logprob)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_loaded_is_named_before_anything_is_asked(tiny: Path, adapter: Path, copied: Copy, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    from tests.models.tiny_idefics3 import build

    for harm, told in (
        ("template", "has no chat template"), ("cut", "cannot be loaded"),
        ("tensors", "tensors of its architecture are missing"), ("text", "is no model of images and text"),
    ):  # fmt: skip
        folder = copied(f"harmed-{harm}")
        weights = folder / "model.safetensors"
        if harm == "template":
            (folder / "chat_template.jinja").unlink()
        elif harm == "cut":
            weights.write_bytes(weights.read_bytes()[:5000])
        elif harm == "tensors":
            kept = {name: tensor for name, tensor in load_file(weights).items() if "q_proj" not in name}
            save_file(kept, weights, metadata={"format": "pt"})
        else:
            rewrite(folder / "config.json", model_type="llama")
        with pytest.raises(ConfigError, match=told) as caught:
            reach(opened(folder))
        assert "harmed" in str(caught.value)
    lost, other = (Path(shutil.copytree(adapter, tmp_path / name)) for name in ("lost", "other"))
    rewrite(lost / "adapter_config.json", base_model_name_or_path="/nowhere/base")
    with pytest.raises(ConfigError, match=r"name the model that it was trained on with \?base=FOLDER"):
        opened(lost)
    with pytest.raises(ConfigError, match="so it is no adapter and takes no base"):
        opened(tiny, f"?base={tiny}")
    with pytest.raises(ConfigError, match=r"adapter .* on the base .*size mismatch"):
        reach(opened(adapter, f"?base={build(tmp_path / 'wide', hidden=64)}"))
    # peft itself only warns where a tensor has no place.
    tensors = load_file(other / "adapter_model.safetensors")
    save_file({n.replace("layers.0", "layers.7"): t for n, t in tensors.items()}, other / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match="12 of its tensors do not belong to this base"):
        reach(opened(other))


@needs_torch
def test_a_run_judges_with_a_folder_and_is_not_opened_for_somebody_who_does_not_name_it(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path], copied: Copy, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    folder, mine, out = edits(1), copied("mine"), tmp_path / "run"
    # A prompt is some 10,000 letters, and each is a token here.
    text = json.loads((mine / "config.json").read_text())["text_config"]
    rewrite(mine / "config.json", text_config={**text, "max_position_embeddings": 20_000})
    monkeypatch.chdir(mine.parent)
    words = ("--backend", "transformers/mine", "--set", "max_reply_tokens=20", "--max-turns", "1", "--out", out)
    code, _, told = editloupe("judge", folder, *words)
    # Random weights give no label: nothing could be judged.
    assert code == 1, told
    findings = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert findings and {finding["status"] for finding in findings} <= {"unparsed", "over_budget"}, findings
    monkeypatch.chdir(tmp_path)
    code, _, told = editloupe("judge", folder, "--config", out / "config.yaml", "--out", tmp_path / "again")
    assert code == 2 and f"names the weights {mine}" in told


# What a URI may say. No torch here.


def test_what_a_uri_cannot_mean_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(chat, "find_spec", lambda name: object())
    for uri, told in (
        ("transformers", "names no model; expected transformers/FOLDER or transformers/OWNER/NAME"),
        ("transformers/m?beams=4", "unknown parameter 'beams'; known: base, boxes, device, max_image_side"),
        ("transformers/m?device=tpu", "unknown device 'tpu'"),
        (f"transformers/{tmp_path}", "config.json cannot be read"),
    ):
        with pytest.raises(ConfigError) as caught:
            open_backend(uri)
        assert told in str(caught.value)
    monkeypatch.setattr(chat, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'editloupe\[local\]'"):
        open_backend(f"transformers/{tmp_path}")
