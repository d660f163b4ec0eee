"""Which state partitions a task evaluates: a pure account of one stage.

Spark's own partition id does not say: a `union` or `coalesce` after the operator renumbers tasks, and a
task may evaluate several partitions in turn. Rows say it, by their hash. An evaluation without rows could
be any of the partitions that have none, and they are alike; so it is given nothing, and the last of the
operator's evaluations is given all that nobody claimed. A task that runs again gets the same answer
again.
"""

from __future__ import annotations

from headrace.errors import QueryError

Evaluation = tuple[int, int]  # Spark's partition id of the task, and how many evaluations it made before


class StageClaims:
    """The claims of one operator in one stage. Not thread safe: its owner locks."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._answers: dict[Evaluation, list[int]] = {}
        self._claimed: set[int] = set()
        self._made: dict[int, int] = {}

    def arrive(self, task: int, attempt: int, partition: int | None) -> list[int]:
        """The partitions that this evaluation is to run; `partition` is None when it has no rows."""
        evaluation = (task, self._made.get(attempt, 0))
        self._made[attempt] = evaluation[1] + 1
        if evaluation not in self._answers:
            self._answers[evaluation] = self._answer(partition)
        answer = self._answers[evaluation]
        if partition is not None and partition not in answer:
            raise _twice()
        return answer

    def _answer(self, partition: int | None) -> list[int]:
        if len(self._answers) == self._partitions or partition in self._claimed:
            raise _twice()
        answer = [] if partition is None else [partition]
        self._claimed.update(answer)
        if len(self._answers) + 1 == self._partitions:
            rest = [number for number in range(self._partitions) if number not in self._claimed]
            self._claimed.update(rest)
            answer += rest
        return answer


def _twice() -> QueryError:
    return QueryError(
        "one Headrace operator is used twice in one query",
        hint="build it twice, with two names, or write the query so that its result is used once",
    )
