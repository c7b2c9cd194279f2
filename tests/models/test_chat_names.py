"""What a URI transformers/FOLDER may say. No torch here."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from editloupe.backends.base import open_backend, parse_uri, settled
from editloupe.errors import ConfigError, MissingExtra
from editloupe.models.chat import open as chat
from editloupe.models.hub import _is_whole
from editloupe.runs.trust import Trust, foreign


@pytest.fixture
def with_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch, transformers and peft were there; nothing of them is imported before a model loads."""
    monkeypatch.setattr(chat, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("transformers", "names no model; expected transformers/FOLDER or transformers/OWNER/NAME"),
        ("transformers/m?beams=4", "unknown parameter 'beams'; known: base, boxes, device, dtype, max_image_side"),
        ("transformers/m?dtype=int8", "dtype='int8': expected one of auto, float32, bfloat16, float16"),
        ("transformers/m?repetition_penalty=0", "repetition_penalty='0': expected a number from 0.1 to 10; 1 is none"),
        ("transformers/m?repetition_penalty=nan", "expected a number from 0.1 to 10"),
        ("transformers/m?boxes=inches", "boxes='inches': expected how the model writes boxes"),
        ("transformers/m?max_image_side=3", "expected px of the longest side"),
        ("transformers/m?device=tpu", "unknown device 'tpu'"),
        ("transformers/no folder", "no such folder or file, and no hub id"),
    ],
)
@pytest.mark.usefixtures("with_packages")
def test_what_a_uri_cannot_mean_is_named(uri: str, told: str):
    with pytest.raises(ConfigError) as caught:
        open_backend(uri)
    assert told in str(caught.value)


@pytest.mark.usefixtures("with_packages")
def test_a_folder_without_a_model_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"has no config\.json; expected a folder saved by transformers"):
        open_backend(f"transformers/{tmp_path}")
    (tmp_path / "config.json").write_text('{"model_type": "idefics3"}')
    with pytest.raises(ConfigError, match=r"has no weights; expected model\.safetensors"):
        open_backend(f"transformers/{tmp_path}")


def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(chat, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'editloupe\[local\]'"):
        open_backend(f"transformers/{tmp_path}")


def test_an_adapter_without_peft_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(chat, "find_spec", lambda name: None if name == "peft" else object())
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "a/b"}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    with pytest.raises(MissingExtra, match=r"adapter .* pip install 'editloupe\[local\]'"):
        open_backend(f"transformers/{tmp_path}")


@pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="needs the extra `local`")
@pytest.mark.usefixtures("with_packages", "empty_cache")
def test_a_hub_id_that_is_not_here_and_cannot_be_had_says_so():
    with pytest.raises(ConfigError, match=r"model 'owner/name' at 'main': not in the local cache, and cannot be"):
        open_backend("transformers/owner/name")


def test_a_large_model_is_whole_when_all_its_files_are_there(tmp_path: Path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}))
    (tmp_path / "1.safetensors").touch()
    assert not _is_whole(index)
    (tmp_path / "2.safetensors").touch()
    assert _is_whole(index)
    index.write_text("[]")
    assert not _is_whole(index)


def test_a_folder_means_the_same_from_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert settled("transformers/mine?base=mine") == f"transformers/{tmp_path}/mine?base={tmp_path}/mine"
    assert settled("transformers/owner/name?device=cpu") == "transformers/owner/name?device=cpu"


def test_weights_that_only_a_run_names_are_not_opened(tmp_path: Path):
    uri = "transformers/owner/name?base=other/base"
    assert foreign(parse_uri(uri)) == "the weights owner/name"
    with pytest.raises(ConfigError, match="names the weights owner/name"):
        Trust(source=tmp_path).backend(uri)
    assert Trust(source=tmp_path, named=[uri]).backend(uri) == uri
    assert Trust(source=tmp_path, whole=True).backend(uri) == uri


def test_the_list_of_backends_has_it(editloupe: Callable[..., tuple[int, str, str]]):
    code, out, _ = editloupe("backends")
    assert code == 0 and "transformers/FOLDER" in out
