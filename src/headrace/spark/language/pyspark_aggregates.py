"""Aggregates as PySpark users write them: `F.sum("amount").alias("total")`, and `{"amount": "sum"}`.

Spark analyses the columns; its aggregate functions become Headrace's. Others are refused by name. Only the
analysed plan is read; nothing of it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from headrace.errors import QueryError
from headrace.spark.language.aggregates import Aggregate, Function
from headrace.spark.language.by_column import OrderedAggregate
from headrace.spark.language.columns import first_line
from headrace.spark.language.distinct import approx_count_distinct
from headrace.spark.language.holistic import collect_list, collect_set

HINT = "write the aggregate with hr.…, such as n=hr.count(); docs/limits.md lists what is missing"

# Spark's class of an aggregate function, and Headrace's function.
_FUNCTIONS: dict[str, Function] = {
    "Count": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
    "Average": "avg",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "MaxBy": "max_by",
    "MinBy": "min_by",
    "HyperLogLogPlusPlus": "count_distinct",
}


def from_columns(df: DataFrame, columns: Sequence[Column]) -> dict[str, Aggregate]:
    """Headrace's aggregates by output name, from columns of PySpark's functions."""
    try:
        plan = df.groupBy().agg(*columns)._jdf.queryExecution().analyzed()
    except AnalysisException as error:
        raise QueryError(f"agg: {first_line(error)}") from None
    written = _items(plan.aggregateExpressions())
    return {str(one.name()): _aggregate(df, one) for one in written}


def from_mapping(functions: Mapping[str, str]) -> dict[str, Aggregate]:
    """The dict form: column names and names of functions; names as Spark gives them."""
    aliases = {"mean": "avg", "variance": "var_samp", "stddev": "stddev_samp"}
    named: dict[str, Aggregate] = {}
    for column, function in functions.items():
        if function == "approx_count_distinct":
            named[f"{function}({column})"] = approx_count_distinct(column)
            continue
        name = aliases.get(function, function)
        if name not in get_args(Function):
            raise QueryError(f"agg: {function!r} is not an aggregate function", hint=HINT)
        is_star = column == "*"
        label = "count(1)" if is_star else f"{name}({column})"
        named[label] = Aggregate(name, None if is_star else column)  # type: ignore[arg-type]
    return named


def _aggregate(df: DataFrame, alias: Any) -> Aggregate:
    """One aggregate of an analysed plan: an alias over an aggregate function."""
    expression = alias.child() if _class(alias) == "Alias" else alias
    text = str(expression.sql())
    if _class(expression) != "AggregateExpression":
        raise QueryError(
            f"agg: {text} is an expression over aggregates", hint="compute it in a select after agg"
        )
    function = expression.aggregateFunction()
    name = _FUNCTIONS.get(_class(function))
    children = _items(function.children())
    if name == "count" and expression.isDistinct() and len(children) == 1:
        name = "count_distinct"
    elif name is None or expression.isDistinct():
        raise QueryError(f"agg: {text} is not supported", hint=HINT)
    read, written = _column(df, children[0]), expression.filter()
    condition = _column(df, written.get()) if written.isDefined() else None
    if _class(function) == "HyperLogLogPlusPlus":
        return approx_count_distinct(read, float(function.relativeSD()), filter=condition)
    if name in ("max_by", "min_by"):
        return OrderedAggregate(name, read, _column(df, children[1]), filter=condition)
    if name == "collect_list":
        return collect_list(read, filter=condition)
    if name == "collect_set":
        return collect_set(read, filter=condition)
    is_star = name == "count" and str(children[0].sql()) == "1"
    return Aggregate(name, None if is_star else read, filter=condition)


def _column(df: DataFrame, expression: Any) -> Column:
    """A column of an analysed expression."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    made = df.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression)
    return ClassicColumn(made)


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
