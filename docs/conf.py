"""The documentation site: `make docs` builds it with warnings as errors."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _plots import with_plots

project = "Headrace"
version = release = installed("headrace")
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}
html_copy_source = False
html_show_sphinx = False
html_title = "Headrace"
templates_path = ["_templates"]
exclude_patterns = ["_build", "notebooks"]
default_role = "code"
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
myst_heading_anchors = 3
# Pages also link to files of the repository, which the site does not have.
suppress_warnings = ["myst.xref_missing", "myst.header"]
nitpicky = False


def setup(app: Any) -> None:
    """The page of benchmarks gets a plot above each of its main tables."""
    app.connect("source-read", _draw)


def _draw(app: Any, page: str, source: list[str]) -> None:
    if page == "benchmarks":
        source[0] = with_plots(source[0])
