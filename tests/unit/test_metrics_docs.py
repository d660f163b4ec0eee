"""Protects the dashboard: every metric that it asks for is one that is served."""

from __future__ import annotations

import json
import re
from pathlib import Path

from progress_rows import START_MS, batch_record

from headrace.monitor.journal import Journal
from headrace.monitor.metrics.prometheus import ApplicationCollector
from headrace.monitor.records import event

DOCS = Path(__file__).parents[2] / "docs"


def test_the_dashboard_asks_for_metrics_that_are_served() -> None:
    journal = Journal()
    journal.add(batch_record(0))
    journal.add(event(START_MS, "host a", "error", "broken"))
    served = {family.name for family in ApplicationCollector(journal).collect()}
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    metrics = {name for text in expressions for name in re.findall(r"headrace_\w+", text)}
    assert len(metrics) > 10
    assert {name.removesuffix("_total") for name in metrics} <= served
