"""What a run may name, and what only the user may: addresses, keys, servers, weights and files.

A run folder may come from somebody else, and so may a config.yaml. Nobody's key goes to an address that such a file names,
and nothing that it names is loaded or started, unless the user names it too, on the command line or in the environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from editloupe.backends.base import BackendURI, parse_uri
from editloupe.backends.endpoint import Provider
from editloupe.backends.google import GOOGLE
from editloupe.backends.openai import OPENAI
from editloupe.backends.vllm import VLLM
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.values import Json

_PROVIDERS: Final[Mapping[str, Provider]] = {"openai": OPENAI, "vllm": VLLM, "google": GOOGLE}
_HARMLESS: Final = ("boxes", "judge", "max_image_side", "timeout_s")
"""Parameters of a URI that lead nowhere."""
_NOT_WHO: Final = ("env", "timeout_s")
"""Parameters of a URI that do not change who judges, or where."""
_FILE: Final = re.compile(r"[\\/]|\.(md|toml)$")
"""How a value looks that names a file and not a rubric, a mode or a number."""
_WEIGHTS: Final = ("detector", "upscaler", "clip", "dino", "lpips", "faces", "preference", "editor", "segmenter")


def foreign(uri: BackendURI) -> str:
    """Return what of a backend somebody else may not choose, such as "the endpoint http://HOST/v1"; "" for nothing.

    A provider and a model are anybody's choice: they are asked where the provider answers, or where the user's own
    environment says. So are `env=none`, and parameters that lead nowhere.
    """
    params = uri.params
    if "base_url" in params and not _own_address(uri.provider, params["base_url"]):
        return f"the endpoint {params['base_url']}"
    if params.get("env", "none") != "none":
        return f"the key in environment variable {params['env']}"
    if "://" in uri.model:
        return f"the address {uri.model}"
    if uri.provider == "langchain" and uri.model.startswith("huggingface:"):
        return f"the weights {uri.model}"
    if uri.provider == "transformers":
        return f"the weights {uri.model}"
    others = sorted(set(params) - {"base_url", "env", *_HARMLESS})
    return f"{others[0]}={params[others[0]]}" if others else ""


def names_file(value: Any) -> bool:
    """Return whether the value of a protocol's option names a file."""
    return isinstance(value, str) and _FILE.search(value) is not None


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far a command follows what a run folder, or a config.yaml, names."""

    source: Path
    """That folder or file, for messages."""
    whole: bool = False
    """Whether the user trusts it: --trust-run. Even then no variable that it names is read for a key."""
    named: Collection[str] = ()
    """Backends that the command line names. They stand for equal ones of the run."""
    given: Collection[str] = ()
    """Options that the command line gives; "option.NAME" for those of the protocol."""
    tell: Callable[[str], None] = lambda text: None
    """Takes remarks."""

    def backend(self, uri: str) -> str:
        """Return the URI to ask in place of one that the run names, without the variable that it names for the key.

        Raises ConfigError for an address that is not the user's.
        """
        recorded = parse_uri(uri)
        for one in self.named:
            if _who(parse_uri(one)) == _who(recorded):
                return one
        variable = recorded.params.get("env", "none")
        if variable != "none":
            recorded = replace(recorded, params={name: v for name, v in recorded.params.items() if name != "env"})
            uri = str(recorded)
        if (what := foreign(recorded)) and not self.whole:
            raise ConfigError(
                f"{self.source} names {what} (backend {recorded.provider}), and you do not, so nothing is sent there. If "
                f"you trust this run, add --trust-run; or name the backend yourself: --backend {shlex.quote(uri)}"
            )
        if variable != "none":
            self.tell(
                f"{self.source} names the environment variable {variable} for the key. A run's env= is never obeyed: the "
                "provider's usual variable is read. To use another, name the backend yourself, with ?env=NAME"
            )
        return uri

    def run(self, config: RunConfig) -> RunConfig:
        """Return a run that the source describes, with backends that may be asked.

        Raises ConfigError for an address, weights or a file of a rubric or prompt that only the source names.
        """
        judge, roles = config.judge, config.role
        if "backend" not in self.given:
            judge = self._judge(judge)
        if "role" not in self.given:
            roles = {name: self._judge(one) for name, one in roles.items()}
        self.weights(config)
        for name, value in config.option.items():
            if names_file(value) and f"option.{name}" not in self.given:
                self._refuse(f"the {name} {value!r}")
        return config.model_copy(update={"judge": judge, "role": roles})

    def weights(self, config: RunConfig) -> None:
        """Raise ConfigError for weights that only the source names."""
        for name in _WEIGHTS:
            variable, weights = f"EDITLOUPE_{name.upper()}", getattr(config, name)
            if weights is not None and name not in self.given and os.environ.get(variable, "").strip() != weights:
                self._refuse(f"the {name} {weights!r}", f"; or name them yourself: {variable}={shlex.quote(weights)}")

    def _judge(self, judge: JudgeConfig) -> JudgeConfig:
        known = judge.backend
        return judge.model_copy(update={"backend": self.backend(known)}) if isinstance(known, str) else judge

    def _refuse(self, what: str, or_else: str = "") -> None:
        if not self.whole:
            raise ConfigError(
                f"{self.source} names {what}, and you do not, so it is not opened. If you trust this run, add "
                f"--trust-run{or_else}"
            )


def words_of(runs: Iterable[RunConfig]) -> list[str]:
    """Return the words by which the user of a `retry` names what it does not take from their own run."""
    words: dict[str, None] = {}
    for run in runs:
        for judge in (run.judge, *run.role.values()):
            if isinstance(judge.backend, str) and foreign(parse_uri(judge.backend)):
                words[f"--backend={judge.backend}"] = None
        if any(getattr(run, name) for name in _WEIGHTS) or any(map(names_file, run.option.values())):
            words["--trust-run"] = None
    return list(words)


def _own_address(provider: str, address: str) -> bool:
    """Return whether an address is the provider's own, or the one that the user's environment names."""
    known = _PROVIDERS.get(provider)
    if known is None:
        return False
    from_environment = os.environ.get(known.base_url_variable or "", "")
    return address.strip().rstrip("/") in {known.base_url, from_environment.strip().rstrip("/")} - {""}


def _who(uri: BackendURI) -> Json:
    """Return provider, model and whatever else of a URI changes who answers, or where."""
    return [uri.provider, uri.model, {name: v for name, v in uri.params.items() if name not in _NOT_WHO}]
