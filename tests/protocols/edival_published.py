"""Scores of single edits whose means are the paper's Tables 3, 8 to 14 and 17 to 19.

The paper publishes no score of an edit. `edival_tables.csv` has its printed cells: a line a table, model and figure, with
the values after one, two and three edits. From these:

- `counted`: edits that succeed or do not, as many as the printed rates say of the images (the whole number for which all
  three cells come out) and of the edits of each type (Table 2);
- `printed`: one score a cell with the printed value, for means and for what is computed of them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path

from editloupe.scores import Score

MODES = {"multipass": ("8", "9", "14", "18"), "singlepass": ("11", "12", "17", "19")}
"""Mode → the tables of success, task rates by type, consistency and quality."""
COUNTS: Mapping[str, tuple[int, int, int]] = {
    "subject_add": (67, 77, 93), "subject_remove": (75, 69, 61), "subject_replace": (54, 57, 55),
    "color_alter": (56, 73, 57), "material_alter": (66, 50, 72), "text_change": (64, 70, 54),
    "position_change": (52, 63, 48), "count_change": (73, 58, 60), "background_change": (65, 55, 72),
}  # fmt: skip
"""Table 2: how many edits of each type there are at turns 1, 2 and 3."""
WHOLE = ("Qwen-Image-Edit", "Step1X-Edit", "FLUX.1-Kontext-dev", "OmniGen", "UltraEdit", "AnyEdit", "MagicBrush", "IP2P")
"""The models of which no output is missing, so that Table 2 says how many edits stand behind each cell."""
IMAGES = {
    "multipass": {
        "Seedream 4.0": 565, "Nano Banana": 529, "GPT-Image-1": 532, "FLUX.1-Kontext-max": 531, "Gemini 2.0 Flash": 570,
        "UltraEdit": 582, "AnyEdit": 582,
    },
    "singlepass": {"Nano Banana": 494, "GPT-Image-1": 483, "Gemini 2.0 Flash": 571},
}  # fmt: skip
"""Images behind the image success of a model; 572 of any other."""
NAMES = {
    "object_dinov3": "object_consistency", "background_dinov3": "background_consistency", "object_l1": "object_l1",
    "background_l1": "background_l1", "hps": "preference", "p999": "luminance_p999", "p99": "luminance_p99",
}  # fmt: skip
"""Figure of the paper → metric."""


@cache
def published() -> dict[tuple[str, str], dict[str, tuple[str, str, str]]]:
    """(table, model) → figure → its cells as printed."""
    found: dict[tuple[str, str], dict[str, tuple[str, str, str]]] = {}
    with (Path(__file__).parent / "edival_tables.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            # Tables 9 and 10, and 12 and 13, are two halves of one.
            cells = line["1"], line["2"], line["3"]
            found.setdefault((line["table"], line["model"]), {})[line["figure"]] = cells
    return found


def models(mode: str) -> list[str]:
    """The models of a mode, in the paper's order."""
    return [model for table, model in published() if table == MODES[mode][0]]


def score(
    model: str, mode: str, sample: int, edits: int, metric: str, value: float, kind: str = "", place: int = 0
) -> Score:
    """One score. edits: how many the image has had.   place: which of a complex prompt's edits, from 1; 0 for all."""
    complex_ = mode == "singlepass"
    return Score(
        sample_id=f"{sample}.c{edits}" if complex_ else str(sample),
        editor=model,
        turn=1 if complex_ else edits,
        part=f"instruction {place}" if complex_ and place else "",
        metric=metric,
        value=value,
        dims={"edit_type": kind, "mode": mode, "turns": edits},
    )


def counted(model: str, mode: str) -> Iterator[Score]:
    """Success of images, and of single edits."""
    images = IMAGES[mode].get(model, 572)
    success, types = (published()[table, model] for table in MODES[mode][:2])
    for edits in (1, 2, 3):
        right = _count(success["image_success"][edits - 1], images)
        for image in range(images):
            for place in range(1, edits + 1):
                # The edits before the last one of a prompt have a success of their own, which no table shows.
                if mode == "singlepass" or place == edits:
                    value = float(place < edits or image < right)
                    yield score(model, mode, image, edits, "image_success", value, place=place)
        if model in WHOLE:
            followed = _by_type(types, success, edits) if mode == "singlepass" else _at_turn(types, edits)
        else:
            followed = _overall(success, edits if mode == "singlepass" else 1, images, edits)
        for place, outcomes in followed.items():
            for image, (kind, value) in enumerate(outcomes):
                yield score(model, mode, image, edits, "instruction_following", value, kind, place)


def printed(model: str, mode: str) -> Iterator[Score]:
    """Image success, consistency and quality as printed: one score a cell."""
    tables = {**published()[MODES[mode][2], model], **published().get((MODES[mode][3], model), {})}
    for edits in (1, 2, 3):
        cells = {NAMES[figure]: float(values[edits - 1]) for figure, values in tables.items()}
        cells["content_consistency"] = (cells["object_consistency"] + cells["background_consistency"]) / 2
        for metric, value in cells.items():
            yield score(model, mode, 0, edits, metric, value if metric == "preference" else value / 100)
        success = float(published()[MODES[mode][0], model]["image_success"][edits - 1])
        yield score(model, mode, 0, edits, "image_success", success / 100, place=edits)


def _count(rate: str, of: int) -> int:
    """The whole number that a printed rate says."""
    found = round(float(rate) * of / 100)
    assert abs(100 * found / of - float(rate)) < 0.0051, (rate, of)
    return found


def _outcomes(kind: str, right: int, of: int) -> list[tuple[str, float]]:
    return [(kind, float(i < right)) for i in range(of)]


def _at_turn(types: Mapping[str, tuple[str, str, str]], edits: int) -> dict[int, list[tuple[str, float]]]:
    """The edits of one turn."""
    found = []
    for kind, counts in COUNTS.items():
        of = counts[edits - 1]
        found += _outcomes(kind, _count(types[kind][edits - 1], of), of)
    return {1: found}


def _by_type(
    types: Mapping[str, tuple[str, str, str]], success: Mapping[str, tuple[str, str, str]], edits: int
) -> dict[int, list[tuple[str, float]]]:
    """The edits of complex prompts by their place, of which the last ones have the printed marginal rate."""
    totals = {kind: list(accumulate(counts))[edits - 1] for kind, counts in COUNTS.items()}
    right = {kind: _count(types[kind][edits - 1], total) for kind, total in totals.items()}
    last = {kind: max(0, right[kind] - (totals[kind] - counts[edits - 1])) for kind, counts in COUNTS.items()}
    spare = _count(success["marginal_rate"][edits - 1], 572) - sum(last.values())
    for kind, counts in COUNTS.items():
        more = min(spare, right[kind] - last[kind], counts[edits - 1] - last[kind])
        last[kind], spare = last[kind] + more, spare - more
    assert spare == 0
    found: dict[int, list[tuple[str, float]]] = {}
    for place in range(edits, 0, -1):
        found[place] = []
        for kind, counts in COUNTS.items():
            of = counts[place - 1]
            here = last[kind] if place == edits else min(right[kind], of)
            right[kind] -= here
            found[place] += _outcomes(kind, here, of)
    assert not any(right.values())
    return found


def _overall(
    success: Mapping[str, tuple[str, str, str]], places: int, images: int, edits: int
) -> dict[int, list[tuple[str, float]]]:
    """The edits of a model of which nobody knows how many of each type were judged, by place."""
    right = round(float(success["task_rate"][edits - 1]) * images * places / 100)
    if places == 1:
        return {1: _outcomes("", right, images)}
    last = _count(success["marginal_rate"][edits - 1], images)
    rest = _outcomes("", right - last, images * (places - 1))
    found = {place: rest[place - 1 :: places - 1] for place in range(1, places)}
    return {**found, places: _outcomes("", last, images)}
