"""A judge as a reward: one number for each edit, and None where nothing was judged.

`reward_fn` has the signature that TRL's trainers call. `Reward` makes the number of a protocol's scores, here and in the
HTTP service. A failure never becomes a number.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean
from types import CodeType
from typing import Any, Final

from editloupe.errors import BackendError, ConfigError, DataError
from editloupe.findings import Finding
from editloupe.runs.judge import Judge
from editloupe.scores import Metric, MetricSet, Score
from editloupe.values import Json, Sample

_LOG: Final = logging.getLogger("editloupe")


class Reward:
    """One number from 0 to 1 of a protocol's scores: the mean of its metrics, or an expression over them."""

    def __init__(self, metrics: Sequence[Metric], expression: str | None = None) -> None:
        """Read the expression, such as "0.7 * IF + 0.3 * VC" or "min(IF, VC)".

        Names are metrics by id or short name, each 0 to 1 and 1 the best. Raises ConfigError for anything else in it.
        """
        self.metrics, self.expression = tuple(metrics), expression
        self._code: CodeType | None = None
        self._names: dict[str, str] = {}
        """Name in the expression → id of the metric."""
        if expression is not None:
            try:
                tree = ast.parse(expression.strip(), mode="eval")
            except (SyntaxError, ValueError) as error:
                raise ConfigError(
                    f"--reward {expression!r}: cannot be read ({error}); expected 0.7 * IF + 0.3 * VC"
                ) from error
            self._read(tree.body)
            self._code = compile(tree, "--reward", "eval")
        self._used = {*self._names.values()} if self._code else {metric.id for metric in self.metrics}
        """Ids of the metrics that the reward needs."""

    def of(self, scores: Sequence[Score]) -> dict[str, Json]:
        """Return {"value": 0 to 1 or None, "why": the reasons for None, "scores": metric → 0 to 1 or None}.

        Several scores of a metric (turns, parts) are averaged. A metric whose lower values are better is turned around.
        """
        values: dict[str, float | None] = {}
        reasons = []
        for metric in self.metrics:
            found = [score for score in scores if score.metric == metric.id]
            reason = _no_reward(metric, found)
            values[metric.id] = None
            if reason is None:
                mean = fmean(score.normalized for score in found if score.normalized is not None) / 100
                values[metric.id] = 1 - mean if metric.better == "lower" else mean
            elif metric.id in self._used:
                reasons.append(f"{metric.id}: {reason}")
        value = None if reasons else self._value(values)
        if value is not None and not 0 <= value <= 1:
            reasons.append(f"{self.expression} gives {value:.4g}; expected 0 to 1")
            value = None
        return {"value": value, "why": "; ".join(reasons) or None, "scores": dict(values)}

    def _read(self, node: ast.expr) -> None:
        """Note the metrics that an expression names. Raises ConfigError for what it may not hold, before it is computed."""
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
                return
            case ast.Name(id=name):
                self._names[name] = MetricSet(id="", metrics=self.metrics).metric(name).id
                return
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                inner = [node.left, node.right]
            case ast.UnaryOp(op=ast.USub()):
                inner = [node.operand]
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_], keywords=[]):
                inner = node.args
            case _:
                raise ConfigError(
                    f"--reward {self.expression!r}: {ast.unparse(node)!r} is not allowed; "
                    "expected metrics, numbers, + - * /, min(…) and max(…)"
                )
        for one in inner:
            self._read(one)

    def _value(self, values: Mapping[str, float | None]) -> float:
        if self._code is None:
            return fmean(value for value in values.values() if value is not None)
        known = {name: values[id_] for name, id_ in self._names.items()}
        try:
            return float(eval(self._code, {"__builtins__": {}, "min": min, "max": max}, known))
        except (ZeroDivisionError, OverflowError):
            return math.nan


def _no_reward(metric: Metric, scores: Sequence[Score]) -> str | None:
    """Return the reason why a metric's scores make no reward; None if they do."""
    missing = dict.fromkeys(score.missing for score in scores if score.missing is not None)
    if missing:
        return ", ".join(missing)
    if metric.domain.bounds is None or metric.better is None:
        return f"a metric without {'bounds' if metric.better else 'a direction'} is no reward; name others in criteria"
    return None if any(score.normalized is not None for score in scores) else "the protocol gives no score"


def reward_fn(
    backend: Any = "baseline",
    *,
    source: str = "source",
    instruction: str = "instruction",
    edited: Callable[[Any, Mapping[str, Any]], Any] = lambda completion, row: completion,
    reward: str | None = None,
    **options: Any,
) -> Callable[..., list[float | None]]:
    """Return a reward function for TRL's trainers: called as (prompts, completions, **columns), a number or None for each.

    backend, options: as `Judge` takes them.   source: the column with the source image.   instruction: the column with what
    was asked; without it the prompt's text.   edited: makes the edited image of a completion and its row; by default the
    completion is the image.   reward: an expression over metrics (`Reward`).
    The numbers are 0 to 1. None says that nothing was judged; the trainer leaves such a completion out. Where `columns`
    holds TRL's `log_metric`, the share of these is logged. Raises BackendError if no edit of a call was judged, and
    ConfigError for a missing column.
    """
    judge = Judge(backend, **options)
    number = Reward(judge.metrics, reward)

    def editloupe_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        if source not in columns:
            raise ConfigError(f"the data has no column {source!r} with source images; name it with reward_fn(source=…)")
        samples: list[Sample | None] = []
        for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            row = {name: v[place] for name, v in columns.items() if isinstance(v, list | tuple) and len(v) == len(prompts)}
            asked = row.get(instruction) or _text(prompt)
            try:
                samples.append(Sample.from_images(row[source], edited(completion, row), asked, id=f"completion-{place}"))
            except DataError as error:
                _LOG.warning("completion %d cannot be judged: %s", place, error)
                samples.append(None)
        found = iter(judge.judge_all([sample for sample in samples if sample is not None]))
        values = [None if sample is None else _number(judge, number, sample, next(found)) for sample in samples]
        if callable(log := columns.get("log_metric")):
            log("editloupe/unscored", values.count(None) / max(1, len(values)))
        if values and values.count(None) == len(values):
            raise BackendError(f"none of {len(values)} edits was judged; the log of `editloupe` names the reasons")
        return values

    return editloupe_reward


def async_reward_fn(backend: Any = "baseline", **options: Any) -> Callable[..., Awaitable[list[float | None]]]:
    """Return `reward_fn` as a coroutine function, which TRL runs beside others."""
    reward = reward_fn(backend, **options)

    async def editloupe_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return await asyncio.to_thread(reward, prompts, completions, **columns)

    return editloupe_reward


def _number(judge: Judge, number: Reward, sample: Sample, findings: Sequence[Finding]) -> float | None:
    graded = number.of(judge.scores(sample, findings))
    if graded["why"]:
        _LOG.warning("%s has no reward: %s", sample.id, graded["why"])
    value = graded["value"]
    return float(value) if isinstance(value, int | float) else None


def _text(prompt: Any) -> str:
    """Return the text of a prompt: a string, or TRL's list of messages."""
    if isinstance(prompt, str):
        return prompt
    parts = [message["content"] for message in prompt if message.get("role") == "user"]
    return "\n".join(part if isinstance(part, str) else " ".join(p.get("text", "") for p in part) for part in parts)
