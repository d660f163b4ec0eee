"""A Spark application with one query, as the coordinator sees it, and requests of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields, replace
from typing import Any

from host_fakes import counting

from headrace.coordinator.core import Coordinator
from headrace.coordinator.requests import BeginRequest
from headrace.plan.frontier import TimeInputs
from headrace.wire.contract import Summary


class Files:
    root = "file:/ck"

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def list(self, folder: str) -> list[str]:
        return sorted(
            name.removeprefix(f"{folder}/") for name in self.texts if name.startswith(f"{folder}/")
        )

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text

    def put(self, name: str, text: str) -> bool:
        if name in self.texts:
            return False
        self.write(name, text)
        return True

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)


class View:
    """A Spark application with one query."""

    def __init__(self) -> None:
        self.run: str | None = "run"
        self.files = Files()
        self.reads = 0
        self.fresh = False
        self.planned: dict[int, set[str]] = {}  # operators by batch

    def active_run(self, query: str) -> str | None:
        return self.run

    def active_queries(self) -> set[str]:
        return {"q"} if self.run else set()

    def checkpoint_files(self, query: str) -> Files:
        return self.files

    def started_fresh(self, query: str) -> bool:
        return self.fresh

    def seen_ms(self, query: str, batch: int, operator: str, nodes: list[str]) -> list[int | None]:
        self.reads += 1
        return [batch * 1000 for _ in nodes]

    def watermark_ms(self, query: str, batch: int, operator: str) -> int | None:
        return batch * 100

    def operators_before(self, query: str, batch: int) -> set[str]:
        return self.planned.get(batch - 1, set())

    def first_with_input(self, query: str, operator: str, batches: Sequence[int]) -> int | None:
        return next((batch for batch in batches if batch in self.planned), None)

    def alive(self) -> bool:
        return True


BEGIN = BeginRequest(
    query="q",
    run="run",
    uid="u",
    batch=0,
    stage=1,
    task=0,
    attempt=0,
    partition=0,
    machine="a",
    spec=counting(),
    location=None,
    new=False,
)


DELAYED = replace(counting(), delays_ms=(10,))
DIRECT = TimeInputs(("n",), direct=("n",))


def summary(partition: int, batch: int = 0, **more: Any) -> Summary:
    required = [field.name for field in fields(Summary) if field.default is MISSING]
    zeros = dict.fromkeys(required, 0)
    return Summary(**{**zeros, "partition": partition, "version": batch, "watermark_ms": None, **more})


def commit(
    coordinator: Coordinator, batch: int, *partitions: int, operator: str = "counts", run: str = "run"
) -> None:
    for partition in partitions:
        request = {"query": "q", "run": run, "operator": operator, "batch": batch}
        coordinator.act("committed", {**request, "summary": asdict(summary(partition, batch))})
