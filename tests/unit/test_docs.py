"""Protects the documents: every path, module, link and name in them exists; the walk of a row is right.

Paths are relative to the repository or to `src/headrace`. Names with a placeholder are skipped.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import headrace
from headrace.host.state.service import open_service
from headrace.plan.options import PREFIX, SETTINGS
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec, input_schema
from headrace.wire.contract import Ticket

PACKAGE = Path(headrace.__file__).parent
ROOT = PACKAGE.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ROW_FILES_MAX = 30
WORDS_MAX = 34

_CODE = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.:;?!])\s+|\n\s*\n|\n\s*- |\n#+ .*\n")
_MODULE = re.compile(r"(?<![\w.])headrace(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|txt)|(?:[\w.-]+/)+")
_SPARKS_FOLDERS = {"commits/", "offsets/", "out/"}  # in a checkpoint, or made by `make run`

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@documents
def test_every_path_exists(document: Path) -> None:
    prose = _BLOCK.sub("", document.read_text())
    named = {token for token in _CODE.findall(prose) if _PATH.fullmatch(token)} - _SPARKS_FOLDERS
    if document.name == "CONTRIBUTING.md":
        named = {path for path in named if "dedup" not in path}  # its example of a new operator
    assert [path for path in sorted(named) if not _exists(path)] == []


@documents
def test_every_module_exists(document: Path) -> None:
    named = set(_MODULE.findall(document.read_text()))
    assert [name for name in sorted(named) if not _is_module_or_name(name)] == []


@documents
def test_every_link_resolves(document: Path) -> None:
    links = [link for link in _LINK.findall(document.read_text()) if "://" not in link]
    assert [link for link in links if not _resolves(document, link)] == []


@documents
def test_sentences_are_short(document: Path) -> None:
    prose = _CODE.sub("code", _TABLE_ROW.sub("", _BLOCK.sub("", document.read_text())))
    sentences = _SENTENCE_END.split(_LINK.sub("]", prose))
    assert [sentence for sentence in sentences if len(sentence.split()) > WORDS_MAX] == []


@documents
def test_python_examples_parse_and_use_public_names(document: Path) -> None:
    text = document.read_text()
    for example in _PYTHON.findall(text):
        ast.parse(example)
    named = set(re.findall(r"(?<![\w.])hr\.([A-Za-z_]\w*)", text))
    assert named - set(headrace.__all__) == set()


def test_the_walk_of_one_row_is_short_and_its_files_exist() -> None:
    files = walk_of_a_row()
    assert 10 < len(files) < ROW_FILES_MAX
    assert len(set(files)) == len(files)
    assert [file for file in files if not (PACKAGE / file).is_file()] == []


def test_the_walk_of_one_row_is_what_the_host_runs(tmp_path: Path) -> None:
    spec = OperatorSpec(
        name="counts",
        keys=(Field("k0", "int64", "k"),),
        inputs=(),
        work=Fold((Accumulator("count", None, "int64"),)),
        window=None,
        emit="changes",
        timed=False,
        delays_ms=(),
        partitions=1,
    )
    schema = input_schema(spec)
    row = pa.RecordBatch.from_pydict({name: [7] for name in schema.names}, schema=schema)
    with files_run() as visited:
        service = open_service(64 << 20, tmp_path / "local")
        transaction = service.begin(Ticket("start", "q", spec, 0, 0, None, 1, str(tmp_path / "state"), 3))
        transaction.apply(row)
        assert [batch.num_rows for batch in transaction.finish([])] == [1]
        transaction.commit()
        service.close()
    in_host = [
        file
        for file in walk_of_a_row()
        if not file.startswith(("spark/", "jvm/", "wire/", "host/process/"))
    ]
    assert [file for file in in_host if file not in visited] == []


def test_readme_has_every_setting_with_its_default() -> None:
    text = (ROOT / "README.md").read_text()
    documented = dict(re.findall(r"^\| `(spark\.headrace\.[\w.]+)` \| ([^|]+?) \|", text, re.MULTILINE))
    expected = {f"{PREFIX}{setting.name}": setting.default for setting in SETTINGS}
    assert documented.keys() == expected.keys()
    plain = {name: default for name, default in expected.items() if re.fullmatch(r"[\w.]+", default)}
    assert {name: documented[name] for name in plain} == plain


def test_the_reference_has_every_public_name() -> None:
    named = set(re.findall(r"^   (\w+)$", (ROOT / "docs" / "reference.rst").read_text(), re.MULTILINE))
    assert set(headrace.__all__) - named == set()


def test_every_page_is_in_an_index() -> None:
    for index in (ROOT / "docs").glob("*/index.md"):
        pages = {page.stem for page in index.parent.glob("*.md")} - {"index"}
        listed = set(re.findall(r"^[\w-]+$", index.read_text(), re.MULTILINE))
        assert "0*" in index.read_text() or pages - listed == set(), index


def test_every_folder_is_in_the_table_of_folders() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    named = set(_CODE.findall(table))
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert {f"{folder}/" for folder in folders} - named == set()


@contextmanager
def files_run() -> Iterator[set[str]]:
    """The files of the package that any thread runs inside the block, by their paths in the package."""
    visited: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            visited.add(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield visited
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def walk_of_a_row() -> list[str]:
    """The second column of the numbered table in ARCHITECTURE's section on the way of one row."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("\n## The way of one row\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.MULTILINE)


def _exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (ROOT, PACKAGE, ROOT / "docs"))


def _is_module_or_name(dotted: str) -> bool:
    """Whether it is a module or folder of the package, or a name that a module defines."""
    parts = dotted.split(".")[1:]
    if _module(parts) is not None:
        return True
    source = _module(parts[:-1])
    return source is not None and re.search(rf"\b{parts[-1]}\b", source.read_text()) is not None


def _module(parts: list[str]) -> Path | None:
    path = PACKAGE.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _resolves(document: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = document if not name else (document.parent / name)
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
