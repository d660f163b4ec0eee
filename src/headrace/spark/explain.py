"""`hr.explain(df)`: the stateful operators of a plan, the store each got, and why.

What was built is kept on the SparkContext, by the id that the operator's function has in Spark's plan; a
plan that Spark has rewritten is matched by the operator's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from headrace.spark.plans import TASK_PREFIX, analysed, node_kind, nodes
from headrace.spec import Join, OperatorSpec, Window
from headrace.store.choose import Choice

_KEPT_AS = "_headrace_operators"
_UNITS_US = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1000, "ms"),
)


@dataclass(frozen=True)
class Built:
    """An operator and how its store was chosen."""

    spec: OperatorSpec
    choice: Choice


@dataclass
class _Registry:
    by_id: dict[int, Built] = field(default_factory=dict)
    by_name: dict[str, Built] = field(default_factory=dict)


def remember(df: DataFrame, spec: OperatorSpec, choice: Choice) -> None:
    """Keep what `explain` will say about the operator on top of `df`."""
    built, registry = Built(spec, choice), _registry(df)
    registry.by_name[spec.name] = built
    for name, number in _operators(df)[:1]:
        if name == spec.name:
            registry.by_id[number] = built


def explain(df: DataFrame) -> None:
    """Print the Headrace operators that a DataFrame goes through, with their stores.

    Parameters
    ----------
    df : DataFrame
        Any DataFrame; the operators below it are listed, the last one first.

    Examples
    --------
    >>> import headrace as hr
    >>> totals = hr.stream(df).name("totals").groupBy("user").agg(n=hr.count())  # doctest: +SKIP
    >>> hr.explain(totals)  # doctest: +SKIP
    totals
      keys    user
      window  none
      store   rmw: each row changes one state row of its key (point update)
    """
    print(explained(df))


def explained(df: DataFrame) -> str:
    """What `explain` prints."""
    registry = _registry(df)
    found = [registry.by_id.get(number) or registry.by_name.get(name) for name, number in _operators(df)]
    texts = [_text(built) for built in dict.fromkeys(found) if built is not None]
    return "\n".join(texts) if texts else "no Headrace operator below this DataFrame"


def _text(built: Built) -> str:
    spec, choice = built.spec, built.choice
    lines = [
        spec.name,
        f"  keys    {', '.join(key.label or key.name for key in spec.keys) or 'none: one group'}",
        f"  window  {_window(spec.window)}",
        f"  store   {choice.store}: {choice.reason}",
    ]
    if spec.combined:
        lines.append("  before  rows of a group are combined in the workers that read them, then shuffled")
    if spec.join is not None:
        lines.insert(1, f"  join    {_join(spec.join)}")
    return "\n".join(lines)


def _join(join: Join) -> str:
    return f"{join.how}, {len(join.left)} columns of the left stream, {len(join.right)} of the right one"


def _window(window: Window | None) -> str:
    if window is None:
        return "none"
    if window.session:
        text = f"sessions with a gap of {_duration(window.width_us)}"
    elif window.every_us == window.width_us:
        text = f"tumbling, {_duration(window.width_us)}"
    else:
        text = f"sliding, {_duration(window.width_us)} every {_duration(window.every_us)}"
    return text + (f", lateness {_duration(window.lateness_us)}" if window.lateness_us else "")


def _duration(us: int) -> str:
    for unit, name in _UNITS_US:
        if us % unit == 0:
            return f"{us // unit} {name}"
    return f"{us} us"


def _operators(df: DataFrame) -> list[tuple[str, int]]:
    """Name and plan id of every operator in the plan, the top one first."""
    maps = (node.functionExpr() for node in nodes(analysed(df)) if node_kind(node) == "MapInArrow")
    named = ((str(function.name()), int(function.resultId().id())) for function in maps)
    return [(name.removeprefix(TASK_PREFIX), id_) for name, id_ in named if name.startswith(TASK_PREFIX)]


def _registry(df: DataFrame) -> _Registry:
    context: Any = df.sparkSession.sparkContext
    registry: _Registry | None = getattr(context, _KEPT_AS, None)
    if registry is None:
        registry = _Registry()
        setattr(context, _KEPT_AS, registry)
    return registry
