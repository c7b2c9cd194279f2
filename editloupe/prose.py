"""Tell whether prose beside an answer explains it. What cannot be told does not.

A judge may say why. Some of what judges write beside an answer takes it back ("impossible, given the bent handle"), doubts
it, quotes it or puts it off, and no list of such words is complete. A refusal costs one reminder; an answer that was never
given is a false verdict. So prose counts as an explanation only if it

- is English, Chinese, Japanese or Korean: of these the words below are known;
- speaks of the picture, and not of the answer, of its author, of a condition or of a likelihood (`_STANCE`);
- begins neither with a negation or a contrast nor with a word that goes on with the answer's own sentence (`_BEGINS`).

Beside the best answer, what speaks against it counts too: `_AGAINST`, a damage, and on the same line each negation but that
of a damage ("nothing else changed"). Beside a lower one, "not orange" and "nothing changed" are reasons; a negation of the
answer's own words is none. Whether a reason is true of the picture is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# "t" is what folding leaves of "isn't"; "than" stands for "rather than" and "worse than".
NEGATION: Final = _words(
    "not no never non nor neither without cannot t than ≠ ~ ¬ nicht kein keine keineswegs ne pas niet "
    "geen inte ikke não не нет"
)
"""Words that negate what stands beside them."""
_PARTS_NEGATE = re.compile("[不没非未无沒無否]|ない|ません|아니|않|없")
_STANCE = _words(
    # who speaks, and of what but the picture
    "i me my mine myself we us our you your yours user someone anybody judge reviewer editor label labels "
    "answer answers verdict rating rated score grade option choice candidate placeholder example prompt "
    "output caption watermark definition means quote quoted claim claims claimed says say said according "
    "wrote words impression thought mind hope hoped want wants wanted reading "
    # likelihood and doubt
    "maybe perhaps possibly probably possible impossible probable likely unlikely likelihood probability "
    "odds chance sure unsure certain certainty uncertain unclear doubt doubtful guess guessing tell "
    "appears apparently presumably seemingly suppose supposed assume assuming assumed provided pending "
    "tbd confirm confirmed verify check checking zoom zooming look looking closer later revise revised "
    "reconsider best worst average depends depending unless if whether otherwise hard would could might "
    "may must shall need needs evidence "
    # what is done to an answer
    "reject rejected retract retracted deny denied downgrade downgraded upgraded supersede superseded "
    "eliminated struck strike scratch crossed forfeit forfeits undeserved inapplicable unsupported "
    "unjustified generous stretch tempting so overruled withdrawn withdraw cancel cancelled canceled "
    "revoked void invalid sarcasm sarcastic kidding joke nonsense mistake mistaken oops sorry hmm "
    "disregard ignore correction nope nah wait actually excluded ruled disagree untrue opposite applies "
    "apply fits true less lower lowered notch short reverse contrary deserve deserves deserved worth earn "
    "earns earned disqualify disqualifies contradicts against argues "
    # what is wished for, or holds of something else
    "ideal ideally expected required requested asked asks aims aimed tries tried theory theoretically "
    "printed letters reservation reservations caveat caveats proviso objection objections problem "
    "problems excepted previous this that these those until before close charitable story used"
)
"""Words that speak of the answer itself, of whoever gives it, or of a condition."""
_CONTRAST = _words(
    "but however although though yet still except save apart despite instead rather nevertheless nonetheless"
)
_AGAINST = _CONTRAST | _words(
    "wrong unchanged unedited bent broken ruined spoiled spoilt blurry missing lost distort distorts "
    "should fail fails failed failure misses missed lacking lacks lack barely hardly almost nearly "
    "nothing none zero incorrect false far too wrongly"
)
"""Words that speak against the best answer, and explain a lower one."""
_BEGINS = _words(
    "is was are were be lost does do can will has had seems for only in of at to let or this that one and "
    "well also criteria"
)
"""Words with which the answer's own sentence goes on, so that it is no answer."""
_CONJUNCTION = _words("because since as reason reasoning justification explanation why rationale note")
_ENGLISH = _words(
    "the and its it with from there are have this that has been no not nothing only both colour color "
    "colours colors shape edges edge place object target edit edited change changed changes unchanged "
    "kept same clean correct incorrect wrong image background preserved preservation removed added "
    "replaced recoloured recolored visible damage damaged artefacts artifacts orange red green blue black "
    "white yellow intact text size lighting shadow reason reasoning justification explanation rationale "
    "because since"
)
"""Words that show a text to be English. Words that other languages have too are left out."""
_DAMAGE = (
    "damages? damaged artefacts? artifacts? distortions? distorted flaws? defects? blurs? blurred noise halos? seams? "
    "glitch(?:es)? errors? leak(?:s|age)? traces? residues? blemish(?:es)?"
).replace(" ", "|")
_HARMLESS = re.compile(
    r"\b(?:nothing|no one|none) else(?: (?:was|is|has been|were))? \w+"
    r"|\b(?:no|not|without|isn t|aren t|wasn t|weren t|nor)"
    r"(?: (?:a|an|any|the|single|visible|been|or|and|obvious|noticeable))*"
    rf" (?:(?:other|else|further|additional|unintended|unwanted|collateral|extra|otherwise) \w+|(?:{_DAMAGE})\b)"
)
"""Negations that deny a damage, which explain the best answer."""
_NO_CHANGE = re.compile(
    r"\bno (?:visible |other |real )*(?:change|edit|modification|difference)s?\b"
    r"|\bnothing (?:was |has )?(?:changed|edited|happened)\b"
)
_DAMAGED = re.compile(rf"\b(?:{_DAMAGE})\b")
_OF_THE_ANSWER = re.compile(
    r"(?<!^)\bit\b(?! (?:is|was|has|had|keeps|kept|looks|became|becomes|remains|stays|stayed|now|and|in|on|to|with|from)\b)"
    r"|\bthe other (?:image|edit|one|picture)\b"
)
"""An "it" that is no subject is likely the answer."""
_TAKES_BACK = re.compile(
    r"\b(?:this|that|it|above) (?:is|was) (?:\w+ )?(?:wrong|incorrect|false|mistaken|invalid)\b|\bthe above\b"
    r"|\btak(?:e|ing) (?:it|that|this) back\b|\bthe other\b$"
)
_RETRACTED = frozenset({"wrong", "incorrect", "false", "错误", "错了", "错", "間違い", "違います", "❌"})
"""Whole texts that take the answer before them back. "Incorrect color." behind a low label is its reason."""
_SHARE = re.compile(r"\d\s*[%/]\s*|\bpercent\b")
_EAST = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Kana, Chinese characters and Hangul."""
_EAST_STANCE = re.compile(
    "[我私]|可能|也许|大概|假如|如果|应该|抱歉|作废|标签|答案|图中写|写着|例|かもしれ|たぶん|でしょう|思い|すみません"
    "|아마|취소|틀렸|틀린|것 같"
)
_EAST_AGAINST = re.compile("[错錯誤误違违]|間違|但|虽|却|失败|しかし|だが|けど|하지만|그러나")
_OTHER_LETTER = re.compile("[^\\W\\d_a-z\u00c0-\u024f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def negates(words: Collection[str]) -> bool:
    """Return whether one of these folded words negates."""
    return not NEGATION.isdisjoint(words) or any(map(_PARTS_NEGATE.search, words))


def explains(folded: str, *, raw: str = "", best: bool = True, beside: bool = False, own: Collection[str] = ()) -> bool:
    """Return whether prose leaves the answer beside it standing.

    folded: the prose as `parsing.fold` returns it.   raw: as it was written, where shares (90%) still show.
    best: whether the answer is the best one, against which a failure speaks.
    beside: whether it stands on the answer's own line; there no negation is let pass beside the best answer, and fewer than
    three words are no reason.
    own: the words of the answer; a negation together with one of them negates the answer.
    """
    text = _HARMLESS.sub("intact", folded)
    if not best:
        text = _NO_CHANGE.sub("unchanged", text)
    words = text.split()
    while words and words[0] in _CONJUNCTION:
        words = words[1:]
    if not words or folded in _RETRACTED or _SHARE.search(raw):
        return False
    east = bool(_EAST.search(text))
    if beside and not east and len(words) < 3 and not {"intact", "unchanged"}.issuperset(words):
        return False
    if not east and _ENGLISH.isdisjoint(folded.split()):
        return False
    if _OTHER_LETTER.search(text) or not _STANCE.isdisjoint(words) or _EAST_STANCE.search(text):
        return False
    if (
        _TAKES_BACK.search(text)
        or _OF_THE_ANSWER.search(" ".join(words))
        or words[0] in _BEGINS | _CONTRAST | NEGATION
        or _PARTS_NEGATE.match(text)
    ):
        return False
    if best and (not _AGAINST.isdisjoint(words) or _DAMAGED.search(text) or _EAST_AGAINST.search(text)):
        return False
    return not negates(words) or (not (best and beside) and set(words).isdisjoint(own))
