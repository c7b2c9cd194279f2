"""`editloupe verify`: is a run as it was recorded?"""

from __future__ import annotations

from editloupe.cli.options import RunFolder
from editloupe.cli.output import Form, many, print_json, say, table
from editloupe.runs.verify import Part
from editloupe.runs.verify import verify as check
from editloupe.values import Json


def verify(run: RunFolder, form: Form = "table") -> int:
    """Check a run against its digests: findings, traces, pictures. Exit code 1: something was changed."""
    parts = check(run)
    wrong = sum(map(_failed, parts))
    code = int(wrong > 0)
    if form == "json":
        print_json({"run": str(run), "parts": [_json(part) for part in parts], "wrong": wrong, "exit": code})
        return code
    counts = ((part.name, part.equal + _failed(part), part.equal, len(part.unchecked), _failed(part)) for part in parts)
    heads = ("Checked", "Equal", "Not checkable", "Wrong")
    table("Part", *heads, rows=counts, title=f"Verified: {run}", right=heads)
    for part in parts:
        for name, why in part.wrong:
            say(f"wrong: {part.name}: {name}: {why}", "red")
        for why in dict.fromkeys(why for _, why in part.unchecked):
            names = [name for name, reason in part.unchecked if reason == why]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            say(f"not checkable: {part.name}: {names[0]}{more}: {why}")
    left = any(part.unchecked for part in parts)
    unchanged = "All that can be checked is as recorded." if left else "All is as recorded."
    say(f"{many(wrong, 'thing')} {'is' if wrong == 1 else 'are'} not as recorded." if wrong else unchanged)
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
