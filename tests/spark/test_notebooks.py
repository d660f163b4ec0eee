"""Protects the example notebooks: each runs from its first to its last cell in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.mark.parametrize("name", ["watch", "windows"])
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert outputs
    assert not [out for out in outputs if out.output_type == "error"]
