"""Protects the documentation: every Python block of its pages runs, the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [DOCS / "start.md", *sorted((DOCS / "operators").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(page: Path, spark: SparkSession, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks, "a page without an example"
    (tmp_path / "docs").mkdir()
    scope: dict[str, object] = {"spark": spark, "__name__": "docs"}
    for block in blocks:
        text = block.replace("/tmp/headrace-docs", str(tmp_path / "docs"))
        exec(compile(text, str(page), "exec"), scope)
    if "query" in scope:
        run = hr.progress(scope["query"])  # type: ignore[arg-type]
        assert sum(batch.rows_in for batches in run.values() for batch in batches) > 0, "no batch ran"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d"]
    done = subprocess.run(
        [*command, str(tmp_path / "trees"), str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "html" / "index.html").exists()
    assert (tmp_path / "html" / "benchmarks.html").read_text().count("<svg viewBox") == 4
    assert not re.search(
        r'(src|href)="https?://(?!127)[^"]*\.(js|css)"', (tmp_path / "html/index.html").read_text()
    )
