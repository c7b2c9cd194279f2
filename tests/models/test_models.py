"""`models.get`: the one door to everything with weights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from editloupe import models, plugins
from editloupe.errors import ConfigError, MissingExtra, ModelAbsent, UnknownPlugin
from editloupe.models import opening
from editloupe.models.weights import saved_weights


def test_an_unknown_kind_lists_the_known() -> None:
    with pytest.raises(UnknownPlugin, match=r"unknown model 'depth'; known here: .*detect, .*faces, .*upscale"):
        models.get("depth")


def test_without_the_extra_a_model_is_absent_and_a_named_one_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    for kind, absent, named in (("detect", "an object detector", "Detector"), ("clip", "CLIP", "CLIP")):
        with pytest.raises(ModelAbsent, match=rf"it needs {absent}: pip install 'editloupe\[vision\]'"):
            models.get(kind)
        with pytest.raises(MissingExtra, match=rf"{named} 'someone/weights' .*editloupe\[vision\]"):
            models.get(kind, "someone/weights")


def test_finding_models_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, editloupe.models.opening, editloupe.tools.grounding, editloupe.tools.grounding;"
        "assert not {'torch', 'transformers', 'huggingface_hub', 'safetensors'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of another distribution that brings the kind `depth`; it notes each model that it makes."""
    info = tmp_path / "toy_depth-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-depth\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[editloupe.models]\ndepth = toy_depth:open_depth\n")
    (tmp_path / "toy_depth.py").write_text(
        "import time\nfrom functools import cache\n\nMADE = []\n\n"
        "@cache\ndef open_depth(name, device):\n"
        "    time.sleep(0.02)\n    MADE.append((name, device))\n    return object()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("another_kind")
def test_another_package_adds_a_kind_and_a_process_has_one_copy() -> None:
    plugins.forget()
    try:
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(models.get("depth", "small"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and len({id(model) for model in found}) == 1
        assert sys.modules["toy_depth"].MADE == [("small", "auto")]
    finally:
        plugins.forget()
        sys.modules.pop("toy_depth", None)


@pytest.mark.parametrize("family", ["detr", ["sam"], None])
def test_a_folder_of_another_architecture_is_refused_whatever_its_config_calls_it(family: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(f"model_type {family!r} is no segmenter known here (sam)")):
        saved_weights(tmp_path, None, "segmenter", {"sam": "SAM"})
