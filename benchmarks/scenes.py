"""Edits with known labels, drawn from a seed: backgrounds, small named things, an instruction, and injected failures.

Two families share no object kind, background, layout, style or instruction template: `dev`, on which the pixel baseline's
rules were made, and `held_out`, on which they are only measured. Every label is known by construction, not by looking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

import cv2
import numpy as np

from benchmarks.drawing import (
    FORMS,
    MATERIALS,
    PAINTS,
    RGB,
    Thing,
    backdrop,
    cartooned,
    etched,
    painted,
    render,
    sketched,
    weathered,
)

FamilyName: TypeAlias = Literal["dev", "held_out"]
Label: TypeAlias = str
T = TypeVar("T")

FLAWLESS, OVER, WRONG, LOCAL = "Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure"
PERFECT, SINGLE, MULTIPLE, COLLAPSE = "Perfect Consistency", "Single Anomaly", "Multiple Anomalies", "Scene Collapse"

EDIT_TYPES = ("Change Color", "Change Material", "Change OCR", "Change Shape", "Removal Object", "Replace Object",
              "Change Count")  # fmt: skip

_PAIRS: Mapping[tuple[Label, Label], float] = {
    (LOCAL, COLLAPSE): 0.15, (WRONG, COLLAPSE): 0.05, (OVER, COLLAPSE): 0.05,
    (LOCAL, MULTIPLE): 0.033, (LOCAL, SINGLE): 0.033, (LOCAL, PERFECT): 0.034,
    (WRONG, MULTIPLE): 0.067, (WRONG, SINGLE): 0.067, (WRONG, PERFECT): 0.066,
    (OVER, MULTIPLE): 0.067, (OVER, SINGLE): 0.067, (OVER, PERFECT): 0.066,
    (FLAWLESS, MULTIPLE): 0.083, (FLAWLESS, SINGLE): 0.083, (FLAWLESS, PERFECT): 0.084,
}  # fmt: skip
"""How often each pair of labels is drawn: a quarter for each label of each criterion.

A collapsed scene never goes with a flawless edit: in another place or style the target is not what it was.
"""

_PLAIN = 0.2
"""The share of scenes on a plain ground, with anything from no to all other things."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What one family of scenes is made of."""

    number: int
    kinds: tuple[str, ...]
    formed: tuple[str, ...]
    lettered: tuple[str, ...]
    backgrounds: tuple[str, ...]
    plain: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    layout: Callable[[np.random.Generator, int, int, float], list[tuple[float, float]]]
    phrases: Mapping[str, tuple[str, ...]]
    faithful_style: Callable[[RGB], RGB]
    any_style: tuple[Callable[[RGB], RGB], ...]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One drawn edit.

    source, edited: H×W×3 uint8 RGB, not always of the same size.   target: x0, y0, x1, y1 in source px, around all
    targets.   labels: by criterion.   how: what was injected, in words.
    """

    source: RGB
    edited: RGB
    instruction: str
    edit_type: str
    target: tuple[int, int, int, int]
    labels: Mapping[str, Label]
    how: str = ""
    plain: bool = False
    targets: tuple[tuple[int, int, int, int], ...] = field(default=())


def draw(seed: int, *, family: FamilyName = "dev") -> Scene:
    """The scene of this seed; the same seed gives the same pixels."""
    made = FAMILIES[family]
    return _Painter(made, np.random.default_rng([made.number, seed]), np.random.default_rng([made.number, seed, 1])).scene()


# Layouts: many places for things that do not touch ---------------------------------------------------------------------


def _grid(rng: np.random.Generator, width: int, height: int, side: float) -> list[tuple[float, float]]:
    """The cells of a grid, each place a little off its middle, in random order."""
    cell = side * 1.55
    columns, rows = max(2, int(width // cell)), max(2, int(height // cell))
    slack = 0.12 * side
    places = [
        ((c + 0.5) * width / columns + rng.uniform(-slack, slack), (r + 0.5) * height / rows + rng.uniform(-slack, slack))
        for r in range(rows)
        for c in range(columns)
    ]
    return [places[i] for i in rng.permutation(len(places))]


def _scatter(rng: np.random.Generator, width: int, height: int, side: float) -> list[tuple[float, float]]:
    """Places thrown at random, each kept that is far enough from those before."""
    places: list[tuple[float, float]] = []
    for _ in range(600):
        x, y = rng.uniform(side * 0.6, width - side * 0.6), rng.uniform(side * 0.6, height - side * 0.6)
        if all((x - a) ** 2 + (y - b) ** 2 > (side * 1.35) ** 2 for a, b in places):
            places.append((float(x), float(y)))
    return places


FAMILIES: Mapping[FamilyName, Family] = {
    "dev": Family(
        number=1,
        kinds=("mug", "ball", "box", "kite", "apple", "fish"),
        formed=("badge", "plate"),
        lettered=("sign", "label"),
        backgrounds=("wall", "carpet", "tiles", "planks"),
        plain=("white", "card", "sweep"),
        sizes=((512, 384), (640, 480), (768, 512)),
        layout=_grid,
        phrases={
            "Change Color": ("Change the color of the {t} to {c}.", "Change the {t} from {a} to {c}."),
            "Change Material": ("Change the material of the {t} to {m}.", "Make the {t} out of {m}."),
            "Change OCR": ("Change the text on the {t} from '{x}' to '{y}'.",),
            "Change Shape": ("Change the shape of the {t} from {f} to {g}.", "Make the {t} {g}."),
            "Removal Object": ("Remove the {t}.", "Delete the {t} from the picture."),
            "Replace Object": ("Replace the {t} with {n}.", "Change the {t} into {n}."),
            "fewer": ("Reduce the number of {ts} from {i} to {j}.",),
            "more": ("Add {d} more {ts}, so that there are {j} in all.",),
        },
        faithful_style=painted,
        any_style=(sketched, painted),
    ),
    "held_out": Family(
        number=2,
        kinds=("umbrella", "car", "balloon", "bottle", "hat", "boat", "lamp"),
        formed=("clock", "cushion"),
        lettered=("number plate", "banner"),
        backgrounds=("blurred photo", "skyline", "hills", "plaid"),
        plain=("slate", "cream", "vignette"),
        sizes=((600, 400), (720, 540), (896, 640)),
        layout=_scatter,
        phrases={
            "Change Color": ("Turn the {t} {c}.", "Changed attribute of the {t} to {c}.", "Recolor the {t}: {a} → {c}."),
            "Change Material": ("Changed the attribute of the {t} to {m}.", "Turn the {t} into one made of {m}."),
            "Change OCR": ("Edit the {t} so that it reads '{y}' instead of '{x}'.",),
            "Change Shape": ("Turn the {t} into a {g} one.", "The {t} should be {g} instead of {f}."),
            "Removal Object": ("Erase the {t}.", "Take away the {t}."),
            "Replace Object": ("Swap the {t} for {n}.", "Put {n} in place of the {t}."),
            "fewer": ("Changed the number of {ts} from {i} to {j}.", "Leave only {j} of the {i} {ts}."),
            "more": ("Changed the number of {ts} from {i} to {j}.",),
        },
        faithful_style=cartooned,
        any_style=(etched, cartooned),
    ),
}

_WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}


@dataclass(frozen=True, kw_only=True)
class _Cast:
    """The things of a source picture: targets, all others, and free places for more."""

    targets: tuple[Thing, ...]
    others: tuple[Thing, ...]
    free: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """An instruction with what each way of answering it makes of the targets."""

    instruction: str
    flawless: tuple[Thing, ...]
    over: tuple[tuple[Thing, ...], ...]
    wrong: tuple[tuple[Thing, ...], ...]


class _Painter:
    """Draws one scene; all chance comes from two generators, asked in a fixed order.

    plain: decides on plain grounds alone. They came later, and what this generator leaves alone stayed as it was.
    """

    def __init__(self, family: Family, rng: np.random.Generator, plain: np.random.Generator) -> None:
        self.family, self.rng, self.plain = family, rng, plain
        self.bare = bool(plain.random() < _PLAIN)

    def scene(self) -> Scene:
        following, consistency = self._labels()
        edit_type = self._pick([t for t in EDIT_TYPES if not (following == OVER and t == "Removal Object")])
        width, height = self._pick(self.family.sizes)
        ground = self._ground(width, height)
        cast = self._cast(edit_type, ground)
        plan = self._plan(edit_type, cast, ground)
        missed = following == LOCAL and consistency in (SINGLE, MULTIPLE) and edit_type != "Change Count"
        elsewhere = missed and self.rng.random() < 0.5
        if following == LOCAL:
            after, how = self._untouched(cast.targets)
        elif following == WRONG:
            after, how = self._pick(plan.wrong), "wrong action"
        elif following == OVER and consistency != COLLAPSE:
            after, how = self._pick(plan.over), "too much"
        else:
            after, how = plan.flawless, "as asked"
        others = cast.others
        if consistency in (SINGLE, MULTIPLE):
            count = 1 if consistency == SINGLE else int(self.rng.integers(2, 5))
            others, what = self._anomalies(cast, count, ground, elsewhere=plan if elsewhere else None)
            how += f"; elsewhere: {', '.join(what)}"
        edited = render(ground, (*others, *after))
        if consistency == COLLAPSE:
            edited, style = self._collapsed(edited, keep=following != LOCAL)
            how += f"; scene {style}"
        edited = weathered(edited, self.rng)
        if self.rng.random() < 0.1:
            scale = float(self.rng.uniform(0.9, 1.1))
            how_to = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
            edited = cv2.resize(edited, None, fx=scale, fy=scale, interpolation=how_to)
        boxes = tuple(t.box for t in cast.targets)
        return Scene(
            source=render(ground, (*cast.others, *cast.targets)),
            edited=edited,
            instruction=plan.instruction,
            edit_type=edit_type,
            target=_around(boxes),
            targets=boxes,
            labels={"instruction_following": following, "visual_consistency": consistency},
            how=how,
            plain=self.bare,
        )

    def _labels(self) -> tuple[Label, Label]:
        pairs, weights = list(_PAIRS), np.array(list(_PAIRS.values()))
        return pairs[int(self.rng.choice(len(pairs), p=weights / weights.sum()))]

    # The source picture

    def _ground(self, width: int, height: int) -> RGB:
        ground = backdrop(self._pick(self.family.backgrounds), self.rng, width, height)
        if not self.bare:
            return ground
        return backdrop(self.family.plain[int(self.plain.integers(len(self.family.plain)))], self.plain, width, height)

    def _cast(self, edit_type: str, ground: RGB) -> _Cast:
        height, width = ground.shape[:2]
        share = float(np.exp(self.rng.uniform(np.log(0.002), np.log(0.012))))
        side = float(np.sqrt(share * width * height))
        pool = {"Change OCR": self.family.lettered, "Change Shape": self.family.formed}.get(edit_type, self.family.kinds)
        kind = self._pick(pool)
        longest = side * (1.7 if edit_type == "Change OCR" else 1.0)
        places = self.family.layout(self.rng, width, height, max(longest, 26.0) * 1.25)[:16]
        group = int(self.rng.integers(3, 6)) if edit_type == "Change Count" else 1
        targets = [self._thing(kind, places[0], side, ground)]
        for place in places[1:group]:
            targets.append(replace(targets[0], x=place[0], y=place[1], grain=self._grain()))
        spare = 3
        others: list[Thing] = []
        for place in places[group : max(group + 3, len(places) - spare)]:
            any_kind = self._pick((*self.family.kinds, *self.family.formed))
            other = self._thing(any_kind, place, side * self._around_one(), ground)
            # The instruction must name one thing only, also where it leaves the colour out.
            if other.kind != kind:
                others.append(other)
        if self.bare:
            # Few things or none beside the target: there, little but the edit gives the picture any structure.
            others = others[: int(self.plain.integers(len(others) + 1))]
        return _Cast(targets=tuple(targets), others=tuple(others), free=tuple(places[-spare:]))

    def _thing(
        self, kind: str, place: tuple[float, float], side: float, ground: RGB, *, not_in: Sequence[str] = ()
    ) -> Thing:
        lettered = kind in self.family.lettered
        colour = self._colour(place, side, ground, not_in=not_in)
        return Thing(
            kind=kind, colour=colour, x=place[0], y=place[1], grain=self._grain(),
            size=max(16.0, side / 1.6) if lettered else max(14.0, side),
            form=self._pick(("round", *FORMS)) if kind in self.family.formed else "round",
            text=self._text() if lettered else "",
        )  # fmt: skip

    def _colour(self, place: tuple[float, float], side: float, ground: RGB, *, not_in: Sequence[str]) -> str:
        """A colour that can be told from the ground at this place."""
        x, y, r = int(place[0]), int(place[1]), max(4, int(side / 2))
        behind = ground[max(0, y - r) : y + r, max(0, x - r) : x + r].reshape(-1, 3).astype(float).mean(axis=0)
        seen = [c for c, rgb in PAINTS.items() if np.linalg.norm(np.array(rgb) - behind) > 75 and c not in not_in]
        return self._pick(seen)

    # Instructions

    def _plan(self, edit_type: str, cast: _Cast, ground: RGB) -> _Plan:
        if edit_type == "Change Count":
            return self._count(cast, ground)
        (target,) = cast.targets
        place, side = (target.x, target.y), target.size
        new = self._colour(place, side, ground, not_in=(target.colour,))
        third = self._colour(place, side, ground, not_in=(target.colour, new))
        recoloured, odd = replace(target, colour=new), replace(target, colour=third)
        swapped = self._swapped(target, ground)
        words = {"t": self._name(target, ground), "a": target.colour, "c": new}
        wrong: list[tuple[Thing, ...]]
        over: list[tuple[Thing, ...]]
        if edit_type == "Change Color":
            good: tuple[Thing, ...] = (recoloured,)
            over = [(replace(recoloured, warp=0.1),), (replace(recoloured, soft=0.12),), (replace(recoloured, plain=True),),
                    (replace(swapped, colour=new),)]  # fmt: skip
            wrong = [(odd,), (odd,), (), (swapped,)]
        elif edit_type == "Change Material":
            material, other = self._two(MATERIALS)
            made = replace(target, material=material)
            good, words["m"] = (made,), material
            over = [(replace(made, warp=0.1),), (replace(made, soft=0.12),), (replace(swapped, material=material),)]
            wrong = [(odd,), (replace(target, material=other),), ()]
        elif edit_type == "Change OCR":
            asked, misread = self._text(), self._text()
            words |= {"x": target.text, "y": asked}
            lettered = replace(target, text=asked)
            good = (lettered,)
            over = [(replace(lettered, colour=new),), (replace(lettered, warp=0.08),)]
            wrong = [(replace(target, text=misread),), (replace(target, text=""),), (recoloured,)]
        elif edit_type == "Change Shape":
            form, other = self._two([f for f in ("round", *FORMS) if f != target.form])
            words |= {"f": target.form, "g": form}
            good = (replace(target, form=form),)
            over = [(replace(recoloured, form=form),), (replace(target, form=form, soft=0.12),)]
            wrong = [(recoloured,), (replace(target, form=other),), ()]
        elif edit_type == "Removal Object":
            good, over, wrong = (), [()], [(recoloured,), (swapped,)]
        else:
            good = (swapped,)
            words["n"] = f"{_article(swapped.colour)} {swapped.colour} {swapped.kind}"
            over = [(replace(swapped, soft=0.22),)]
            wrong = [(), (odd,)]
        phrase = self._pick(self.family.phrases[edit_type]).format_map(words)
        return _Plan(instruction=phrase, flawless=good, over=tuple(over), wrong=tuple(wrong))

    def _count(self, cast: _Cast, ground: RGB) -> _Plan:
        have = len(cast.targets)
        model = cast.targets[0]
        fewer = bool(self.rng.random() < 0.5)
        want = int(self.rng.integers(1, have)) if fewer else have + int(self.rng.integers(1, 3))
        more = tuple(replace(model, x=x, y=y, grain=self._grain()) for x, y in cast.free)
        row = (*cast.targets, *more)
        off = want - 1 if (want > 1 and want - 1 != have) else want + 1 if want + 1 != have else want + 2
        new = self._colour((model.x, model.y), model.size, ground, not_in=(model.colour,))
        phrase = self._pick(self.family.phrases["fewer" if fewer else "more"]).format_map(
            {
                "ts": f"{model.colour} {_plural(model.kind)}",
                "i": self._number(have),
                "j": self._number(want),
                "d": self._number(abs(want - have)),
            }
        )
        kept = row[: min(have, want)]
        spoilt = tuple(replace(t, colour=new) for t in kept[:1]) + row[len(kept[:1]) : want]
        bent = tuple(replace(t, warp=0.1) for t in kept) + row[len(kept) : want]
        return _Plan(
            instruction=phrase,
            flawless=row[:want],
            over=(spoilt, bent),
            wrong=(row[:off], tuple(replace(t, colour=new) for t in cast.targets)),
        )

    def _name(self, target: Thing, ground: RGB) -> str:
        """How the instruction calls the target: mostly with its colour, sometimes with its place."""
        name = target.kind if self.rng.random() < 0.15 else f"{target.colour} {target.kind}"
        if self.rng.random() < 0.25:
            height, width = ground.shape[:2]
            side = "left" if target.x < width / 3 else "right" if target.x > width * 2 / 3 else ""
            end = "top" if target.y < height / 3 else "bottom" if target.y > height * 2 / 3 else ""
            where = f"on the {side}" if side else f"at the {end}" if end else "in the middle"
            name = f"{name} {where}"
        return name

    # Failures

    def _untouched(self, targets: tuple[Thing, ...]) -> tuple[tuple[Thing, ...], str]:
        if self.rng.random() < 0.25:
            return tuple(replace(t, soft=0.04) for t in targets), "target a little blurred, not edited"
        return targets, "target not edited"

    def _anomalies(
        self, cast: _Cast, count: int, ground: RGB, *, elsewhere: _Plan | None
    ) -> tuple[tuple[Thing, ...], list[str]]:
        """Other things changed, taken away or added: `count` of them. `elsewhere`: the edit itself hit one of them."""
        others, what = list(cast.others), list[str]()
        for index in self.rng.permutation(len(others))[:count]:
            thing = others[index]
            kinds = ["recoloured", "removed", "swapped", "bent"]
            act = "hit by the edit" if elsewhere and not what else self._pick(kinds)
            colour = self._colour((thing.x, thing.y), thing.size, ground, not_in=(thing.colour,))
            if act == "hit by the edit":
                others[index] = self._as_edited(thing, cast.targets[0], elsewhere, colour, ground)
            elif act == "recoloured":
                others[index] = replace(thing, colour=colour)
            elif act == "swapped":
                others[index] = self._swapped(thing, ground)
            elif act == "bent":
                others[index] = replace(thing, warp=0.14)
            else:
                others[index] = replace(thing, size=0)
            what.append(act)
        while len(what) < count:
            what.append("added")
            others.append(
                self._thing(self._pick(self.family.kinds), cast.free[len(what) % 3], cast.targets[0].size, ground)
            )
        return tuple(t for t in others if t.size), what

    def _as_edited(self, thing: Thing, target: Thing, plan: _Plan | None, colour: str, ground: RGB) -> Thing:
        """What the right edit makes of the wrong thing."""
        if plan is None or not plan.flawless:
            return replace(thing, size=0)
        made = plan.flawless[0]
        if made.kind != target.kind:
            return replace(made, x=thing.x, y=thing.y)
        if made.material:
            return replace(thing, material=made.material)
        return replace(thing, colour=made.colour if made.colour not in (target.colour, thing.colour) else colour)

    def _swapped(self, thing: Thing, ground: RGB) -> Thing:
        kind = self._pick([k for k in self.family.kinds if k != thing.kind])
        colour = self._colour((thing.x, thing.y), thing.size, ground, not_in=(thing.colour,))
        size = thing.size * (1.4 if thing.kind in self.family.lettered else 1.0)
        return Thing(kind=kind, colour=colour, x=thing.x, y=thing.y, size=size, grain=self._grain())

    def _collapsed(self, edited: RGB, *, keep: bool) -> tuple[RGB, str]:
        """The scene in another style, or another scene. `keep`: the edit must stay to be seen."""
        if keep:
            return self.family.faithful_style(edited), "restyled"
        if self.rng.random() < 0.5:
            return self._pick(self.family.any_style)(edited), "restyled"
        height, width = edited.shape[:2]
        ground = self._ground(width, height)
        side = float(np.sqrt(0.008 * width * height))
        places = self.family.layout(self.rng, width, height, side * 1.25)[:10]
        return render(ground, [self._thing(self._pick(self.family.kinds), p, side, ground) for p in places]), "replaced"

    # Chance

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def _two(self, options: Sequence[str]) -> tuple[str, str]:
        first, second = self.rng.permutation(len(options))[:2]
        return options[int(first)], options[int(second)]

    def _grain(self) -> int:
        return int(self.rng.integers(2**31))

    def _around_one(self) -> float:
        return float(self.rng.uniform(0.75, 1.25))

    def _number(self, n: int) -> str:
        return str(n) if self.rng.random() < 0.5 else _WORDS.get(n, str(n))

    def _text(self) -> str:
        letters = "ABCDEFGHKLMNPRSTUVXYZ"
        pair = "".join(letters[int(i)] for i in self.rng.integers(len(letters), size=2))
        return f"{pair} {int(self.rng.integers(10, 100))}"


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _plural(kind: str) -> str:
    return {"fish": "fish", "box": "boxes"}.get(kind, f"{kind}s")


def _around(boxes: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)
