"""Protects plain words: sentences in docstrings and comments are short, and names are not participles."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

PACKAGE = Path(headrace.__file__).parent
WORDS_MAX = 34
PARTICIPLES = {"said", "told", "heard", "held", "asked", "taken", "found", "there", "here"}
FILES = sorted(PACKAGE.rglob("*.py"))

TESTS = Path(__file__).parents[1]
TEST_FILES = sorted(TESTS.rglob("*.py"))

files = pytest.mark.parametrize("file", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
own_files = pytest.mark.parametrize(
    "file", TEST_FILES, ids=lambda path: path.relative_to(TESTS.parent).as_posix()
)


@files
def test_sentences_are_short(file: Path) -> None:
    assert long_sentences(file.read_text()) == []


@own_files
def test_sentences_in_tests_are_short(file: Path) -> None:
    assert long_sentences(file.read_text()) == []


@files
def test_names_are_not_participles(file: Path) -> None:
    assert participles_of(file.read_text()) == []


@own_files
def test_names_in_tests_are_not_participles(file: Path) -> None:
    assert participles_of(file.read_text()) == []


def test_a_long_sentence_and_a_participle_are_found() -> None:
    source = f'"""{"word " * (WORDS_MAX + 1)}."""\n_told = 1\n'
    (text,) = texts_of(source)
    assert [len(sentence.split()) > WORDS_MAX for sentence in sentences(text)] == [True]
    assert list(names_of(ast.parse(source))) == ["_told"]
    assert participles_of(source) == ["_told"]


def long_sentences(source: str) -> list[str]:
    every = [sentence for text in texts_of(source) for sentence in sentences(text)]
    return [sentence for sentence in every if len(sentence.split()) > WORDS_MAX]


def texts_of(source: str) -> Iterator[str]:
    """Every docstring, and every run of comment lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
    lines, last = [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        is_line = token.line.strip().startswith("#")
        if lines and (token.start[0] != last + 1 or not is_line):
            yield " ".join(lines)
            lines = []
        lines.append(token.string.lstrip("# "))
        last = token.start[0] if is_line else -1
    yield from [" ".join(lines)] if lines else []


def sentences(text: str) -> list[str]:
    """The sentences of prose: lists, tables, diagrams and examples are left out."""
    prose = re.sub(r"^(?:\s+|\||>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`", "code", prose)
    return [part for part in re.split(r"(?<=[.?!])\s+|\n\s*\n|\n- |:\n", prose) if part.strip()]


def participles_of(source: str) -> list[str]:
    return [name for name in names_of(ast.parse(source)) if name.strip("_") in PARTICIPLES]


def names_of(tree: ast.AST) -> Iterator[str]:
    """The names that a module defines: variables, attributes, arguments, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
