"""Find what lies at an address, the same for the server and for files. All addresses are relative, so that both work.

    index.html                       the run (with several runs: their list, and each run in a folder of its own)
    rows.js                          the samples with what was said of them (rows.json: the same, for a served page)
    first.js                         its first rows, of a large run that is served
    report.html, plots/NAME.svg      the protocol's tables and plots
    listed.html                      the run as a row of the list of runs, with its scores
    compare.html, compare.js         at the root, for several judges: samples by disagreement (?run=NAME&run=NAME)
    compared.html                    the statistics of that page
    samples/SLUG.html                one sample
    blobs/AB/SHA256.EXT  thumbs/…    pictures
    traces/…                         the traces themselves
    static/…                         style and script, at the root

Everything that a model, an instruction or a file says is text: Jinja escapes it, and `finalize` takes out what steers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from editloupe.backends.prices import Prices
from editloupe.errors import ConfigError
from editloupe.figures.compare_tables import tables
from editloupe.viewer.matrix import all_rows, first_rows
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunReader, RunSample, SiteRun, slug
from editloupe.viewer.render import ASSET_TYPES, PLAIN_CSP, Response, assets, rendered, text
from editloupe.viewer.sample_page import sample_values

_FOREVER: Final = "private, max-age=31536000, immutable"

_TOGETHER: Final = 8
"""So many runs are compared without being chosen."""

_BESIDE: Final = 3
"""Runs whose verdicts on one sample stand on one page."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Several runs under one root, or one that is the root itself."""

    runs: tuple[SiteRun, ...]
    live: bool = False
    """Served, so that pages ask for news; a static site does not."""
    numbers: Numbers = field(default_factory=Numbers)
    broken: tuple[tuple[str, str], ...] = ()
    """(folder, why) of what looks like a run and cannot be read."""

    @classmethod
    def of(
        cls,
        readers: Sequence[RunReader],
        *,
        live: bool = False,
        prices: Prices | None = None,
        listed: bool = False,
        broken: Sequence[tuple[str, str]] = (),
    ) -> Site:
        """Return a site of runs, with folders of their own if there are several; two of one name get a number.

        listed: a single run has a folder and a list too.   broken: (folder, why) of runs that cannot be read.
        Raises ConfigError where a table of people's labels is about none of the runs.
        """
        strangers = [reader.stranger for reader in readers if reader.human is not None]
        if strangers and all(strangers):
            raise ConfigError(strangers[0])
        # The root's own folder is nobody's.
        taken = {"static"}
        runs = []
        for reader in readers:
            name = slug(reader.name).rpartition("-")[0] or "run"
            folder = next(f for n in count(1) if (f := name if n == 1 else f"{name}-{n}") not in taken)
            taken.add(folder)
            runs.append(SiteRun(reader=reader, folder=f"{folder}/" if len(readers) > 1 or listed else ""))
        return cls(runs=tuple(runs), live=live, numbers=Numbers(prices=prices or Prices()), broken=tuple(broken))

    @property
    def listed(self) -> bool:
        """Whether the root is a list of runs, and not a run."""
        return all(run.folder for run in self.runs)

    @property
    def newest(self) -> list[SiteRun]:
        """The runs, the one that was written to last first."""
        return sorted(self.runs, key=lambda run: -run.reader.written)

    def at(self, address: str, query: str = "") -> Response | None:
        """Return what lies at an address below the root, for example "samples/SLUG.html"; None if nothing does.

        query: of the pages of comparison, "run=NAME&run=NAME".
        """
        parts = address.split("/")
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location="/index.html")
            case ["static", name] if name in (files := assets()):
                return Response(body=files[name], type=f"{ASSET_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
            case ["compare.html" | "compared.html" | "compare.js" as name]:
                return self._comparison(name, self.chosen(query), query)
            case ["index.html"] if self.listed:
                return text(self.runs_page())
            case [folder, *rest] if self.listed:
                run, parts = next((run for run in self.runs if run.folder == f"{folder}/"), None), rest
            case _:
                run = self.runs[0] if self.runs else None
        return None if run is None else self._in_run(run, parts)

    def missing(self, words: str = "Nothing is at this address.", status: HTTPStatus = HTTPStatus.NOT_FOUND) -> Response:
        """Return a page that says why there is nothing to see, with a way back."""
        first = "" if self.listed or not self.runs else self.runs[0].reader.name
        crumbs = [("Runs" if self.listed else first or "Start", "/index.html"), ("Not here", "")]
        page = rendered("missing.html", root="/", crumbs=crumbs, links=(), live=None, words=words)
        return text(page, status=status)

    def _in_run(self, run: SiteRun, parts: list[str]) -> Response | None:
        reader = run.reader
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location=f"/{run.folder}index.html")
            case ["index.html"]:
                return text(self.run_page(run))
            case ["report.html"]:
                return text(self.report_page(run))
            case ["listed.html"]:
                return text(self.runs_page([run]))
            case ["plots", name]:
                svg = self.numbers.plot(reader, name.removesuffix(".svg"))
                # Shown as a picture, and styled by what it holds itself.
                return None if svg is None else text(svg, "image/svg+xml", csp=PLAIN_CSP)
            case ["first.js"]:
                return _script(first_rows(self.numbers, run))
            case ["rows.js"]:
                return _script(all_rows(self.numbers, run))
            case ["rows.json"]:
                return text(all_rows(self.numbers, run), "application/json")
            case ["live.json"]:
                reader.refresh()
                return text(json.dumps({"version": reader.version, "running": reader.running()}), "application/json")
            case ["samples", name] if (sample := reader.sample(name.removesuffix(".html"))) is not None:
                return text(self.sample_page(run, sample))
            case ["traces" | "forks", *_] if reader.has_trace(trace := "/".join(parts)):
                # A trace that a finding names, or a fork of one; nothing else of the folder.
                data = reader.trace(trace)
                return None if data is None else text(data, "text/plain", csp=PLAIN_CSP)
            case ["blobs" | "thumbs" as kind, *name]:
                made = run.pictures.at(kind, "/".join(name))
                return None if made is None else Response(body=made[0], type=made[1], cache=_FOREVER, csp=PLAIN_CSP)
        return None

    # What can be compared

    def chosen(self, query: str = "") -> tuple[SiteRun, ...]:
        """Return the runs that a query names, else the newest ones over the same data that have several judges."""
        wanted = {f"{one}/" for one in parse_qs(query).get("run", [])}
        if named := tuple(run for run in self.runs if run.folder in wanted):
            return named
        groups = (self._peers(run) for run in self.newest)
        return next((group for group in groups if _several(group)), self.runs[:1])

    def _peers(self, run: SiteRun) -> tuple[SiteRun, ...]:
        """A run and the others over its data, it first."""
        return (run, *(r for r in self.newest if r is not run and r.reader.same_data(run.reader)))[:_TOGETHER]

    def _compare_link(self, run: SiteRun | None) -> str:
        """Where judges of a run and of others over its data are compared, from the root; "" for one judge."""
        peers = self._peers(run) if run is not None else self.chosen()
        if not _several(peers):
            return ""
        if self.live and self.listed and run is not None:
            return f"compare.html?{urlencode([('run', peer.folder[:-1]) for peer in peers])}"
        return "compare.html" if run is None or run in self.chosen() else ""

    def _comparison(self, name: str, chosen: Sequence[SiteRun], query: str) -> Response | None:
        if not _several(chosen):
            return None
        here, shown = name == "compare.html", dict[str, Any]()
        # Samples stand side by side before anything is computed, also those of a run without a finding yet.
        at_once = name != "compared.html" and _alike(chosen)
        found = None if at_once else self.numbers.comparison([run.reader for run in chosen])
        if name == "compare.js":
            return None if isinstance(found, str) else _script(all_rows(self.numbers, *chosen, at_root=True))
        if found is not None:
            shown = {"trouble": found} if isinstance(found, str) else {"comparison": found, "tables": list(tables(found))}
        places = [f"{page}.html{f'?{query}' if query else ''}" for page in ("compare", "compared")]
        page = self._page(
            name, chosen[0] if len(chosen) == 1 else None, "",
            [("Judges compared", places[0]), ("Statistics", places[1])][: 1 if here else 2],
            links=[("By sample", places[0], here), ("Statistics", places[1], not here)],
            at_root=True, chosen=chosen, query=query, **shown,
        )  # fmt: skip
        return text(page)

    # The pages

    def runs_page(self, runs: Sequence[SiteRun] | None = None) -> str:
        """Return the list of runs, the newest first. A served list has no scores yet: its page asks for them, run by run.

        runs: those of which everything is known now; None for the list of all.
        """
        known, shown = runs is not None or not self.live, self.newest if runs is None else runs
        listed = [(run, self.numbers.facts(run.reader) if known else None) for run in shown]
        return self._page("runs.html", None, "", [], runs=listed)

    def run_page(self, run: SiteRun) -> str:
        """Return one run: its counts, its means and its samples."""
        reader = run.reader
        running = self.live and reader.running()
        # Where measures alone answered, tools say nothing.
        measured = {reader.info.listed_judge(id_).get("kind") for id_ in reader.judge_names()} == {"measure"}
        absent = () if measured else reader.info.spec.identity.get("absent_tools") or ()
        return self._page("run.html", run, "", [], live="running" if running else "", absent=absent)

    def report_page(self, run: SiteRun) -> str:
        """Return the protocol's tables and plots of every judge of a run."""
        report = self.numbers.report(run.reader)
        return self._page("report.html", run, "", [("Report", "report.html")], report=report)

    def sample_page(self, run: SiteRun, sample: RunSample) -> str:
        """Return one sample: its images, and every verdict step by step."""
        position, total, before, behind = run.reader.around(sample.slug)
        content = sample.sample and sample.sample.content
        twins = ((peer, peer.reader.sample(sample.slug)) for peer in self._peers(run)[1:_BESIDE])
        peers = [(p, twin) for p, twin in twins if twin and (twin.sample and twin.sample.content) == content]
        values = sample_values(run, sample, self.numbers, peers)
        return self._page(
            "sample.html", run, "../", [(sample.id, f"samples/{sample.slug}.html")], entry=sample, position=position,
            count=total, previous=before, following=behind, **values,
        )  # fmt: skip

    def _page(
        self,
        template: str,
        run: SiteRun | None,
        up: str,
        below: Sequence[tuple[str, str]],
        *,
        links: Sequence[tuple[str, str, bool]] | None = None,
        live: str | None = None,
        at_root: bool = False,
        **values: Any,
    ) -> str:
        """Return a page with its way: Runs › run › what it is.

        up: from the page to its run's folder.   below: (words, address from there) of what stands behind the run.
        links: beside the way, (words, address, whether it is here); None for those of a run.   at_root: not in the run.
        """
        root = up + ("../" if run is not None and run.folder and not at_root else "")
        here = f"{run.folder}" if run is not None and at_root else up
        crumbs = [("Runs", f"{root}index.html")] if self.listed else []
        if run is not None:
            crumbs += [(run.reader.name, f"{here}index.html")]
        crumbs += [(words, f"{up}{address}") for words, address in below]
        if links is None:
            compare = self._compare_link(run)
            own = [("Samples", "index.html"), ("Report", "report.html")] if run is not None else []
            links = [(words, f"{up}{address}", f"{up}{address}" == crumbs[-1][1]) for words, address in own]
            links += [("Judges compared", f"{root}{compare}", False)] if compare else []
        return rendered(
            template, site=self, run=run, here=up, root=root, crumbs=crumbs or [("Runs", "index.html")], links=links,
            live=live, **values,
        )  # fmt: skip


def _alike(chosen: Sequence[SiteRun]) -> bool:
    """Return whether runs have samples in common, and none of another content."""
    runs = [{s.key: s.sample for s in run.reader.samples() if s.sample is not None} for run in chosen]
    known = {key: sample for one in runs for key, sample in one.items()}
    pairs = ((own, known[key]) for one in runs for key, own in one.items())
    return bool(set.intersection(*map(set, runs))) and all(a is b or a.content == b.content for a, b in pairs)


def _several(runs: Sequence[SiteRun]) -> bool:
    """Whether several judges judged these runs."""
    return sum(len(run.reader.info.judges()) for run in runs) > 1


def _script(rows: str) -> Response:
    """Rows as a script: a page from a file may not fetch. A string of JSON is read fastest."""
    return text(f"window.editloupeRows = {json.dumps(rows, ensure_ascii=False)};\n", "text/javascript")
