"""The handle that a processor's `init` receives: declares state variables and manages timers.

`Declaring` runs on the driver: it records the variables of a processor and parses their schemas.
`TaskHandle` runs in a task: variables are places in the state of the current key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)

from headrace.plan.work.cells import Variable
from headrace.spark.processors.cells import KeyCells
from headrace.spark.processors.keyed import KeyedState
from headrace.spark.processors.states import ListVariable, MapVariable, Slot, ValueVariable

_NOWHERE = str(UUID(int=0))
Parse = Callable[[Any], T.StructType]

TIME_MODES = ("none", "processingtime", "eventtime")


@dataclass(frozen=True)
class QueryInfo:
    """The batch that a processor runs in, with the methods of Scala's class of this name."""

    query: str = _NOWHERE
    run: str = _NOWHERE
    batch: int = -1

    def getQueryId(self) -> UUID:
        return UUID(self.query)

    def getRunId(self) -> UUID:
        return UUID(self.run)

    def getBatchId(self) -> int:
        return self.batch


NO_QUERY = QueryInfo()  # on the driver, where `init` declares variables, and in tests without Spark


def checked_ttl(ttl_ms: int | None, time_mode: str) -> int:
    """The time to live of a variable; 0 for none."""
    if not ttl_ms:
        return 0
    if time_mode != "processingtime":
        raise PySparkRuntimeError(
            "Error initializing state: [STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL] a time to "
            f"live needs timeMode ProcessingTime, and this processor runs with {time_mode}"
        )
    if ttl_ms < 0:
        raise PySparkRuntimeError(
            "Error initializing state: [STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE] a time to live "
            f"must be positive, not {ttl_ms} ms"
        )
    return int(ttl_ms)


class Declaring(StatefulProcessorHandle):  # type: ignore[misc]
    """Records variables; their states cannot be used."""

    def __init__(self, parse: Parse, time_mode: str) -> None:
        self._parse, self._time_mode = parse, time_mode
        self.variables: dict[str, Variable] = {}
        self.deleted: set[str] = set()

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        self._declare(stateName, "value", schema, None, ttlDurationMs)
        return ValueState(None, stateName)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        self._declare(stateName, "list", schema, None, ttlDurationMs)
        return ListState(None, stateName)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapState:
        self._declare(stateName, "map", valueSchema, userKeySchema, ttlDurationMs)
        return MapState(None, stateName)

    def deleteIfExists(self, stateName: str) -> None:
        if stateName in self.variables:
            raise PySparkRuntimeError(
                f"Error deleting state: the processor declares {stateName} and deletes it",
            )
        self.deleted.add(stateName)

    def getQueryInfo(self) -> QueryInfo:
        """No query yet: this handle is the driver's."""
        return NO_QUERY

    def _declare(self, name: str, kind: str, schema: Any, keys: Any, ttl_ms: int | None) -> None:
        if name in self.variables:
            raise PySparkRuntimeError(
                f"Error initializing {kind} state: [STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED] "
                f"State variable with name {name} has already been defined in the StatefulProcessor."
            )
        key_schema = "" if keys is None else self._parse(keys).json()
        ttl = checked_ttl(ttl_ms, self._time_mode)
        self.variables[name] = Variable(name, kind, self._parse(schema).json(), key_schema, ttl)


class TaskHandle(StatefulProcessorHandle):  # type: ignore[misc]
    """Gives a processor its variables and timers in a task."""

    def __init__(
        self, variables: tuple[Variable, ...], keyed: KeyedState, cells: KeyCells, time_mode: str
    ) -> None:
        self._variables = {one.name: (index, one) for index, one in enumerate(variables)}
        self._keyed, self._cells, self._time_mode = keyed, cells, time_mode
        self.expiring: list[ValueVariable | ListVariable | MapVariable] = []
        self.closed = False
        self.query = NO_QUERY

    def getQueryInfo(self) -> QueryInfo:
        """Query, start and batch; PySpark's own handle has no such method, Scala's has."""
        return self.query

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        variable, slot = self._place(stateName)
        return self._kept(ValueVariable(slot, _struct(variable.schema)), slot)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        variable, slot = self._place(stateName)
        return self._kept(ListVariable(slot, _struct(variable.schema)), slot)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapState:
        variable, slot = self._place(stateName)
        keys = _struct(variable.key_schema)
        return self._kept(MapVariable(slot, keys, _struct(variable.schema)), slot)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers("register")
        keyed, at = self._keyed, int(expiryTimestampMs)
        if at not in keyed.timers:
            keyed.timers = sorted([*keyed.timers, at])
            keyed.dirty = True
        keyed.remind(at)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers("delete")
        keyed = self._keyed
        if expiryTimestampMs in keyed.timers:
            keyed.timers = [at for at in keyed.timers if at != expiryTimestampMs]
            keyed.dirty = True

    def listTimers(self) -> Iterator[int]:
        self._check_timers("list")
        return iter(list(self._keyed.timers))

    def deleteIfExists(self, stateName: str) -> None:
        if stateName in self._variables:
            raise PySparkRuntimeError(
                f"Error deleting state: the processor declares {stateName} and deletes it",
            )

    def _check_timers(self, verb: str) -> None:
        if self._time_mode == "none":
            raise PySparkRuntimeError(
                f"Error {verb} timer: [STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE] "
                f"Failed to perform stateful processor operation={verb}_timer with invalid timeMode=None."
            )
        if self.closed:
            raise PySparkRuntimeError(
                f"Error {verb} timer: [STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_"
                f"STATE] Failed to perform stateful processor operation={verb}_timer with invalid handle "
                "state=CLOSED."
            )

    def _place(self, name: str) -> tuple[Variable, Slot]:
        if name not in self._variables:
            raise PySparkRuntimeError(
                f"Error initializing state: {name} was not declared when the query was built; "
                "init must declare the same variables every time"
            )
        index, variable = self._variables[name]
        return variable, Slot(self._keyed, self._cells, index, variable.ttl_ms)

    def _kept(self, state: Any, slot: Slot) -> Any:
        if slot.ttl_ms:
            self.expiring.append(state)
        return state


def _struct(text: str) -> T.StructType:
    import json

    schema = T.StructType.fromJson(json.loads(text))
    assert isinstance(schema, T.StructType)
    return schema
