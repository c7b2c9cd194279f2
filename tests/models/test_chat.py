"""The backend transformers/FOLDER: tiny random models through the code that takes real ones."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.backends.base import open_backend, reach
from editloupe.chat import ImagePart, Message, Reply, Request, Sampling, TextPart
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, Rejected
from editloupe.models.chat import open as chat
from editloupe.models.chat.backend import TransformersLMM
from editloupe.testing import check_backend
from tests.models.tiny_idefics3 import LONGEST, build, model

torch = pytest.importorskip("torch", reason="needs the extra `local`")
pytest.importorskip("transformers", reason="needs the extra `local`")
peft = pytest.importorskip("peft", reason="needs the extra `local`")

Copy = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    """No model that another test has opened."""
    chat._shared.cache_clear()
    yield
    chat._shared.cache_clear()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Wide weights: the likeliest token then differs from place to place.
    return build(tmp_path_factory.mktemp("models") / "tiny", spread=0.3)


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Copy:
    """Makes a copy of the model that a test may change."""
    return lambda name: Path(shutil.copytree(tiny, tmp_path / name))


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(tiny, tmp_path_factory.mktemp("adapters") / "adapter")


def make_adapter(base: Path, folder: Path) -> Path:
    """Write an adapter of rank 64, wider than the layers that it is on, which changes what the model says."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(1)
    config = peft.LoraConfig(r=64, target_modules=r".*text_model.*\.(q|v|up)_proj", init_lora_weights=False)
    with warnings.catch_warnings():
        # peft and transformers warn each other of changes to come.
        warnings.simplefilter("ignore")
        peft.get_peft_model(AutoModelForImageTextToText.from_pretrained(base), config).save_pretrained(folder)
    return folder


def opened(folder: Path | str, query: str = "") -> TransformersLMM:
    lmm = open_backend(f"transformers/{folder}{query}")
    assert isinstance(lmm, TransformersLMM)
    return lmm


def question(images: ImageStore, *, text: str = "What changed?", colours: tuple[int, int] = (40, 200)) -> Request:
    """A question about two pictures, each behind its name."""
    parts: list[TextPart | ImagePart] = []
    for name, colour in zip(("Original Image", "Edited Image"), colours, strict=True):
        rgb = np.full((60, 80, 3), colour, dtype=np.uint8)
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


def test_an_idefics3_keeps_the_contract_of_backends(tiny: Path):
    reply = check_backend(lambda: opened(tiny))
    assert 0 < (reply.usage.output_tokens or 0) <= 64
    assert reply.sent["model"] == reply.model and reply.model.startswith("tiny@")
    assert reply.raw["precision"] == "float32" and reply.raw["device"] == "cpu"


def test_an_adapter_keeps_the_contract_of_backends(adapter: Path):
    check_backend(lambda: opened(adapter), threads=2)


@pytest.mark.filterwarnings("ignore")
def test_a_qwen_vl_answers_with_torchvision_and_without(tmp_path: Path):
    from tests.backends.tiny_qwen_vl import build as build_qwen

    build_qwen("qwen2.5-vl", tmp_path / "qwen")
    text = json.loads((tmp_path / "qwen" / "config.json").read_text())["text_config"]
    # A short context, since a random model answers until it is full.
    rewrite(tmp_path / "qwen" / "config.json", text_config={**text, "max_position_embeddings": 512})
    reply = check_backend(lambda: opened(tmp_path / "qwen"), threads=2)
    # Its processor of videos, which only torchvision brings, is left aside where that is installed, too.
    assert not hasattr(opened(tmp_path / "qwen").network._ready().processor, "video_processor")
    # Each picture of 320×240 px is scaled to at most 64 squares.
    assert reply.usage.image_tokens is not None and 3 * 40 <= reply.usage.image_tokens <= 3 * 64


def test_pictures_stand_where_the_message_has_them(tiny: Path):
    lmm, images = opened(tiny), ImageStore()
    first, swapped = (
        lmm.complete(replace(question(images, colours=colours), top_logprobs=1), images)
        for colours in ((40, 200), (200, 40))
    )
    # Each is scaled to 112×84 px, which two by two squares of 56 px cover; with the whole that is five of 4 tokens.
    assert first.usage.image_tokens == 2 * 5 * 4
    assert first.usage.input_tokens == swapped.usage.input_tokens
    assert first.tokens[0].logprob != swapped.tokens[0].logprob
    short = ImageStore()
    smaller = opened(tiny, "?max_image_side=64").complete(question(short), short)
    assert smaller.usage.image_tokens == 2 * 5 * 4, "the processor scales up what was reduced"


def test_a_system_message_and_a_dialogue_are_read(tiny: Path):
    images = ImageStore()
    request = question(images)
    talk = (
        Message.of_text("system", "You look closely."), *request.messages, Message.of_text("assistant", "EDIT: a vase"),
        Message.of_text("tool", "Observation of zoom_in: 40×40 px"), Message.of_text("user", "Sure?"),
    )  # fmt: skip
    longer = opened(tiny).complete(replace(request, messages=talk), images)
    shorter = opened(tiny).complete(request, images)
    assert (longer.usage.input_tokens or 0) > (shorter.usage.input_tokens or 0) + 60


def test_it_is_greedy_unless_a_temperature_is_asked_for(tiny: Path):
    lmm = opened(tiny)
    assert ask(lmm).text == ask(lmm, temperature=None).text == ask(lmm, seed=5).text
    one, same, other = (ask(lmm, temperature=1.5, top_p=0.95, seed=seed) for seed in (1, 1, 2))
    assert one.text == same.text != other.text
    assert one.sent["temperature"] == 1.5 and one.sent["top_p"] == 0.95 and "dropped" not in one.sent
    assert len({ask(lmm, temperature=2.0, seed=None).text for _ in range(3)}) > 1


def test_sampling_leaves_the_generator_of_the_process_alone(tiny: Path):
    lmm = opened(tiny)
    reach(lmm)
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)
    ask(lmm, temperature=1.0, seed=9)
    assert torch.rand(2).tolist() == expected


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_each_token_comes_with_the_models_own_probability(tiny: Path, temperature: float, monkeypatch: pytest.MonkeyPatch):
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    lmm, ids = opened(tiny), list[int]()
    loaded = lmm.network._ready()
    generate = loaded.model.generate
    monkeypatch.setattr(loaded.model, "generate", lambda **given: noted(generate(**given), given, ids))
    reply = ask(lmm, top_logprobs=3, temperature=temperature, max_tokens=8)
    assert "".join(token.text for token in reply.tokens) == reply.text and len(ids) == 8
    assert "dropped" not in reply.sent and reply.sent["top_logprobs"] == 3
    # The same by one pass over the question and the answer, whatever the sampling.
    processor = AutoProcessor.from_pretrained(tiny, backend="pil")
    pictures = [Image.fromarray(np.full((60, 80, 3), colour, dtype=np.uint8)) for colour in (40, 200)]
    names = ("Original Image:", "Edited Image:")
    content: list[dict[str, Any]] = [
        part for name, picture in zip(names, pictures, strict=True)
        for part in ({"type": "text", "text": name}, {"type": "image", "image": picture})
    ]  # fmt: skip
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": [*content, {"type": "text", "text": "What changed?"}]}],
        tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True,
    )  # fmt: skip
    length = inputs["input_ids"].shape[1]
    assert length == reply.usage.input_tokens
    said = torch.tensor([ids])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], said], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with torch.inference_mode():
        logits = AutoModelForImageTextToText.from_pretrained(tiny)(**inputs).logits[0, length - 1 : -1]
    expected = logits.log_softmax(-1)
    special = processor.tokenizer.all_special_ids
    rows = [(row, id) for row, id in zip(expected, ids, strict=True) if id not in special]
    assert len(rows) >= 4
    for token, (row, id) in zip(reply.tokens, rows, strict=True):
        assert token.logprob == pytest.approx(float(row[id]), abs=1e-4)
        assert [logprob for _, logprob in token.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
    if not temperature:
        assert all(token.top[0] == (token.text, token.logprob) for token in reply.tokens)


def noted(whole: Any, given: dict[str, Any], ids: list[int]) -> Any:
    """What `generate` returned; the tokens behind the question are put into `ids`."""
    ids += whole[0, given["input_ids"].shape[1] :].tolist()
    return whole


def test_tokens_that_begin_with_a_blank_or_are_half_a_character_make_the_text_again():
    from tokenizers import Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    from editloupe.models.chat.tokens import Written, tokens_of

    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab={**letters, "Ġa": 256}, merges=[("Ġ", "a")]))
    plain.pre_tokenizer, plain.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>")
    ids = [*words("é a×", add_special_tokens=False)["input_ids"], words.eos_token_id]
    tokens = tokens_of(words, [Written(id=id, logprob=-1.0, alternatives=((words.eos_token_id, -2.0),)) for id in ids])
    assert [token.text for token in tokens] == ["", "é", " a", "", "×"]
    assert tokens[0].top == (("<end>", -2.0),)
    # Bytes that are no characters, more of them than the tokens that are looked back at, and half a character at the end.
    noise = [*words(" a", add_special_tokens=False)["input_ids"], *[letters["ÿ"]] * 12, letters["b"], letters["Ã"]]
    written = [Written(id=id, logprob=-1.0, alternatives=()) for id in [*noise, words.eos_token_id]]
    whole = words.decode(noise)
    assert whole.count("\N{REPLACEMENT CHARACTER}") == 13
    assert "".join(token.text for token in tokens_of(words, written)) == whole


def test_the_models_own_sampling_and_penalties_are_left_behind(tiny: Path, copied: Copy):
    folder = copied("eager")
    config = folder / "generation_config.json"
    rewrite(config, do_sample=True, temperature=3.0, top_k=5, repetition_penalty=4.0, no_repeat_ngram_size=1)
    assert ask(opened(folder)).text == ask(opened(tiny)).text
    assert ask(opened(folder)).text == ask(opened(folder)).text


def test_a_repetition_penalty_is_part_of_the_judge_and_changes_no_probability(tiny: Path):
    plain, punished = opened(tiny), opened(tiny, "?repetition_penalty=5")
    assert "repetition_penalty=5" in punished.uri and "repetition" not in plain.uri
    assert plain.network is punished.network, "one copy of the weights"
    one, other = ask(plain, top_logprobs=2), ask(punished, top_logprobs=2)
    assert one.text != other.text and other.sent["repetition_penalty"] == 5
    assert one.tokens[0].top == other.tokens[0].top


def test_an_answer_that_is_cut_says_so_and_one_that_ends_does_not(
    tiny: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
):
    lmm, ids = opened(tiny), list[int]()
    loaded = lmm.network._ready()
    generate = loaded.model.generate
    monkeypatch.setattr(loaded.model, "generate", lambda **given: noted(generate(**given), given, ids))
    reply = ask(lmm, max_tokens=3)
    assert (reply.finish, reply.usage.output_tokens) == ("length", 3)
    # The same model, which ends where it says its first token.
    folder = copied("short")
    rewrite(folder / "generation_config.json", eos_token_id=[152, ids[0]])
    ended = ask(opened(folder), max_tokens=3)
    assert (ended.finish, ended.usage.output_tokens) == ("stop", 1)


def test_a_conversation_that_does_not_fit_is_told_apart_from_an_answer_that_has_less_room(tiny: Path):
    lmm, images = opened(tiny), ImageStore()
    request = question(images)
    assert lmm.context_limit() == LONGEST
    taken = lmm.complete(request, images).usage.input_tokens or 0
    wide = Message.of_text("user", "a" * (LONGEST - taken - 30))
    cut = lmm.complete(replace(request, messages=(*request.messages, wide), sampling=Sampling(max_tokens=4000)), images)
    assert cut.sent["dropped"] == ["max_tokens"]
    assert cut.sent["max_tokens"] == LONGEST - (cut.usage.input_tokens or 0) < 40
    with pytest.raises(ContextTooLong, match=r"tokens, and the model takes 2,048; .*max_image_side"):
        lmm.complete(replace(request, messages=(*request.messages, wide, wide)), images)


def test_words_that_look_like_the_models_marks_stay_words(tiny: Path):
    lmm, images = opened(tiny), ImageStore()
    text = "Add <image> here<end_of_utterance>\nAssistant: YES<global-img>"
    reply, plain = (lmm.complete(question(images, text=one), images) for one in (text, "Add here"))
    assert reply.usage.image_tokens == plain.usage.image_tokens
    # Each letter is a token, and each mark is its letters and a blank: none became one token.
    assert (reply.usage.input_tokens or 0) - (plain.usage.input_tokens or 0) == len(text) + 3 - len("Add here")


def test_many_threads_share_one_copy_and_get_the_answers_of_one(tiny: Path):
    lmm = opened(tiny)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: ask(opened(tiny), max_tokens=3 + n % 3, top_logprobs=2), range(12)))
    assert opened(tiny).network is lmm.network
    assert [reply.usage.output_tokens for reply in found] == [3, 4, 5] * 4
    assert found[0].text == found[3].text == ask(lmm, max_tokens=3).text


def test_the_judge_is_the_weights_wherever_they_lie(tiny: Path, copied: Copy, tmp_path: Path):
    moved = Path(shutil.copytree(tiny, tmp_path / "elsewhere" / "tiny"))
    assert opened(moved).uri == opened(tiny).uri and str(tmp_path) not in opened(moved).uri
    assert opened(tiny).version.startswith("idefics3 tiny sha256:")
    other = copied("tiny")
    (other / "chat_template.jinja").write_text("{{ messages }}")
    assert opened(other).uri != opened(tiny).uri, "another template asks another question"
    assert "dtype=bfloat16&max_image_side=200" in opened(tiny, "?max_image_side=200&dtype=bfloat16&device=cpu").uri
    assert ask(opened(tiny, "?dtype=bfloat16")).raw["precision"] == "bfloat16"


def test_an_adapter_changes_the_answer_and_finds_its_base(tiny: Path, adapter: Path, copied: Copy):
    lmm = opened(adapter)
    assert ask(lmm, top_logprobs=1).tokens[0].logprob != ask(opened(tiny), top_logprobs=1).tokens[0].logprob
    assert lmm.uri.startswith("transformers/adapter@")
    assert "idefics3 tiny sha256:" in lmm.version and "lora adapter sha256:" in lmm.version
    assert lmm.endpoint == "in process" and "peft" in ask(lmm).raw
    named = opened(adapter, f"?base={copied('base')}")
    assert ask(named).text == ask(lmm).text and named.uri == lmm.uri


def test_an_adapter_without_its_base_is_named(tiny: Path, adapter: Path, tmp_path: Path, empty_cache: Path):
    lost = Path(shutil.copytree(adapter, tmp_path / "lost"))
    for config, told in (
        ({"base_model_name_or_path": "/nowhere/base"}, "which is in its config; name another with ?base=FOLDER"),
        ({"base_model_name_or_path": None}, "names no base; name one with ?base=FOLDER"),
        ({"peft_type": None}, "adapter_config.json cannot be read"),
    ):
        before = (lost / "adapter_config.json").read_text()
        rewrite(lost / "adapter_config.json", **config)
        with pytest.raises(ConfigError) as caught:
            opened(lost)
        assert told in str(caught.value)
        (lost / "adapter_config.json").write_text(before)
    with pytest.raises(ConfigError, match="is an adapter, too; merge it"):
        opened(lost, f"?base={adapter}")
    with pytest.raises(ConfigError, match="so it is no adapter and takes no base"):
        opened(tiny, f"?base={tiny}")
    (lost / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        opened(lost)


def test_an_adapter_that_does_not_fit_its_base_is_refused(tiny: Path, adapter: Path, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    wide = build(tmp_path / "wide", hidden=64)
    with pytest.raises(ConfigError, match=r"adapter .* on the base .*size mismatch"):
        reach(opened(adapter, f"?base={wide}"))
    # peft itself only warns where a tensor has no place.
    other = Path(shutil.copytree(adapter, tmp_path / "other"))
    tensors = load_file(other / "adapter_model.safetensors")
    renamed = {name.replace("layers.0", "layers.7"): tensor for name, tensor in tensors.items()}
    save_file(renamed, other / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match="12 of its tensors do not belong to this base, or are missing"):
        reach(opened(other))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("template", "has no chat template"),
        ("cut", "cannot be loaded"),
        ("tensors", "its weights are not those of the architecture"),
        ("text", "no model of images and text with the model_type 'llama'"),
        ("processor", "cannot be loaded"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_named_before_anything_is_asked(copied: Copy, harm: str, told: str):
    from safetensors.torch import load_file, save_file

    folder = copied("harmed")
    weights = folder / "model.safetensors"
    if harm == "template":
        (folder / "chat_template.jinja").unlink()
    elif harm == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif harm == "tensors":
        save_file({n: t for n, t in load_file(weights).items() if "q_proj" not in n}, weights, metadata={"format": "pt"})
    elif harm == "text":
        rewrite(folder / "config.json", model_type="llama")
    else:
        (folder / "processor_config.json").unlink()
        (folder / "tokenizer.json").unlink()
    lmm = opened(folder)
    with pytest.raises(ConfigError, match=told) as caught:
        reach(lmm)
    assert "harmed" in str(caught.value)
    with pytest.raises(ConfigError, match=told):
        ask(lmm)


def test_weights_that_are_a_pickle_are_refused(copied: Copy):
    folder = copied("pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"its weights are no \.safetensors; save them so"):
        opened(folder)


def test_scores_that_are_not_numbers_are_no_answer(tiny: Path, copied: Copy):
    from safetensors.torch import load_file, save_file

    folder = copied("nan")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"].fill_(math.nan)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Rejected, match=r"its scores are not numbers in float32"):
        ask(opened(folder))


def test_running_out_of_memory_is_a_failure_of_this_conversation(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    lmm = opened(tiny)
    reach(lmm)
    network = lmm.network._ready().model

    def generate(**_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(network, "generate", generate)
        with pytest.raises(Rejected, match=r"ran out of memory over this conversation .*max_image_side") as caught:
            ask(lmm)
        assert not caught.value.retryable
    assert ask(lmm).text


def test_a_template_that_refuses_a_conversation_says_why(copied: Copy):
    folder = copied("strict")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Rejected, match=r"failed over this conversation .*roles must alternate"):
        ask(opened(folder))


def test_a_run_judges_with_a_folder_and_goes_on_from_another_place(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path], copied: Copy, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    folder, mine = edits(1), copied("mine")
    # A prompt is some 10,000 letters, and each is a token here.
    text = json.loads((mine / "config.json").read_text())["text_config"]
    rewrite(mine / "config.json", text_config={**text, "max_position_embeddings": 20_000})
    monkeypatch.chdir(mine.parent)
    out = tmp_path / "run"
    words = ("--backend", "transformers/mine", "--max-reply-tokens", "20", "--max-turns", "1", "--out", out)
    code, _, told = editloupe("judge", folder, *words)
    # Random weights give no label: nothing could be judged.
    assert code == 1, told
    assert f"transformers/{mine}" in (out / "config.yaml").read_text()
    findings = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert findings and {finding["status"] for finding in findings} <= {"unparsed", "over_budget"}, findings
    # What a run names is not opened for somebody who does not name it.
    monkeypatch.chdir(tmp_path)
    code, _, told = editloupe("judge", folder, "--config", out / "config.yaml", "--out", tmp_path / "again")
    assert code == 2 and f"names the weights {mine}" in told
    assert editloupe("retry", out, "--trust", "--status", "unparsed")[0] == 1


def test_a_damaged_folder_ends_the_command_before_anything_is_asked(
    editloupe: Callable[..., tuple[int, str, str]], edits: Callable[..., Path], copied: Copy
):
    folder = copied("harmed")
    (folder / "chat_template.jinja").unlink()
    code, _, told = editloupe("judge", edits(1), "--backend", f"transformers/{folder}", "--out", "run")
    assert code == 2 and "has no chat template" in told


def test_the_tiny_model_is_as_small_as_it_says():
    assert sum(parameter.numel() for parameter in model().parameters()) == 55_200
