"""What a report reads of a run: one judge's scores of the run's samples, from findings alone and with no model."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.errors import ConfigError, UnknownPlugin
from editloupe.figures.columns import Answer, Item, JudgeColumn, Key, key_of
from editloupe.figures.frame import score_frame
from editloupe.findings import Finding
from editloupe.protocols.base import EvalProtocol, QuestionKey, groups, make_protocol, rejected_scores, scored
from editloupe.protocols.imported import Published, published_in
from editloupe.protocols.repeats import Repeats
from editloupe.runs.judges import names_of, titled
from editloupe.runs.lock import is_written
from editloupe.runs.people import Given
from editloupe.runs.store import RunStore
from editloupe.scores import NOT_JUDGED, Binary, Metric, MetricSet, Score, fault_messages, protocol_faults
from editloupe.tasks import About
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One judge over one run."""

    name: str
    """Unique in a report."""
    title: str = ""
    """What the run calls the judge."""
    folder: Path
    judge_id: str
    """"" for the scores of a protocol in which nobody has the role "judge"."""
    backend: str
    """URI; "" where nobody has the role "judge"."""
    mode: str
    """The protocol's option of this name; "" if it has none."""
    ablations: tuple[str, ...]
    """What of the tools was hidden."""
    metrics: MetricSet
    protocol: EvalProtocol
    criteria: tuple[str, ...]
    """Ids of the metrics that were asked."""
    samples: Mapping[str, Sample]
    """By key."""
    findings: tuple[Finding, ...]
    scores: tuple[Score, ...]
    """In the order of the samples; those without a value say why."""
    repeats: Repeats = field(default_factory=Repeats)
    """How often each question was asked, and how the answers were joined."""
    published: tuple[Published, ...] = ()
    """Of imported results: the means as their own script computes them."""
    people: tuple[Given, ...] = ()
    """What people said of parts of samples; what they said of samples and turns is in `samples`."""
    people_scores: tuple[tuple[str, Score], ...] = ()
    """(rater, score) that the protocol makes of people's answers, as `scores_by_people` returns them."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def is_lmm(self) -> bool:
        """Whether a model that may cost something answered."""
        return bool(self.backend) and parse_uri(self.backend).provider not in NOT_LMMS

    @property
    def asked(self) -> list[Metric]:
        """The metrics that were asked, in the protocol's order."""
        return [metric for metric in self.metrics.metrics if metric.id in self.criteria]

    @cached_property
    def frame(self) -> polars.DataFrame:
        """The scores as a frame (`frame.score_frame`)."""
        return score_frame(self.scores, self.samples)

    @cached_property
    def column(self) -> JudgeColumn:
        """What the judge said, with rows of the data that could not be read.

        An answer is the value; of right-or-wrong metrics the label, where there is one: two wrong answers need not be the
        same.
        """
        binary = {metric.id for metric in self.metrics.metrics if isinstance(metric.domain, Binary)}
        items: dict[Key, Item] = {}
        answers: dict[str, dict[Key, Answer]] = {}
        for score in self.scores:
            key = key_of(score)
            if key not in items:
                sample, kind = self.samples.get(score.key), score.dims.get("edit_type")
                source = score.sample_id if sample is None else sample.source.sha256
                items[key] = Item(source, None if kind is None else str(kind))
            labeled = score.metric in binary and score.label is not None
            answers.setdefault(score.metric, {})[key] = score.label if labeled else score.value
        return JudgeColumn(name=self.name, items=items, answers=answers)

    @property
    def untold(self) -> int:
        """Findings of an LMM whose tokens its endpoint did not tell, so that nobody knows what it spent.

        What was never asked (a missing output) and a call that failed before any answer cost nothing.
        """
        asked = (f for f in self.of_models if f.trace is not None and (f.status != "backend_failed" or f.turns))
        return self.is_lmm * sum(f.usage.input_tokens is None and f.usage.output_tokens is None for f in asked)

    @property
    def of_models(self) -> tuple[Finding, ...]:
        """The findings without those of measures and keys, which ask no model and spend nothing."""
        return tuple(f for f in self.findings if f.role != "measure")

    def describe(self) -> str:
        """Return who judged what and how, and how far a judge that was asked several times agrees with itself."""
        judge = titled(self.title or self.backend, self.backend)
        hidden = f", ablated: {', '.join(self.ablations)}" if self.ablations else ""
        mode = f"; mode {self.mode}{hidden}" if self.mode else hidden.replace(", ", "; ", 1)
        name = self.protocol.name
        asked = f"rubric {self.metrics.id}" if hasattr(self.protocol.options, "rubric") else f"protocol {name}"
        return ". ".join([f"Judge: {judge}{mode}; {asked}; run {self.folder}", *self_agreement(self.scores, self.repeats)])


def read_judged(folders: Sequence[Path]) -> list[Judged]:
    """Every judge of every run, in order. Runs may have different metrics (`on_shared_metrics`).

    Raises ConfigError: no run, a run named twice, a run without findings.
    """
    seen: dict[Path, Path] = {}
    for folder in folders:
        known = seen.setdefault(folder.resolve(), folder)
        if known is not folder:
            raise ConfigError(f"{known} and {folder} are the same run; name each run once")
    found = [judged for folder in folders for judged in judged_in(RunStore.read(folder))]
    if not found:
        raise ConfigError("; ".join(why_empty(RunStore.read(folder)) for folder in folders))
    return _named(found)


def on_shared_metrics(found: Sequence[Judged]) -> tuple[list[Judged], tuple[str, ...]]:
    """Return the judges with the metrics that all of their runs have, and remarks on the others; all where none differ.

    A metric of one id that is defined in two ways, as by two rubrics, is not shared. Raises ConfigError if no metric is.
    """
    metrics = found[0].metrics
    if all(judged.metrics == metrics for judged in found):
        return list(found), ()
    by_run = {judged.folder: judged.metrics.metrics for judged in found}
    shared = tuple(metric for metric in metrics.metrics if all(metric in own for own in by_run.values()))
    listed = "; ".join(f"{folder} has {_listed(own)}" for folder, own in by_run.items())
    if not shared:
        raise ConfigError(
            f"the runs have no metric in common: {listed}. Compare runs that were judged on one metric at least"
        )
    ids, kept = {metric.id for metric in shared}, []
    for judged in found:
        other = {metric.id for metric in judged.metrics.metrics} - ids
        kept.append(
            replace(
                judged,
                metrics=replace(metrics, metrics=shared),
                criteria=tuple(id_ for id_ in judged.criteria if id_ in ids),
                scores=tuple(score for score in judged.scores if score.metric in ids),
                # What a verdict on another metric took is no cost of these.
                findings=tuple(finding for finding in judged.findings if finding.metric not in other),
            )
        )
    return kept, (f"compared on what all runs have, {_listed(shared)}: {listed}",)


def _listed(metrics: Iterable[Metric]) -> str:
    """For example "Instruction Following (IF), Visual Consistency (VC)"."""
    return ", ".join(m.name if m.short in (m.name, m.id) else f"{m.name} ({m.short})" for m in metrics)


def judged_in(store: RunStore) -> list[Judged]:
    """Return every judge of a run that has findings.

    Raises ConfigError: no findings, a protocol that is not installed, or published means of another shape.
    """
    folder, identity = store.folder, store.info.get("identity")
    if not store.findings:
        raise ConfigError(why_empty(store))
    options, metrics, protocol = store.options(), store.metric_set(), protocol_of(store)
    ablations = identity.get("ablations") if isinstance(identity, Mapping) else None
    mode = str(options.get("mode") or "")
    hidden = tuple(str(a) for a in ablations) if isinstance(ablations, list) else ()
    published, by_people = published_in(store.spec.record), tuple(scores_by_people(store, protocol))
    samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
    rows = [
        (str(row["editor"]), str(row["id"]), None if (kind := row.get("edit_type")) is None else str(kind))
        for row in store.rejected.values()
    ]
    names = store.judge_names()
    judges: Iterable[tuple[str, str]] = store.judges().items()
    if not names:
        # Measures, or roles of the protocol's own: their findings are one reading of the samples.
        names, judges = {"": ", ".join(names_of(store.info.get("judges")).values()) or store.protocol}, [("", "")]
    found = []
    for judge_id, uri in judges:
        findings = store.current(judge_id or None)
        if not findings:
            continue
        rule = Repeats.of_run(store.info, findings)
        scores = _asked(scored(protocol, samples, findings, rule))
        of, asked = {score.metric for score in scores}, {f.metric for f in findings}
        criteria = tuple(m.id for m in metrics.metrics if m.id in (of & {*store.metrics()} or asked))
        scores += rejected_scores(protocol, rows, criteria)
        problems = (*store.problems, *fault_messages(protocol_faults(scores)))
        found.append(
            Judged(
                name=", ".join(filter(None, [names[judge_id], mode, *hidden])),
                folder=folder,
                judge_id=judge_id,
                title=names[judge_id],
                backend=uri,
                mode=mode,
                repeats=rule,
                ablations=hidden,
                metrics=metrics,
                protocol=protocol,
                criteria=criteria,
                samples=store.samples,
                findings=tuple(findings),
                scores=tuple(scores),
                people=tuple(given for given in store.people.values() if given.finding.part),
                people_scores=by_people,
                published=tuple(one for one in published if one.judge_id == judge_id),
                notes=tuple(f"{folder}: {problem}" for problem in problems),
            )
        )
    return found


def self_agreement(scores: Sequence[Score], rule: Repeats) -> tuple[str, ...]:
    """Return how far a judge that was asked several times agrees with itself, as a sentence; () for one that was not."""
    entropies = [score.entropy for score in scores if score.entropy is not None]
    if rule.count == 1 or not entropies:
        return ()
    same, gone = sum(bits == 0 for bits in entropies), sum(score.missing == "abstained" for score in scores)
    above = "" if rule.abstain_above is None else f"; {gone} abstained, above {rule.abstain_above:g} bits"
    return (
        f"{rule.count} repeats a question, the {rule.by} label counts. Repeats agree on {same} of {len(entropies)} scores; "
        f"mean entropy of labels {sum(entropies) / len(entropies):.2f} bits{above}.",
    )


def why_empty(store: RunStore) -> str:
    """Return why there is nothing to report of a run in which no judge has a finding, and what to do."""
    folder = shlex.quote(str(store.folder))
    if is_written(store.folder):
        return f"{store.folder} is under way, with no finding yet"
    data = f"--config {shlex.quote(str(store.folder / 'config.yaml'))}" if store.config() else "PATH"
    go_on = f"editloupe judge {data} --out {folder}"
    rated = bool(store.people) or any(sample.human for sample in store.samples.values())
    among = f"; or compare people among themselves: editloupe compare {folder}" if rated and not store.judges() else ""
    return f"{store.folder} holds no finding yet; judge something first: {go_on}{among}"


def to_go(judged: Judged) -> set[str]:
    """Return the keys of the samples about which a judge was not asked everything yet."""
    return {score.key for score in judged.scores if score.missing == NOT_JUDGED}


def incomplete(all_judged: Sequence[Judged]) -> tuple[str, ...]:
    """Return a line for each judge that has not been asked everything yet."""
    lines = []
    for judged in all_judged:
        if left := len(to_go(judged)):
            state = " is under way" if is_written(judged.folder) else ""
            given = len({score.key for score in judged.scores})
            lines.append(f"Incomplete: {judged.folder}{state}; of {given} samples, {judged.name} has {left} to go.")
    return tuple(lines)


def protocol_of(store: RunStore, **more: Any) -> EvalProtocol:
    """Return the protocol that a run was asked by. more: tools and budget. Raises ConfigError for one not installed."""
    try:
        return make_protocol(store.protocol, store.options(), recorded=True, **more)
    except UnknownPlugin as error:
        raise ConfigError(f"{store.folder} was judged by a protocol that is not installed here: {error}") from error


def scores_by_people(store: RunStore, protocol: EvalProtocol) -> Iterator[tuple[str, Score]]:
    """Yield (rater, score) for what the protocol makes of each rater's answers, as it makes scores of a judge's.

    Only where people answered questions that are no ratings by themselves: intermediate ones, parts of samples, two edits
    beside each other. A metric of a sample that the rater has rated directly is left out.
    """
    metrics, roles = store.metrics(), store.roles()
    if all(g.of_metric and not g.finding.part and g.finding.metric in metrics for g in store.people.values()):
        return
    others = [f for f in store.current() if roles.get(f.judge_id, f.role) != "judge"]
    said: dict[str, dict[QuestionKey, Finding]] = {}
    for given in store.people.values():
        said.setdefault(given.rater, {})[given.finding.question] = given.finding
    rated = {(g.rater, g.finding.metric, g.finding.about) for g in store.people.values() if g.rating is not None}
    by_group = groups(list(store.samples.values()))
    for rater, own in said.items():
        keys = {finding.sample_key for finding in own.values()}
        # Scores of a sample may rest on what was said of others of its group.
        asked = [s for group in by_group if {s.key for s in group} & keys for s in group]
        # What others found of a question that the rater answered is not the rater's.
        found = [f for f in others if f.question not in own]
        for score in scored(protocol, asked, [*found, *own.values()]):
            about = About(sample_id=score.sample_id, editor=score.editor, turn=score.turn, part=score.part)
            if score.value is not None and (rater, score.metric, about) not in rated:
                yield rater, score


def _asked(scores: list[Score]) -> list[Score]:
    """Without the metrics that were not asked: those of which no score rests on a finding or says anything."""
    asked = {score.metric for score in scores if score.findings or score.missing != NOT_JUDGED}
    return [score for score in scores if score.metric in asked]


def chosen(store: RunStore, wanted: str | None) -> list[Judged]:
    """Return one judge by name, URI, id or its beginning; or all of a run. Raises ConfigError, also for a run without."""
    found = judged_in(store)
    if not found:
        raise ConfigError(why_empty(store))
    if wanted is None:
        return found
    named = [j for j in found if j.judge_id in store.judges_called(wanted)]
    if not named:
        known = ", ".join(f"{j.title} ({j.judge_id})" for j in found)
        raise ConfigError(f"{store.folder}: no judge {wanted!r}; it has {known}")
    return named


def _named(found: list[Judged]) -> list[Judged]:
    """Each under a name of its own, by which all figures are kept: of those alike, run, id and place tell them apart."""
    tells: tuple[Callable[[int, Judged], str], ...] = (
        lambda _, judged: str(judged.folder), lambda _, judged: judged.judge_id[:6], lambda place, _: f"#{place}",
    )  # fmt: skip
    for tell in tells:
        names = Counter(judged.name for judged in found)
        found = [
            replace(judged, name=f"{judged.name} ({tell(place, judged)})") if names[judged.name] > 1 else judged
            for place, judged in enumerate(found, start=1)
        ]
    return found
