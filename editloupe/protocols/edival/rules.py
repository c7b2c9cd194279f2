"""By which rules EdiVal judges: `rules.toml` has those of the paper and those of the published code, side by side.

A file of one's own names what it changes, and by `like` which of the two it starts from: "paper", unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer

from editloupe.errors import ConfigError, did_you_mean
from editloupe.files import read_toml
from editloupe.measures.statistics import Light
from editloupe.protocols.base import Options
from editloupe.protocols.edival.sights import RECORDED
from editloupe.values import Json

PRESETS: Final = ("paper", "official")
_LIKE: Final = "like"
Threshold = Annotated[float, Field(ge=RECORDED, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Rules(Options):
    """One set of rules. A box counts if it scores above a threshold; boxes above 0.25 are recorded."""

    chains: Literal["to_gap", "complete"]
    """to_gap: a chain is judged up to its first missing output. complete: a chain with a missing output is left out."""
    miss: Literal["status", "failure"]
    """An object that is not seen before the edit. status: the edit has no verdict. failure: it failed."""
    yes: Literal["parsed", "anywhere"]
    """parsed: the model answers yes or no. anywhere: a reply that has "yes" in it means yes, also "eyes"."""
    duplicate_overlap: Share
    """Where objects are counted: two boxes with a larger IoU are one."""

    add_threshold: Threshold
    add_reference: Literal["after", "before"]
    """Picture in which the reference of an added object has its place."""
    add_margin: Share
    """By more than this share of the side centers differ for an added object to be left, right, above or below."""
    add_gate: bool
    """Whether a model is asked too if the object is new."""

    remove_threshold: Threshold
    remove_overlap: Share
    """An object is also gone if its best box overlaps the old one by an IoU below this."""
    remove_largest: Share
    """A box with both sides above this share of the picture is left out where an object is removed."""
    remove_again: tuple[str, ...]
    """An object named with one of these words is also gone if the word alone finds nothing."""

    replace_threshold: Threshold
    replace_by: Literal["gone", "overlap"]
    """gone: the old object is not seen after the edit (appendix E). overlap: the new one overlaps its place (I.3)."""
    replace_singular: bool
    """Look for names without "es" or "s" at their end: "glasses" as "glass", "bus" as "bu"."""

    position_threshold: Threshold
    position_counts: Literal["not_increased", "equal"]
    """How many there are of both objects after a move, against before."""
    position_count_threshold: Threshold
    """The threshold of these counts."""
    position_names: Literal["full", "short"]
    """Names by which they are counted. short: a model leaves color and material out; role `shorten`."""
    position_inside: Literal["allowed", "refused"]
    """Whether the box of one object may contain that of the other."""

    count_threshold: Threshold

    attributes: Literal["crop", "whole"]
    """Color and material are judged on the object's place before and after, or on both whole images."""
    crop_threshold: Threshold
    """The threshold of the object that is cropped: of color, material and replaced text."""
    text_object: Literal["before", "both"]
    """Where the object with a replaced text must be seen."""

    background_objects: Literal["ignored", "needed"]
    """needed: the objects that shall stay must be seen after a change of background."""
    background_threshold: Threshold
    background_largest: Share
    """The best box of such an object does not count if both its sides are above this share of the picture."""
    background_unnamed: Literal["judged", "failure"]
    """A sentence that names no objects to keep. The code cannot read it, and counts it as a failure."""

    cc_tokens: Literal["paper", "official"]
    """official: register tokens of the encoder count as patches."""
    cc_rules: Literal["paper", "official"]
    """official: nothing is compared once the background was changed, and the words of an added text are an object."""
    cc_no_box: Literal["missing", "zero"]
    """What unchanged objects count that the detector does not find: no value, or 0."""

    luminance: Light
    """Light of which luminance is taken: linear as in the published code, or gamma values as the text says."""
    preference_prompt: Literal["empty", "instruction"]
    """Prompt of an edited image: empty, as that of the base image, or its turn's instruction."""


@cache
def preset(name: str) -> Rules:
    """Return the rules of a preset, "paper" or "official"."""
    tables = read_toml(Path(__file__).with_name("rules.toml"), "the built-in rules")
    return Rules.model_validate({**tables["paper"], **tables[name]})


def read_rules(given: Any) -> Any:
    """Return rules by the name of a preset, by a path, or from what a run recorded. Raises ConfigError.

    What they hold is checked by `Rules`.
    """
    if isinstance(given, Rules) or given in PRESETS:
        return preset(given) if isinstance(given, str) else given
    where = "rules"
    if isinstance(given, str | Path):
        where, known = str(given), f"; built in: {', '.join(PRESETS)}"
        given = read_toml(Path(given), f"rules {where!r}:", if_missing=known)
    if not isinstance(given, Mapping):
        raise ConfigError(f"rules are {' or '.join(PRESETS)}, or the path of a .toml file; found {given!r}")
    if (like := given.get(_LIKE, "paper")) not in PRESETS:
        raise ConfigError(f"{where}: {_LIKE} = {like!r}: expected {' or '.join(PRESETS)}")
    names = [name for name in given if name != _LIKE]
    if unknown := next((name for name in names if name not in Rules.model_fields), None):
        meant = did_you_mean(unknown, Rules.model_fields)
        raise ConfigError(f"{where}: unknown rule {unknown!r}; {meant}there are {', '.join(Rules.model_fields)}")
    return {**preset(like).model_dump(), **{name: given[name] for name in names}}


def _recorded(rules: Rules) -> Json:
    """Return the name of a preset, or what differs from the nearer one."""
    values = rules.model_dump(mode="json")
    base = {name: preset(name).model_dump(mode="json") for name in PRESETS}
    differs = {name: {rule: v for rule, v in values.items() if v != base[name][rule]} for name in PRESETS}
    like = min(PRESETS, key=lambda name: len(differs[name]))
    return {_LIKE: like, **differs[like]} if differs[like] else like


RulesOption: TypeAlias = Annotated[
    Rules, Field(validate_default=True), BeforeValidator(read_rules), PlainSerializer(_recorded)
]
"""An option of a protocol: rules by name or path, or as a run recorded them. Its value is a `Rules`."""
