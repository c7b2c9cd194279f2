"""CLIP's text encoder through transformers, behind `TextFeatures`. Loaded with the first call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from editloupe.errors import ConfigError, ToolError
from editloupe.models.batching import LoadedModel, SavedNetwork, fitting
from editloupe.models.devices import Device, import_torch
from editloupe.models.features.base import Vector
from editloupe.models.hub import Weights
from editloupe.models.weights import load_saved, reading

MAX_BATCH: Final = 64
"""Texts in a batch on a GPU."""


@dataclass(frozen=True, kw_only=True)
class _Texts(LoadedModel):
    """transformers' text model with its projection, and what makes tokens of texts."""

    tokenizer: Any
    most: int
    """Tokens that it reads, the two at the ends included."""


class ClipTexts(SavedNetwork[tuple[int, ...], Vector, _Texts]):
    """The text part of a CLIP model from a folder of transformers. Its vectors are projected and not normalised.

    Raises ConfigError for a folder that cannot read text, before it is loaded.
    """

    def __init__(self, weights: Weights, *, device: str = "auto") -> None:
        super().__init__(weights, "CLIP's text part", device, key=len, gpu_batch=MAX_BATCH)
        self._where = f"CLIP {str(weights.path)!r}"
        # transformers makes an empty vocabulary where there is none.
        if not any((weights.path / name).is_file() for name in ("tokenizer.json", "vocab.json")):
            raise ConfigError(
                f"{self._where}: has no tokenizer.json and no vocab.json, so it cannot read text; fetch it again"
            )

    def __call__(self, texts: Sequence[str]) -> list[Vector]:
        loaded = self._ready()
        tokens = [tuple(loaded.tokenizer(text)["input_ids"]) for text in texts]
        for text, ids in zip(texts, tokens, strict=True):
            if len(ids) > loaded.most:
                raise ToolError(
                    f"the text {text[:80]!r} has {len(ids)} tokens, and CLIP reads at most {loaded.most}; shorten it"
                )
        return self._batcher.map(tokens)

    def _run(self, items: list[tuple[int, ...]]) -> list[Vector]:
        torch, loaded = import_torch(), self._ready()
        name = loaded.device.name

        def forward() -> list[Vector]:
            with torch.inference_mode(), torch.autocast(name.partition(":")[0], torch.float16, enabled=loaded.device.half):
                read = loaded.model.text_model(input_ids=torch.tensor(items).to(name))
                found = loaded.model.text_projection(read.pooler_output)
            return list(found.float().cpu().numpy())

        return fitting(forward)

    def _load(self, device: Device) -> _Texts:
        from transformers import AutoTokenizer, CLIPModel

        with reading(self._where):
            tokenizer = AutoTokenizer.from_pretrained(self.weights.path, local_files_only=True, trust_remote_code=False)
        # The class of the text part alone reads another size of the projection from the config.
        model = load_saved(CLIPModel, self.weights.path, self._where)
        del model.vision_model, model.visual_projection
        model.eval().to(device.name)
        most = int(model.config.text_config.max_position_embeddings)
        return _Texts(model=model, device=device, tokenizer=tokenizer, most=most)
