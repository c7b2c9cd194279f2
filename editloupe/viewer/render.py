"""Turn templates into pages: the policy of every page, what a template may call, and the files beside the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from editloupe.figures.escape import safe
from editloupe.figures.render import html
from editloupe.scores import Metric
from editloupe.values import Json
from editloupe.version import VERSION
from editloupe.viewer.numbers import RunFacts
from editloupe.viewer.reader import SiteRun

CSP: Final = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""For every page: nothing inline, nothing from elsewhere."""

PLAIN_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For pictures and traces opened by themselves: nothing in them runs. Browsers style a bare picture inline."""

ASSET_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True)
class Response:
    """What lies at an address."""

    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    cache: str = "no-cache"
    location: str = ""
    csp: str = CSP + "; frame-ancestors 'none'"
    """What is no page has a policy of its own."""


def text(body: str | bytes, type_: str = "text/html", **more: Any) -> Response:
    """Return text in UTF-8 as a response. more: further fields of it."""
    data = body.encode("utf-8", "backslashreplace") if isinstance(body, str) else body
    return Response(body=data, type=f"{type_}; charset=utf-8", **more)


@cache
def assets() -> dict[str, bytes]:
    """Return the files of static/ by name."""
    found = resources.files("editloupe.viewer").joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in sorted(found, key=lambda f: f.name) if file.is_file()}


def rendered(template: str, **values: object) -> str:
    """Return a page. values: `root`, from the page to the static files, and what the template names."""
    return _ENVIRONMENT.get_template(template).render(csp=CSP, version=VERSION, **values)


def compact(data: Mapping[str, Any]) -> str:
    """Return JSON without spaces."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def arguments(given: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return what a tool or a measure was given, as (name, text)."""
    return [(n, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for n, v in given.items()]


def duration(seconds: float) -> str:
    """Return for example "8.2 s", "42 s", "12 min" or "3.1 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _status(facts: RunFacts) -> str:
    """How far a run is, in words."""
    share = f"{min(99.9, facts.judged):.3g} % judged" if facts.waiting else ""
    failed = f"{facts.failed:,} without an answer" if facts.failed else ""
    return facts.problem or ", ".join(filter(None, (share, failed))) or "complete"


def _first_score(facts: RunFacts) -> float | str:
    cells: Sequence[Mapping[str, Any]] = [cell for cells in facts.scores.values() for cell in cells]
    return next((cell["value"] for cell in cells if cell["value"]), "")


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else ""


def _money(usd: float | None) -> str:
    return "" if usd is None else f"${usd:.2g}" if usd < 1 else f"${usd:,.2f}"


def _named(words: str, runs: Sequence[SiteRun]) -> str:
    """Words with the names of runs in the place of their folders: no page tells a path of this machine."""
    for run in runs:
        words = words.replace(str(run.reader.folder), run.reader.name)
    return words


def _finalize(value: object) -> object:
    return safe(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float) -> str:
    """A box's coordinate without needless digits."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _meaning(metric: Metric) -> str:
    """The unit, the range and the direction of a metric, in words."""
    bounds = metric.domain.bounds
    span = "" if bounds is None else f"{bounds[0]:g} to {bounds[1]:g}"
    return ", ".join(filter(None, (metric.unit, span, f"{metric.better} is better" if metric.better else "")))


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("editloupe.viewer"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "px": _number,
    "meaning": _meaning,
    "arguments": arguments,
    "html": html,
    "status": _status,
    "first_score": _first_score,
    "duration": duration,
    "date": _date,
    "money": _money,
    "named": _named,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
}
