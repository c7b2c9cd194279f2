"""Who judges: `--backend` once or several times, and `--judges FILE`, as one set of options a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from editloupe.errors import ConfigError
from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One judge of a command.

    name: as the user gave it; "" for none.   own: the options that are its own.   options: the command's, with those.
    """

    name: str
    own: Mapping[str, Json]
    options: Mapping[str, Json]

    @property
    def title(self) -> str:
        return self.name or str(self.own["backend"])


def _number(least: float, most: float | None = None) -> Callable[[Json], bool]:
    def fits(value: Json) -> bool:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        return right and least <= float(str(value)) <= (float("inf") if most is None else most)

    return fits


def _whole(least: int | None = None) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _text(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _flag(value: Json) -> bool:
    return isinstance(value, bool)


FIELDS: Final[Mapping[str, tuple[Callable[[Json], bool], str]]] = {
    "backend": (_text, "provider/model"),
    "temperature": (_number(0), "a number from 0"),
    "top_p": (_number(0, 1), "a number from 0 to 1"),
    "seed": (_whole(), "a whole number"),
    "reply_tokens": (_whole(1), "a whole number from 1"),
    "tool_protocol": (lambda v: v in ("text", "native", "auto"), "text, native or auto"),
    "constrain_labels": (_flag, "true or false"),
    "launch": (_flag, "true or false"),
    "launch_args": (_text, "a string"),
}
"""What a judge may have for itself: how a value is checked, and what is expected."""


def read_judges(text: str) -> dict[str, Json]:
    """The judges of a YAML file (name → options, or → a backend), or of a config.yaml, which holds them itself (as text
    that begins with a brace). Raises ConfigError, which names file, judge and key.
    """
    where = "--judges" if text.lstrip().startswith("{") else text
    try:
        data = yaml.safe_load(text if where == "--judges" else Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--judges {text} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{where}: expected names of judges, each with its backend, such as 'small: openai/MODEL'")
    return dict(_settled(where, str(name), _checked(where, name, given)) for name, given in data.items())


def chosen_judges(options: Mapping[str, Json]) -> list[Chosen]:
    """The judges that a command's options name, one at least; without any it is the pixel baseline.

    Raises ConfigError.
    """
    backends, listed = options.get("backend"), options.get("judges")
    given = [backends] if isinstance(backends, str) else list(backends) if isinstance(backends, Sequence) else []
    found = [_chosen("", {"backend": backend}, options) for backend in given]
    for name, own in listed.items() if isinstance(listed, Mapping) else []:
        assert isinstance(own, Mapping)
        # A config.yaml has a judge without a name under its backend.
        found.append(_chosen("" if name == own["backend"] else name, own, options))
    if len(found) > 1 and options.get("launch"):
        raise ConfigError("--launch starts the server of one judge; of several, say 'launch: true' in the file of --judges")
    return found or [_chosen("", {"backend": "baseline"}, options, backend=None)]


def _chosen(name: str, own: Mapping[str, Json], options: Mapping[str, Json], **instead: Json) -> Chosen:
    """What a judge does not say for itself, the command says for all."""
    mine = {field: own.get(field, options.get(field)) for field in FIELDS}
    # A seed of 0 is one; what stands at its default needs no word.
    kept = {k: v for k, v in mine.items() if v is not None and v is not False and (k, v) != _TEXT}
    rest = {key: value for key, value in options.items() if key != "judges"}
    return Chosen(name=name, own=kept, options={**rest, **mine, **instead})


_TEXT = ("tool_protocol", "text")


def _settled(where: str, name: str, own: dict[str, Json]) -> tuple[str, Json]:
    """With a backend that means the same from another folder."""
    from editloupe.backends.base import settled

    try:
        backend = settled(str(own["backend"]))
    except ConfigError as error:
        raise ConfigError(f"{where}, judge {name!r}: {error}") from error
    return backend if name == own["backend"] else name, {**own, "backend": backend}


def _checked(where: str, name: Any, given: Any) -> dict[str, Json]:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{where}: a judge's name must be a word, found {name!r}")
    own = {"backend": given} if isinstance(given, str) else given
    if not isinstance(own, Mapping) or "backend" not in own:
        raise ConfigError(f"{where}, judge {name!r}: expected a backend, or options with one; found {given!r}")
    for key, value in own.items():
        if key not in FIELDS:
            raise ConfigError(
                f"{where}, judge {name!r}: {key!r} is not a judge's own; expected some of {', '.join(FIELDS)}. What else "
                "there is (mode, rubric, tools, budgets) is the same for all judges of a run: give it as an option"
            )
        fits, expected = FIELDS[key]
        if not fits(value):
            raise ConfigError(f"{where}, judge {name!r}: {key} is {value!r}; expected {expected}")
    return dict(own)
