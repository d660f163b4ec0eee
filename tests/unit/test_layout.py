"""Protects the house: no import from a storey above, no crowded folder, no second source of time.

The storeys stand in `STOREYS`, the lowest first. A folder that is missing there fails the test, so a new
folder must choose its storey.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import headrace

ROOT = Path(headrace.__file__).parent
MODULES_MAX = 15
CLOCK_METHODS = {"now", "utcnow", "today"}

STOREYS = (
    "errors",
    "clock",
    "execution",
    "cache",
    "plan",
    "outside",
    "row",
    "kernels.core",
    "kernels.tables",
    "kernels.segments",
    "kernels.groups",
    "kernels.sessions",
    "kernels",
    "blob",
    "format",
    "files",
    "store.rows",
    "store.tables",
    "store.segments",
    "store.base",
    "store.ahead",
    "store.fold",
    "store.dedup",
    "store.append",
    "store.pairs",
    "store.cells",
    "store.sessions",
    "store.aur",
    "store.adaptive",
    "store.rocksdb",
    "store",
    "operators",
    "wire",
    "prefetch",
    "jvm",
    "checkpoint",
    "recovery",
    "inspect.shown",
    "inspect",
    "edit",
    "compactor",
    "host.ahead",
    "host.process",
    "host.compaction",
    "host.state",
    "host",
    "coordinator.placing",
    "coordinator",
    "monitor",
    "monitor.picture",
    "monitor.metrics",
    "pages",
    "generators.nexmark",
    "generators.records",
    "generators",
    "spark.bridge",
    "spark.language",
    "spark.windows",
    "spark.processors",
    "spark.asynchronous",
    "spark.enrich",
    "spark.lookups",
    "spark.task",
    "spark.driver",
    "spark.build",
    "spark.build.joins",
    "spark.build.processors",
    "spark.tables",
    "spark.api",
    "spark.sources",
    "spark",
    "headrace",
    "nexmark",
    "testing.browser",
    "bench.common",
    "bench.queries",
    "bench.commit",
    "bench.flowkv",
    "bench.nexmark",
    "bench.stores",
    "bench.processor",
    "bench.waiting",
    "bench.prefetch",
    "bench",
    "testing.clock",
    "testing.faults",
    "testing",
    "testing.simulation",
    "testing.contracts",
    "testing.crash",
    "ysb",
    "cli",
    "__main__",
)


def test_no_import_goes_up() -> None:
    rank = {folder: number for number, folder in enumerate(STOREYS)}
    upward = [
        f"{module} imports {target}"
        for module, targets in _imports().items()
        for target in targets
        if rank[_folder(target)] > rank[_folder(module)]
    ]
    assert upward == []


def test_no_folder_cycle() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for module, targets in _imports().items():
        for target in targets:
            if _top(module) != _top(target):
                edges[_top(module)].add(_top(target))
    assert list(TopologicalSorter(edges).static_order())


def test_no_crowded_folder() -> None:
    crowded = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for folder in (ROOT, *(path for path in ROOT.rglob("*") if path.is_dir()))
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > MODULES_MAX
    }
    assert crowded == {}


def test_every_folder_has_a_storey() -> None:
    assert {_folder(module) for module in _imports()} <= set(STOREYS)


def test_only_the_clock_knows_the_time() -> None:
    """Every other module gets its time from a `Clock`, so that tests control it."""
    direct = [
        f"{path.relative_to(ROOT)}:{line}: {call}"
        for path in sorted(ROOT.rglob("*.py"))
        if path != ROOT / "clock.py"
        for line, call in clock_calls(path.read_text())
    ]
    assert direct == []


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import time as t",
        "from time import sleep",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.utcnow()",
        "from datetime import date\nx = date.today()",
        "import pandas as pd\nx = pd.Timestamp.now()",
    ],
)
def test_a_direct_clock_call_is_noticed(code: str) -> None:
    assert clock_calls(code)
    assert not clock_calls("from datetime import datetime\nx = datetime.fromtimestamp(clock.now_ms())")


def clock_calls(code: str) -> list[tuple[int, str]]:
    """Imports of `time`, and calls that read the machine's clock or sleep."""
    calls = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            calls += [(node.lineno, "import time") for alias in node.names if alias.name == "time"]
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            calls.append((node.lineno, "from time import"))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in CLOCK_METHODS:
            calls.append((node.lineno, ast.unparse(node.func)))
    return calls


def _imports() -> dict[str, set[str]]:
    """The modules of this package that each module imports, also inside functions."""
    imported = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__") or "headrace"
        imported[module] = set(_targets(ast.parse(path.read_text()))) - {module}
    imported["headrace"] = set()  # the facade loads every name lazily
    return imported


def _targets(tree: ast.AST) -> list[str]:
    targets = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names if alias.name.split(".")[0] == "headrace"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
            targets += [_module_of(node.module or "", alias.name) for alias in node.names]
    return [target.removeprefix("headrace.") for target in targets]


def _module_of(package: str, name: str) -> str:
    """The module that `from package import name` loads."""
    inside = ROOT.joinpath(*package.split(".")[1:], name)
    is_module = inside.with_suffix(".py").exists() or inside.is_dir()
    return f"{package}.{name}" if is_module else package


def _folder(module: str) -> str:
    """The longest prefix of a module that has a storey, else its folder."""
    parts = module.split(".")
    prefixes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in STOREYS), module)


def _top(module: str) -> str:
    return module.split(".")[0]


def test_no_module_hides_a_public_name() -> None:
    """Importing a submodule sets an attribute of the package, which would stand in for the name."""
    inside = {path.stem for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert inside & set(headrace.__all__) == set()
