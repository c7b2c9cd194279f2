"""What calls cost: by a file of the user's, else by the kept-up list of `genai-prices`, else unknown, and said to be so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from editloupe.backends.base import LMM, NOT_LMMS, parse_uri
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.files import read_toml

_LISTED_PROVIDERS: Final = {"openai": "openai", "google": "google", "google_genai": "google"}
"""Backends whose own endpoint has list prices. One with a base_url may charge anything."""


@dataclass(frozen=True, kw_only=True)
class ModelPrice:
    """USD for a million tokens."""

    input: float
    output: float
    cached_input: float | None = None
    """For input that the provider had in its cache; None charges it as input."""

    def of(self, usage: Usage) -> float:
        """Return USD for the tokens that are given. What the provider did not count is the caller's to estimate."""
        read, written = usage.input_tokens or 0, usage.output_tokens or 0
        cached = min(usage.cached_tokens or 0, read) if self.cached_input is not None else 0
        return ((read - cached) * self.input + cached * (self.cached_input or 0.0) + written * self.output) / 1e6


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Where prices come from."""

    by_name: Mapping[str, ModelPrice] = field(default_factory=dict)
    """Of the user's file, by model or by backend URI without its parameters."""
    file: Path | None = None

    def known(self, backend: LMM) -> bool:
        """Return whether calls to this backend have a price."""
        return self.of(backend, Usage(input_tokens=1, output_tokens=1)) is not None

    def of(self, backend: LMM, usage: Usage) -> float | None:
        """Return USD for these tokens; None where no price is known. Embedded judges and recorded answers cost nothing."""
        return self.of_uri(backend.uri, usage) if backend.traits.is_lmm and backend.traits.live else 0.0

    def of_uri(self, text: str, usage: Usage) -> float | None:
        """Return the same by a backend's URI alone, as a trace holds it.   text: "" for roles of several backends."""
        whole = self._of_all(text, usage)
        read, written = usage.batch_input_tokens, usage.batch_output_tokens
        batched = Usage(input_tokens=read, output_tokens=written, cached_tokens=usage.cached_tokens)
        # Every provider with batches takes half for them.
        return whole - (self._of_all(text, batched) or 0.0) / 2 if whole and batched.total else whole

    def _of_all(self, text: str, usage: Usage) -> float | None:
        """Return USD for tokens of live calls."""
        if not text:
            return None
        uri = parse_uri(text)
        if uri.provider in NOT_LMMS:
            return 0.0
        if own := self._own(text):
            return own.of(usage)
        provider, _, model = uri.model.partition(":") if uri.provider == "langchain" else (uri.provider, "", uri.model)
        if provider not in _LISTED_PROVIDERS or "base_url" in uri.params:
            return None
        read = usage.input_tokens or 0
        cached = min(usage.cached_tokens or 0, read)
        return _calculated(_LISTED_PROVIDERS[provider], model, read, usage.output_tokens or 0, cached)

    def _own(self, text: str) -> ModelPrice | None:
        uri = parse_uri(text)
        return self.by_name.get(f"{uri.provider}/{uri.model}") or self.by_name.get(uri.model)

    @staticmethod
    def advice() -> str:
        """Return how a backend comes by a price."""
        install = "install the list of hosted models' prices with pip install 'editloupe[prices]'"
        return "give one with --set prices=FILE (docs/backends.md)" + ("" if find_spec("genai_prices") else f", {install}")

    def basis(self, backend: LMM) -> str:
        """Return where the price comes from, in words for a report."""
        if not backend.traits.is_lmm or not backend.traits.live:
            return "nobody is asked" if backend.traits.is_lmm else "no LMM"
        if self._own(backend.uri):
            return f"prices of {self.file}"
        known = self.known(backend)
        return f"list prices of genai-prices {metadata.version('genai-prices')}" if known else "no price is known"


def read_prices(path: Path | None) -> Prices:
    """Read a TOML file with `[models."NAME"]` tables of `input`, `output` and `cached_input`, USD for a million tokens.

    Raises ConfigError, which names the file, the model and the field.
    """
    if path is None:
        return Prices()
    data = read_toml(path, f"prices {path}:")
    models = data.get("models")
    if set(data) != {"models"} or not isinstance(models, dict):
        raise ConfigError(f'prices {path}: expected tables like [models."gpt-x"] with input and output, and nothing else')
    read = {name: _price(f"prices {path}, model {name!r}", table) for name, table in models.items()}
    return Prices(by_name=read, file=path)


def _price(where: str, table: object) -> ModelPrice:
    if not isinstance(table, dict) or not {"input", "output"} <= set(table) <= {"input", "output", "cached_input"}:
        raise ConfigError(f"{where}: expected input, output and perhaps cached_input, in USD for a million tokens")
    for name, value in table.items():
        if type(value) not in (int, float) or not 0 <= value <= 1e9:
            raise ConfigError(f"{where}: {name} = {value!r}; expected a number of USD from 0 to 1,000,000,000")
    return ModelPrice(**table)


@lru_cache(maxsize=65536)
def _calculated(provider: str, model: str, read: int, written: int, cached: int) -> float | None:
    """Return USD for a call as the list has it; None where the model is not listed."""
    if find_spec("genai_prices") is None:
        return None
    import genai_prices

    tokens = genai_prices.Usage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)
    try:
        return float(genai_prices.calc_price(tokens, model_ref=model, provider_id=provider).total_price)
    except LookupError:
        return None
