"""Opens a model by the name that a user gives: a kind of any package, or weights that are known by what they are.

    KIND=WEIGHTS, KIND    an installed kind of detector, upscaler, segmenter, encoder or embedder of faces
    anything else         a folder that transformers saved, a hub id, a file

A kind is an entry point, of this package or another:

    [project.entry-points."editloupe.detectors"]     # or upscalers, segmenters, encoders, faces
    onnx = "my_package.onnx:open_detector"            # (weights: str | None, device: str) -> the model

An opener finds weights and does not load them, returns one object for the same arguments (`functools.cache`), and raises
ConfigError for weights that it cannot use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from editloupe import plugins
from editloupe.errors import ConfigError, EditLoupeError, MissingExtra, ModelAbsent, UnknownPlugin, first_words
from editloupe.models.detect.base import FAMILIES as DETECTOR_FAMILIES
from editloupe.models.devices import check_device
from editloupe.models.features.base import CLIP_FAMILIES, DINO_FAMILIES, FAMILIES
from editloupe.models.segment.base import FAMILIES as SEGMENTER_FAMILIES
from editloupe.models.weights import Weights, cached_folder, digest_of, model_folder, saved_weights

Group: TypeAlias = Literal["detectors", "upscalers", "segmenters", "encoders", "faces"]

SUFFIXES: Final = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
"""Of one file of weights."""
_KIND: Final = re.compile(r"[A-Za-z][\w.-]*")


def of_kind(group: Group, name: str, device: str) -> Any:
    """Return the model of KIND or KIND=WEIGHTS, found and not yet loaded; None for a name that is neither.

    Raises UnknownPlugin for a kind that is not installed, and ConfigError where its package fails or refuses the weights.
    """
    kind, equals, weights = name.partition("=")
    known = plugins.names(group)
    if kind not in known:
        if equals and _KIND.fullmatch(kind) and not Path(name).expanduser().exists():
            raise UnknownPlugin(f"kind of {group.removesuffix('s')}", kind, known)
        return None
    check_device(device)
    where = plugins.described(group, kind)
    opener = cast(Callable[[str | None, str], Any], plugins.load(group, kind))
    try:
        made = opener(weights or None, device)
    except EditLoupeError:
        raise
    except Exception as error:  # a package may raise anything
        raise ConfigError(f"{where} cannot open {weights!r}: {type(error).__name__}: {first_words(error)}") from error
    if not callable(made) or not hasattr(made, "version"):
        raise ConfigError(f"{where} opened {type(made).__name__}, which is none: it has no version or cannot be called")
    return made


@dataclass(frozen=True, kw_only=True)
class Opener:
    """An entry point of `editloupe.models`: what is looked for, and what is taken where nothing is named."""

    group: Group
    name: str
    """In messages, for example "detector"."""
    need: str
    """What is missing where there is none, for example "an object detector"."""
    option: str
    """Of the command line, without its dashes. The environment's name follows from it."""
    families: Collection[str]
    """Each `model_type` of transformers that can be opened."""
    default: str
    """Hub id."""
    revision: str
    """The default's commit, 40 hex digits."""
    model: str
    """MODULE:CLASS below `editloupe.models`, made with weights and device."""
    file_family: str = ""
    """Family of a model in one file of weights; "" where a file is none."""
    part: str = ""
    """Which attribute of a kind's model is meant; "" for the model itself."""

    def __call__(self, name: str | None, device: str) -> Any:
        """Return the model of that name, found and not yet loaded. None takes the default from the local cache.

        Raises ModelAbsent where no name is given and the default is not in the local cache, or the extra is not installed.
        Raises ConfigError where the named model or the device cannot be had; MissingExtra and UnknownPlugin are such.
        """
        made = None if name is None else of_kind(self.group, name, device)
        if made is not None:
            if not hasattr(made, self.part or "version"):
                raise ConfigError(f"--set {self.option}={name}: this kind has no {self.part}, so that it is no {self.name}")
            return getattr(made, self.part) if self.part else made
        if any(find_spec(package) is None for package in ("torch", "transformers")):
            if name is not None:
                raise MissingExtra(f"{self.name[0].upper()}{self.name[1:]} {name!r}", "vision")
            raise ModelAbsent(f"it needs {self.need}: pip install 'editloupe[vision]', and weights")
        check_device(device)
        return _made(self.model, self._default() if name is None else self.find(name), device)

    def find(self, name: str) -> Weights:
        """Return the weights in a folder, a file or under a hub id, which is downloaded where the local cache lacks it.

        Raises ConfigError where they cannot be had.
        """
        path = Path(name).expanduser()
        if self.file_family and not path.is_dir() and (path.is_file() or path.suffix.lower() in SUFFIXES):
            file = find_file(name, self.name)
            return Weights(path=file.resolve(), identity=f"{file.name} sha256:{digest_of([file])}", family=self.file_family)
        revision = self.revision if name == self.default else "main"
        return saved_weights(*model_folder(name, self.name, revision=revision), self.name, self.families)

    def _default(self) -> Weights:
        folder = cached_folder(self.default, self.revision)
        if folder is None:
            where = f"{self.default} is not in the local Hugging Face cache; name a hub id or a folder by"
            raise ModelAbsent(f"it needs {self.need}, and {where} {_named_by(self.option)}")
        return saved_weights(folder, f"{self.default}@{self.revision[:12]}", self.name, self.families)


@cache
def _made(model: str, weights: Weights, device: str) -> Any:
    module, _, name = model.partition(":")
    return getattr(import_module(f"editloupe.models.{module}"), name)(weights, device=device)


def _named_by(option: str) -> str:
    return f"--set {option}=… or EDITLOUPE_{option.upper()}"


def find_file(path: str, what: str) -> Path:
    """Return the file of weights. Raises ConfigError where it is missing or has another suffix."""
    file = Path(path).expanduser()
    if file.is_file() and file.suffix.lower() in SUFFIXES:
        return file
    found = f"found {file.suffix!r}" if file.is_file() else "no such file"
    raise ConfigError(f"{what} {path!r}: {found}; expected one file of weights ({', '.join(SUFFIXES)})")


def weights_file(name: str | None, option: str, need: str) -> Path:
    """Return the file of a model that has no default.   option: of the command line.   need: what is missing without.

    Raises ModelAbsent where no file is named, MissingExtra without torch, ConfigError where the file cannot be had.
    """
    if name is None:
        raise ModelAbsent(f"it needs {need}; name one by {_named_by(option)} (docs/measures.md)")
    file = find_file(name, option)
    if find_spec("torch") is None:
        raise MissingExtra(f"{option} {name!r}", "vision")
    return file.resolve()


DETECTOR: Final = Opener(
    group="detectors",
    name="detector",
    need="an object detector",
    option="detector",
    families=DETECTOR_FAMILIES,
    default="IDEA-Research/grounding-dino-tiny",
    revision="a2bb814dd30d776dcf7e30523b00659f4f141c71",
    model="detect.transformers:TransformersDetector",
    file_family="grounding-dino",
)
"""A file is an original checkpoint of GroundingDINO."""
SEGMENTER: Final = Opener(
    group="segmenters",
    name="segmenter",
    need="a segmenter",
    option="segmenter",
    families=SEGMENTER_FAMILIES,
    default="facebook/sam-vit-base",
    revision="70c1a07f894ebb5b307fd9eaaee97b9dfc16068f",
    model="segment.transformers:TransformersSegmenter",
)
"""GIE-Bench's own."""
CLIP: Final = Opener(
    group="encoders",
    name="CLIP",
    need="CLIP",
    option="clip",
    families=CLIP_FAMILIES,
    default="openai/clip-vit-base-patch32",
    revision="3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268",
    model="features.transformers:TransformersFeatures",
)
"""GIE-Bench's own."""
CLIP_TEXT: Final = replace(
    CLIP, name="CLIP with a text part", families={"clip": "CLIP"}, model="features.transformers:ClipTexts", part="texts"
)
FEATURES: Final = replace(CLIP, name="image encoder", need="an image encoder", families=FAMILIES)
DINO: Final = replace(
    FEATURES,
    name="DINO",
    need="DINO",
    option="dino",
    families=DINO_FAMILIES,
    default="facebook/dinov2-with-registers-base",
    revision="a1d738ccfa7ae170945f210395d99dde8adb1805",
)
