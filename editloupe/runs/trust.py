"""What only the user may name: addresses, keys, servers, weights and files.

A run folder may come from somebody else, and so may a config.yaml, or an editloupe.yaml beside the data. Nobody's key goes
to an address that such a file names, and nothing that it names is loaded or started, unless the user names it too, on the
command line or in the environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from editloupe.backends.base import BackendURI, parse_uri
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError

_HARMLESS: Final = frozenset({"boxes", "judge", "max_image_side", "timeout_s"})
"""Parameters of a URI that lead nowhere."""
_FILE: Final = re.compile(r"[\\/]|\.(md|toml)$")
"""How a value looks that names a file and not a rubric, a mode or a number."""
_WEIGHTS: Final = (
    "detector", "upscaler", "clip", "dino", "lpips", "faces", "preference", "aesthetic", "editor", "segmenter",
)  # fmt: skip


def foreign(uri: BackendURI) -> str:
    """Return what of a backend somebody else may not choose, such as "the endpoint http://HOST/v1"; "" for nothing.

    A provider and a model are anybody's choice: they are asked where the provider answers, or where the user's own
    environment says. So are `env=none`, and parameters that lead nowhere.
    """
    variable = uri.params.get("env", "none")
    if "base_url" in uri.params:
        return f"the endpoint {uri.params['base_url']}"
    if variable != "none":
        return f"the key in environment variable {variable}"
    if "://" in uri.model:
        return f"the address {uri.model}"
    if uri.provider == "transformers" or (uri.provider == "langchain" and uri.model.startswith("huggingface:")):
        return f"the weights {uri.model}"
    others = sorted(set(uri.params) - {"env"} - _HARMLESS)
    return f"{others[0]}={uri.params[others[0]]}" if others else ""


def names_file(value: Any) -> bool:
    """Return whether the value of a protocol's option names a file."""
    return isinstance(value, str) and _FILE.search(value) is not None


def to_open(config: RunConfig, given: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (what, how the user names it too) for the weights and files that a run names and the user does not."""
    for name in _WEIGHTS:
        variable, weights = f"EDITLOUPE_{name.upper()}", getattr(config, name)
        if weights is not None and name not in given and os.environ.get(variable, "").strip() != weights:
            yield f"the {name} {weights!r}", f"; or name them yourself: {variable}={shlex.quote(weights)}"
    for name, value in config.option.items():
        if names_file(value) and f"option.{name}" not in given:
            yield f"the {name} {value!r}", ""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far a command follows what a run folder, or a config.yaml, names."""

    source: Path
    """That folder or file, for messages."""
    whole: bool = False
    """Whether the user trusts it: --trust. Even then no variable that it names is read for a key."""
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
            if _without(parse_uri(one), "env", "timeout_s") == _without(recorded, "env", "timeout_s"):
                return one
        variable = recorded.params.get("env", "none")
        if variable != "none":
            recorded = _without(recorded, "env")
            uri = str(recorded)
        if what := foreign(recorded):
            how = f"; or name the backend yourself: --backend {shlex.quote(uri)}"
            self._refuse(f"{what} (backend {recorded.provider})", "sent there", how)
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
        self.check(config)
        return config.model_copy(update={"judge": judge, "role": roles})

    def check(self, config: RunConfig) -> None:
        """Raise ConfigError for weights and files that only the source names."""
        for what, how in to_open(config, self.given):
            self._refuse(what, "opened", how)

    def _judge(self, judge: JudgeConfig) -> JudgeConfig:
        known = judge.backend
        return judge.model_copy(update={"backend": self.backend(known)}) if isinstance(known, str) else judge

    def _refuse(self, what: str, done: str, how: str) -> None:
        if not self.whole:
            raise ConfigError(
                f"{self.source} names {what}, and you do not, so nothing is {done}. If you trust it, add --trust{how}"
            )


def _without(uri: BackendURI, *names: str) -> BackendURI:
    return replace(uri, params={name: value for name, value in uri.params.items() if name not in names})
