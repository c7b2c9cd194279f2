"""`editloupe verify`: is a run as it was recorded, and which pictures does nothing name?"""

from __future__ import annotations

from typing import Annotated

from editloupe.cli.options import RunFolder, opt
from editloupe.cli.output import Form, as_json, many, print_json, say
from editloupe.cli.tables import table
from editloupe.runs.verify import Part, prune, unnamed_pictures
from editloupe.runs.verify import verify as check
from editloupe.values import Json


def verify(
    run: RunFolder,
    pruned: Annotated[bool, opt("--prune", None, "Delete the pictures that nothing in the run names.")] = False,
    form: Form = "table",
) -> int:
    """Check a run against its digests: findings, traces, pictures. Exit code 1: something was changed."""
    parts = check(run)
    wrong = sum(map(_failed, parts))
    code = int(wrong > 0)
    pruned = pruned and not wrong
    unnamed = prune(run) if pruned else unnamed_pictures(run)
    if as_json():
        sizes: dict[str, Json] = {str(path): size for path, size in unnamed.items()}
        told: dict[str, Json] = {"wrong": wrong, "unnamed": sizes, "pruned": pruned, "exit": code}
        print_json({"run": str(run), "parts": [_json(part) for part in parts], **told})
        return code
    counts = ((part.name, part.equal + _failed(part), part.equal, len(part.unchecked), _failed(part)) for part in parts)
    heads = ("Checked", "Equal", "Not checkable", "Wrong")
    table("Part", *heads, rows=counts, title=f"Verified: {run}", right=heads)
    for part in parts:
        for name, why in part.wrong:
            say(f"wrong: {part.name}: {name}: {why}", "red")
        reasons: dict[str, list[str]] = {}
        for name, why in part.unchecked:
            reasons.setdefault(why, []).append(name)
        for why, names in reasons.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            say(f"not checkable: {part.name}: {names[0]}{more}: {why}")
    unchanged = (
        "All that can be checked is as recorded." if any(part.unchecked for part in parts) else "All is as recorded."
    )
    say(f"{many(wrong, 'thing')} {'is' if wrong == 1 else 'are'} not as recorded." if wrong else unchanged)
    if unnamed:
        what = f"{many(len(unnamed), 'picture')} that nothing names, {sum(unnamed.values()):,} bytes"
        kept = "kept while something is wrong" if wrong else "--prune deletes what nothing names"
        say(f"Deleted {what}." if pruned else f"{what}; {kept}.")
    return code


def _failed(part: Part) -> int:
    """How many things are wrong, each for one reason or several."""
    return len({name for name, _ in part.wrong})


def _json(part: Part) -> dict[str, Json]:
    return {
        "part": part.name,
        "checked": part.equal + _failed(part),
        "equal": part.equal,
        "unchecked": [{"name": name, "reason": why} for name, why in part.unchecked],
        "wrong": [{"name": name, "reason": why} for name, why in part.wrong],
    }
