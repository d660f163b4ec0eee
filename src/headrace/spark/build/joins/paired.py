"""Conditions over both streams of a join, as terms that the host evaluates on pairs.

Spark analyses a condition over the columns of both streams, so types and casts are Spark's. Every part that
reads one stream only is an expression of Spark's, computed before the shuffle, and one more input of its
side. Above these the host has comparisons, `and`, `or`, `not`, `is null`, and arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import LEFT, RIGHT
from headrace.plan.work.joins.condition import INPUTS, NUMBERS, Term
from headrace.spark.build.joins.conditions import refuse_ambiguous
from headrace.spark.language.columns import Resolved, case_insensitive, resolve
from headrace.spark.language.plans import items, node_kind
from headrace.spark.language.types import state_type

Operand = Callable[[int, Resolved], str]  # the input of a side that has the value of an expression

_COMPARISONS = {
    "EqualTo": "equal",
    "EqualNullSafe": "same",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_LOGIC = {"And": "and", "Or": "or", "Not": "not"}
_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Abs": "abs"}
_REFERENCE, _REFERENCE_TEXT = "CommonExpressionRef", "commonexpressionref()"
_CASTS = {("int32", "int64"), ("int32", "double"), ("int64", "double")}  # that never fail
_LITERALS = ("int32", "int64", "string", "bool")
_HINT = (
    "between columns of both streams are comparisons, and, or, not, is null, and +, -, * and abs of "
    "int, bigint and double in ANSI mode; compute anything else in a column of one stream beforehand"
)


class PairedConditions:
    """Translates conditions over the columns of two streams."""

    def __init__(self, left: DataFrame, right: DataFrame, keys: Collection[str], operand: Operand) -> None:
        self._streams, self._keys, self._operand = (left, right), keys, operand
        self._sides = sides_of_names(left, right)
        self._both = _with_columns_of(left, right, self._sides)
        self._shared: dict[str, Any] = {}  # expressions that Spark names once and refers to, as in BETWEEN

    def term(self, conditions: Sequence[Column]) -> Term | None:
        """One term in which all conditions hold; None without any."""
        whole: Term | None = None
        for condition in conditions:
            resolved = resolve(self._both, condition, "where")
            if not isinstance(resolved.type, T.BooleanType):
                raise QueryError(
                    f"where: {resolved.name} is {resolved.type.simpleString()}, not a condition",
                    hint='compare it with something: where="price > limit"',
                )
            term = self._term(resolved.expression)
            whole = term if whole is None else ("and", whole, term)
        return whole

    def _term(self, expression: Any) -> Term:
        kind = node_kind(expression)
        sides = self._sides_of(expression)
        if len(sides) < 2:
            return self._value(expression, sides.pop() if sides else LEFT)
        if kind == _REFERENCE:
            return self._term(self._shared[str(expression.id())])
        if kind == "With":
            self._shared |= {str(one.id()): one.child() for one in items(expression.defs())}
            return self._term(expression.child())
        if _has_method(expression, "replacement"):  # such as BETWEEN
            return self._term(expression.replacement())
        parts = [self._term(child) for child in items(expression.children())]
        if kind in _COMPARISONS:
            return (_COMPARISONS[kind], *parts)
        if kind in _LOGIC:
            return (_LOGIC[kind], *parts)
        if kind in ("IsNull", "IsNotNull"):
            return ("null", *parts) if kind == "IsNull" else ("not", ("null", *parts))
        return self._number(expression, kind, parts)

    def _number(self, expression: Any, kind: str, parts: list[Term]) -> Term:
        """Arithmetic, and casts that Spark inserts for it."""
        type_ = _type_of(expression)
        types = [_type_of(child) for child in items(expression.children())]
        if kind == "Cast" and (types[0], type_) in _CASTS:
            return ("cast", type_, *parts)
        is_number = kind in _ARITHMETIC and NUMBERS.issuperset((type_, *types))
        if is_number and (type_ == "double" or _is_checked(expression)):
            return (_ARITHMETIC[kind], type_, *parts)
        raise _not_possible(expression)

    def _value(self, expression: Any, side: int) -> Term:
        """A literal, or a part that Spark computes from one stream."""
        type_ = _type_of(expression)
        is_plain = node_kind(expression) in ("Literal", "Cast") and expression.foldable()
        value = expression.eval(None) if is_plain and type_ in _LITERALS else None
        if value is not None:
            return ("literal", type_, value if isinstance(value, bool | int) else str(value))
        if not expression.deterministic():
            raise _not_possible(expression)
        text = self._inlined(expression)
        try:
            resolved = resolve(self._streams[side], F.expr(text), "where")
        except QueryError as error:
            raise _not_possible(expression) from error
        if _type_of(resolved.expression) != type_:
            raise _not_possible(expression)
        return (INPUTS[side], self._operand(side, resolved), type_)

    def _sides_of(self, expression: Any) -> set[int]:
        """The sides whose columns an expression reads, by itself or in what it refers to."""
        sides = {self._side(str(one.name())) for one in items(expression.references().toSeq())}
        return sides.union(*(self._sides_of(self._shared[one]) for one in _references(expression)))

    def _inlined(self, expression: Any) -> str:
        """The text of an expression, with what it refers to in its place."""
        text, references = str(expression.sql()), _references(expression)
        if len(references) > 1:
            raise _not_possible(expression)
        for one in references:
            text = text.replace(_REFERENCE_TEXT, f"({self._inlined(self._shared[one])})")
        return text

    def _side(self, name: str) -> int:
        refuse_ambiguous(name, self._streams, self._keys)
        return self._sides[name]


def sides_of_names(left: DataFrame, right: DataFrame) -> dict[str, int]:
    """The side that a name in a condition means: of a name that both have, such as a key, the left one."""
    fold = str.casefold if case_insensitive(left) else str
    known = {fold(name) for name in left.columns}
    rights = {name: RIGHT for name in right.columns if fold(name) not in known}
    return {**dict.fromkeys(left.columns, LEFT), **rights}


def _with_columns_of(left: DataFrame, right: DataFrame, sides: dict[str, int]) -> DataFrame:
    """No rows, with the columns of both streams."""
    fields = [field for df, side in ((left, LEFT), (right, RIGHT)) for field in df.schema.fields
              if sides.get(field.name) == side]  # fmt: skip
    return left.sparkSession.createDataFrame([], T.StructType(fields))


def _type_of(expression: Any) -> str:
    """The state type of an expression; raises for one whose values cannot be compared."""
    kind = T._parse_datatype_json_string(expression.dataType().json())
    return state_type(kind, f"where: {expression.sql()}")


def _references(expression: Any) -> set[str]:
    """What an expression refers to that is defined around it."""
    kind = node_kind(expression)
    if kind in (_REFERENCE, "With"):
        return {str(expression.id())} if kind == _REFERENCE else set()
    return set().union(*(_references(child) for child in items(expression.children())))


def _is_checked(expression: Any) -> bool:
    """Whether an overflow is an error, as in ANSI mode."""
    if node_kind(expression) == "Abs":
        return bool(expression.failOnError())
    return str(expression.evalMode().toString()) == "ANSI"


def _not_possible(expression: Any) -> QueryError:
    return QueryError(f"where: the host cannot compute {expression.sql()} for a pair of rows", hint=_HINT)


def _has_method(expression: Any, method: str) -> bool:
    """Whether a JVM object has a method without parameters."""
    return any(
        one.getName() == method and one.getParameterCount() == 0
        for one in expression.getClass().getMethods()
    )
