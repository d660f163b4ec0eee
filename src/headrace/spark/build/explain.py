"""`hr.explain(df)`: the stateful operators of a plan, the store each got, and why.

What was built is kept on the SparkContext, by the id that the operator's function has in Spark's plan; a
plan that Spark has rewritten is matched by the operator's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from headrace.monitor.records import window_text
from headrace.plan.choice import Choice
from headrace.plan.lookahead import Candidates, Prefetch, candidates_of
from headrace.plan.spec import OperatorSpec
from headrace.plan.timing import Timing, choose_timing
from headrace.prefetch.controller import Choice as Lookahead
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.language.plans import analysed, operators, stateful_of_spark, watermarks

_KEPT_AS = "_headrace_operators"


@dataclass(frozen=True)
class Built:
    """An operator and how its store was chosen."""

    spec: OperatorSpec
    choice: Choice
    timing: Timing = "auto"
    python: str | None = None  # why it runs in Python workers; None: it runs in the JVM
    uid: str = ""  # of the operator in Spark's plan
    prefetch: Prefetch = "auto"


@dataclass
class _Registry:
    by_id: dict[str, Built] = field(default_factory=dict)
    by_name: dict[str, Built] = field(default_factory=dict)


def remember(df: DataFrame, built: Built) -> None:
    """Keeps the text of `explain` for the operator on top of `df`."""
    registry = _registry(df)
    registry.by_name[built.spec.name] = built
    for name, number in operators(analysed(df))[:1]:
        if name == built.spec.name:
            registry.by_id[number] = built


def explain(df: DataFrame) -> None:
    """Print the Headrace operators that a DataFrame goes through, with their stores.

    If the state of an operator is observed and has run a batch, the observer's choice and counts follow.

    Parameters
    ----------
    df : DataFrame
        Any DataFrame; the operators below it are listed, the last one first.

    Examples
    --------
    >>> import headrace as hr
    >>> totals = hr.stream(events).name("totals").groupBy("user").agg(n=hr.count())
    >>> hr.explain(totals)
    totals
      keys    user
      window  none
      store   rmw: each row changes one state row of its key (point update)
      runs    in ...
      ahead   ...
    """
    print(explained(df))


def specs_below(df: DataFrame) -> list[OperatorSpec]:
    """The operators that a DataFrame goes through."""
    return [built.spec for built in built_below(df)]


def explained(df: DataFrame) -> str:
    """What `explain` prints."""
    marks, others = [mark.node for mark in watermarks(df)], stateful_of_spark(df)
    coordinator = coordinator_for(df.sparkSession)
    texts = [
        _text(
            built,
            marks,
            others,
            coordinator.verdict(built.spec.name, built.uid),
            coordinator.lookahead(built.spec.name),
        )
        for built in built_below(df)
    ]
    return "\n".join(texts) if texts else "no Headrace operator below this DataFrame"


def built_below(df: DataFrame, plan: Any = None) -> list[Built]:
    """The operators that a DataFrame goes through, or those of a part of its plan; the top one first."""
    registry, below = _registry(df), operators(analysed(df) if plan is None else plan)
    known = [registry.by_id.get(number) or registry.by_name.get(name) for name, number in below]
    return [built for built in dict.fromkeys(known) if built is not None]


def specs_of(df: DataFrame) -> dict[str, OperatorSpec]:
    """The operators below a DataFrame by name, the last one first."""
    return {built.spec.name: built.spec for built in built_below(df)}


def _text(
    built: Built,
    marks: list[str],
    others: list[str],
    verdict: str,
    known: tuple[Candidates, Lookahead] | None,
) -> str:
    spec, choice = built.spec, built.choice
    lines = [
        spec.name,
        *(f"  {label:<8}{text}" for label, text in spec.work.facts()),
        f"  keys    {', '.join(key.label or key.name for key in spec.keys) or 'none: one group'}",
        f"  window  {window_text(spec.window)}",
        f"  store   {choice.store}: {choice.reason}",
        f"  runs    {'in the JVM' if built.python is None else f'in Python workers: {built.python}'}",
    ]
    if verdict:
        lines.append(f"  seen    {verdict}")
    lines.append(f"  ahead   {_ahead(built, known)}")
    if spec.delays_ms and (spec.window is not None or spec.work.closes_by_watermark):
        lines.append(f"  timing  {_timing(built, marks, others)}")
    if spec.work.combined:
        lines.append("  before  rows of a group are combined in the workers that read them, then shuffled")
    return "\n".join(lines)


def _ahead(built: Built, known: tuple[Candidates, Lookahead] | None) -> str:
    """The candidate lookaheads, or why there is none; after the first batch also the one in use."""
    candidates, choice = known or (candidates_of(built.spec, in_jvm=built.python is None), None)
    if not candidates.names:
        return f"none: {candidates.reason}"
    text = f"{', '.join(candidates.names)} (spark.headrace.prefetch={built.prefetch})"
    without = [f"no {', '.join(names)}: {reason}" for reason, names in _by_reason(candidates).items()]
    if choice is None:
        return "\n          ".join([text, *without])
    slacks = [
        f"{name} {choice.slacks_ms[name]:.0f} ms" for name in candidates.names if name in choice.slacks_ms
    ]
    facts = [f"active: {choice.active or 'none'}, {choice.reason}"]
    facts += [f"slack: {', '.join(slacks)}"] if slacks else []
    facts += [f"discarded: {', '.join(sorted(choice.discarded))}"] if choice.discarded else []
    return "\n          ".join([text, *without, *facts])


def _by_reason(candidates: Candidates) -> dict[str, list[str]]:
    """The missing candidates of each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in candidates.missing:
        names.setdefault(reason, []).append(name)
    return names


def _timing(built: Built, marks: list[str], others: list[str]) -> str:
    if built.python is not None:
        return "eager: Spark takes a Python worker's operator for stateless"
    chosen = choose_timing(built.timing, marks, others)
    return f"{chosen.timing}: {chosen.reason}"


def _registry(df: DataFrame) -> _Registry:
    context: Any = df.sparkSession.sparkContext
    registry: _Registry | None = getattr(context, _KEPT_AS, None)
    if registry is None:
        registry = _Registry()
        setattr(context, _KEPT_AS, registry)
    return registry
