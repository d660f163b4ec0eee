"""The state partitions that a task evaluates: a pure account of one stage.

Spark's partition id does not identify them: a `union` or `coalesce` after the operator renumbers tasks, and
a task may evaluate several partitions. The hashes of its rows do. An evaluation without rows gets no
partition of its own. The operator's last evaluation gets all unclaimed partitions. A retried task gets the
same partitions again.
"""

from __future__ import annotations

from headrace.errors import QueryError

Evaluation = tuple[int, int]  # Spark's partition id of the task, and the number of its earlier evaluations


class StageClaims:
    """The claims of one operator in one stage. Not thread safe: the caller holds the operator's lock."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._answers: dict[Evaluation, list[int]] = {}
        self._claimed: set[int] = set()
        self._made: dict[int, int] = {}

    def arrive(self, task: int, attempt: int, partition: int | None) -> list[int]:
        """Returns the partitions that this evaluation runs; `partition` is None when it has no rows."""
        evaluation = (task, self._made.get(attempt, 0))
        self._made[attempt] = evaluation[1] + 1
        if evaluation not in self._answers:
            self._answers[evaluation] = self._answer(partition)
        answer = self._answers[evaluation]
        if partition is not None and partition not in answer:
            raise used_twice()
        return answer

    def _answer(self, partition: int | None) -> list[int]:
        if len(self._answers) == self._partitions or partition in self._claimed:
            raise used_twice()
        answer = [] if partition is None else [partition]
        self._claimed.update(answer)
        if len(self._answers) + 1 == self._partitions:
            unclaimed = [number for number in range(self._partitions) if number not in self._claimed]
            self._claimed.update(unclaimed)
            answer += unclaimed
        return answer


def used_twice() -> QueryError:
    return QueryError(
        "one Headrace operator is used twice in one query",
        hint="build it twice, with two names, or write the query so that its result is used once",
    )
