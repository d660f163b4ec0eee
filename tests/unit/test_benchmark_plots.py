"""Protects the plots of the documentation's benchmarks: each bar is as long as the number in its table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PLOTS = runpy.run_path(str(DOCS / "_plots.py"))
PAGE = (DOCS / "benchmarks.md").read_text()


def test_every_plot_has_its_table() -> None:
    page = PLOTS["with_plots"](PAGE)
    assert page.count("<svg") == len(PLOTS["PLOTS"])
    assert re.sub(r"```\{raw\} html\n.*?\n```\n\n", "", page) == PAGE, "nothing else changes"


def test_bars_are_as_long_as_their_numbers() -> None:
    table = [
        ["query", "Headrace", "Spark"],
        ["q5 (new)", "1,200 K", "300 K"],
        ["`q7`", "600 K", ""],
        ["q8", "", ""],
    ]
    picture = PLOTS["plot"](table, "query", ("Headrace", "Spark"))
    full, quarter, half = (float(width) for width in re.findall(r'width="([\d.]+)" height="11"', picture))
    assert (quarter / full, half / full) == (pytest.approx(0.25), pytest.approx(0.5))
    assert [name in picture for name in (">q5<", ">q7<", ">q8<", "1,200 K")] == [True, True, False, True]


def test_a_table_that_is_gone_is_named() -> None:
    with pytest.raises(LookupError, match="no table with the columns rows/s, speed"):
        PLOTS["table_of"](PAGE, "Running aggregate: `rmw`", ("rows/s", "speed"))
