"""Small jobs that reach every executor of the application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.host.process.settings import HostSettings
from headrace.plan.options import HostPer


def on_every_executor(context: Any, run: Callable[[], None]) -> None:
    """Runs a function on all executors; more tasks than cores reach them all."""
    tasks = max(2, 4 * context.defaultParallelism)
    context.parallelize(range(tasks), tasks).foreach(lambda _: run())


def start_host_here(settings: HostSettings, per: HostPer) -> None:
    """Starts the host of this task's machine, unless it runs."""
    from headrace.host.process.lifecycle import ensure_host
    from headrace.spark.task.machine import machine_name

    ensure_host(replace(settings, machine=machine_name(per)))
