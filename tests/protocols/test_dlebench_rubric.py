"""The built-in DLEBench rubric: the paper's labels and values, every rule of Tables 3 and 5 and of section 7.3."""

from __future__ import annotations

import re

import pytest

from editloupe.rubrics import Criterion, load_rubric

RUBRIC = load_rubric("dlebench")
IF = RUBRIC.criterion("instruction_following")
VC = RUBRIC.criterion("visual_consistency")


def _level(name: str) -> str:
    (text,) = [level.description for c in RUBRIC.criteria for level in c.levels if level.name == name]
    return text


def _note(criterion: Criterion, subject: str) -> str:
    (text,) = [note for note in criterion.notes if note.startswith(f"{subject}: ")]
    return text


def test_the_labels_and_values_are_the_papers_from_worst_to_best() -> None:
    assert [(level.name, level.value) for level in IF.levels] == [
        ("Localization Failure", 1),
        ("Wrong Action", 2),
        ("Over Modification", 3),
        ("Flawless Execution", 4),
    ]
    assert [(level.name, level.value) for level in VC.levels] == [
        ("Scene Collapse", 1),
        ("Multiple Anomalies", 2),
        ("Single Anomaly", 3),
        ("Perfect Consistency", 4),
    ]
    assert [(c.id, c.short) for c in RUBRIC.criteria] == [("instruction_following", "IF"), ("visual_consistency", "VC")]


@pytest.mark.parametrize("criterion", [IF, VC], ids=lambda c: c.short)
def test_the_scale_is_normalised_as_in_the_paper(criterion: Criterion) -> None:
    # (value - 1) / 3 * 100
    assert [criterion.normalise(v) for v in (1, 2, 3, 4)] == pytest.approx([0, 100 / 3, 200 / 3, 100])


def test_the_source_names_paper_and_tables() -> None:
    assert RUBRIC.source.paper.startswith("DLEBench:")
    assert {"Table 3", "Table 5", "Appendix 7.3"} <= set(RUBRIC.source.parts)


# Each row is one rule; the words are those by which it must be recognisable in our text.
RULES = [
    # 7.1 and Table 5
    (
        "IF asks for the right place, the action, and preservation, in this order",
        IF.question,
        r"place, the action, and what was kept",
    ),
    ("IF knows that targets are small, occluded or blurred", IF.question, r"tiny, partly hidden or out of focus"),
    ("Flawless: right region or object", _level("Flawless Execution"), r"right region or object was found"),
    ("Flawless: the change is exact", _level("Flawless Execution"), r"exactly the requested change"),
    (
        "Flawless: shape, texture and structure kept",
        _level("Flawless Execution"),
        r"shape, texture and structure, was strictly kept",
    ),
    ("Flawless: nothing unasked", _level("Flawless Execution"), r"without any change that nobody asked for"),
    (
        "Over: located and executed, but details lost",
        _level("Over Modification"),
        r"found and the requested change was made, but",
    ),
    ("Over: otherwise identical to the original", _level("Over Modification"), r"exactly as in the Original Image"),
    ("Over: structure and fine details count", _level("Over Modification"), r"structure or fine details counts"),
    (
        "Over: removal does not punish deleted neighbours",
        _note(IF, "Removal"),
        r"non-target objects deleted .* do not make it Over",
    ),
    (
        "Over: replacement does not punish the surroundings",
        _note(IF, "Replacement"),
        r"requested kind .* recognisable.* not Over",
    ),
    (
        "Over: a replacement must be recognisable",
        _note(IF, "Replacement"),
        r"not clearly recognisable is Over Modification",
    ),
    (
        "Over: a replacement fits the style",
        _note(IF, "Replacement"),
        r"style .* lighting, manner of rendering or degree of realism",
    ),
    ("Wrong: found, but another action", _level("Wrong Action"), r"found and changed, but not in the way"),
    (
        "Wrong: the categories are checked strictly",
        _level("Wrong Action"),
        r"strictly .*Change Color; Change Material; Change Text; Change Shape; "
        r"Object Count \(Reduction, Addition\); Object Manipulation \(Remove, Replace\)",
    ),
    ("Wrong: another category always", _level("Wrong Action"), r"another kind than the requested one always"),
    ("Wrong: removed where recoloured", _level("Wrong Action"), r"removed instead of recoloured"),
    ("Wrong: replaced where only material", _level("Wrong Action"), r"replaced where only its material"),
    ("Wrong: counts are exact, both ways", _note(IF, "Count"), r"reducing or adding .* exactly the number .* Wrong Action"),
    ("Wrong: filling after a removal is none", _note(IF, "Removal"), r"Filling .* not Wrong Action, unless a replacement"),
    ("Localization: the target is in effect unchanged", _level("Localization Failure"), r"in effect what it was before"),
    (
        "Localization: small accidents are no edit",
        _level("Localization Failure"),
        r"drift of hue .* small warp .* not the requested change",
    ),
    ("Localization: blur or distortion hides the change", _level("Localization Failure"), r"badly blurred or distorted"),
    ("Localization: the wrong part", _level("Localization Failure"), r"wrong part within the target"),
    # 7.3, IF
    ("Step 1: effect, not pixels", IF.inspection[0], r"took effect, not whether pixels differ"),
    (
        "Step 1: artefacts do not count",
        IF.inspection[0],
        r"artefacts, shifted colours or slight distortions .* identifiable",
    ),
    ("Step 1: or what was asked was not done", IF.inspection[0], r"not been done to it, choose Localization Failure"),
    ("Step 1: stop at blur", IF.inspection[0], r"Stop .* heavy blur leaves open whether anything was modified"),
    ("Step 1: stop outside the target", IF.inspection[0], r"regions outside the target"),
    ("Step 1: a wrong part of the target", IF.inspection[0], r"wrong part of the target while the part or property"),
    ("Step 1: a change goes on", IF.inspection[0], r"clearly changed, .* goes on to step 2"),
    ("Step 2: kind and outcome of the action", IF.inspection[1], r"of the kind .* outcome"),
    (
        "Step 2: the reference is context, the text decides",
        IF.inspection[1],
        r"Reference Image .* consulted .* what counts is the text",
    ),
    ("Step 2: contradicting the text", IF.inspection[1], r"against the text, such as .* is Wrong Action"),
    ("Step 2: counts", IF.inspection[1], r"for counts see the notes"),
    ("Step 2: right goes on", IF.inspection[1], r"go on to step 3"),
    (
        "Step 3: shape, texture, structural details",
        IF.inspection[2],
        r"aside what the instruction names.* shape, texture and structural",
    ),
    ("Step 3: distortion or unasked style", IF.inspection[2], r"Structural distortion, or a change of style .* is Over"),
    ("Step 3: with the exceptions", IF.inspection[2], r"exceptions .* removal and replacement"),
    ("Step 3: blurred other parts", IF.inspection[2], r"recognisable change beside which the remaining parts .* blurred"),
    ("Step 3: sharp and true", IF.inspection[2], r"sharp and true to the original is Flawless Execution"),
    ("Blur: an unverifiable place", _note(IF, "Blur"), r"right place was edited is Localization Failure"),
    ("Blur: degraded other parts", _note(IF, "Blur"), r"rest of the object is too blurred .* Over Modification"),
    ("Several targets: each alone, the worst counts", _note(IF, "Multiple targets"), r"each one on its own .* worst"),
    # 7.1, Table 3 and 7.3, VC
    ("VC asks for the scene, then the objects", VC.question, r"scene as a whole.* and then every non-target object"),
    ("VC tells editing from repainting", VC.question, r"built on the original picture .* anew"),
    ("VC forbids change, deletion, distortion, addition", VC.question, r"changed, deleted, distorted or added"),
    (
        "Perfect: surroundings and objects identical",
        _level("Perfect Consistency"),
        r"surroundings and all non-target objects look the same",
    ),
    ("Perfect: seamless", _level("Perfect Consistency"), r"without a seam or any disturbance"),
    ("Perfect: the same photograph", _level("Perfect Consistency"), r"same photograph, with the target alone modified"),
    (
        "Single: surroundings kept, exactly one",
        _level("Single Anomaly"),
        r"surroundings in general are kept, but exactly one",
    ),
    ("Single: an added person counts", _level("Single Anomaly"), r"one passer-by whom the Original Image does not show"),
    (
        "Single: global effects do not count",
        _level("Single Anomaly"),
        r"texture or look alone, .* filter or grain, do not count",
    ),
    (
        "Multiple: two or more distinct",
        _level("Multiple Anomalies"),
        r"kept, but at least two separate things outside the target",
    ),
    ("Multiple: scattered", _level("Multiple Anomalies"), r"errors are scattered"),
    ("Multiple: global effects do not count", _level("Multiple Anomalies"), r"texture or look alone do not count"),
    (
        "Collapse: setting or style fundamentally changed",
        _level("Scene Collapse"),
        r"setting or the artistic style is fundamentally another",
    ),
    ("Collapse: another place or medium", _level("Scene Collapse"), r"type of place .* change of medium"),
    (
        "Collapse: objects and layout are disregarded",
        _level("Scene Collapse"),
        r"strictly .* disregard .* background objects and to the layout",
    ),
    ("Step 1: the targets are left out", VC.inspection[0], r"target objects strictly out of account"),
    ("Step 1: setting and style", VC.inspection[0], r"general setting and the artistic style kept"),
    (
        "Step 1: place, time of day, style",
        VC.inspection[0],
        r"different place or another time of day, or if its style .* stop: Scene Collapse",
    ),
    ("Step 1: stable goes on", VC.inspection[0], r"stable, go on to step 2"),
    (
        "Step 2: missing, distorted, changed, new",
        VC.inspection[1],
        r"lost, altered or warped, .* shows and the Original Image does not",
    ),
    ("Step 2: distinct errors are counted", VC.inspection[1], r"Count the distinct errors"),
    (
        "Step 2: two, one, none",
        VC.inspection[1],
        r"Two or more are Multiple .* exactly one is Single Anomaly, none is Perfect",
    ),
    (
        "Global effects are no anomaly",
        _note(VC, "Global effects"),
        r"texture or the look .* grain or a light filter, is not an anomaly",
    ),
    ("Several targets: the worst counts", _note(VC, "Multiple targets"), r"worst"),
]


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_the_rule_is_in_the_rubric(text: str, words: str) -> None:
    assert re.search(words, text)


@pytest.mark.parametrize("subject", ["Blur", "Multiple targets", "Removal", "Replacement", "Count"])
def test_instruction_following_has_a_note_on(subject: str) -> None:
    assert _note(IF, subject)


@pytest.mark.parametrize("criterion", [IF, VC], ids=lambda c: c.short)
def test_the_inspection_ends_with_a_label_for_every_outcome(criterion: Criterion) -> None:
    steps = " ".join(criterion.inspection)
    assert [level.name for level in criterion.levels if level.name not in steps] == []
