"""Protects the style of the Scala sources: short sentences in comments, no participles or human verbs as
names, lines and files of bounded size. Each class has a comment before it, and one file has Spark's
internals.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_words import PARTICIPLES, WORDS_MAX, sentences

from headrace.jvm.build import SOURCES

LINE_MAX, LINES_MAX = 140, 200
HUMAN = {"tell", "say", "hear", "want", "forget", "remember"}
PRIVATE = ("ArrowUtils", "StreamExecution", "MapInArrowExec", "StreamingDeduplicateExec")
NAME = re.compile(r"\b(?:val|var|def)\s+(\w+)|[(,]\s*(\w+)\s*:\s")
COMMENT = re.compile(r"/\*\*(.*?)\*/|//([^\n]*)", re.DOTALL)
CLASS = re.compile(r"^(?:final |abstract |case )*(?:class|trait)\s+(\w+)", re.MULTILINE)

sources = pytest.mark.parametrize("path", sorted(SOURCES.glob("*.scala")), ids=lambda path: str(path.stem))


@sources
def test_sentences_are_short(path: Path) -> None:
    long = [sentence for text in comments(path.read_text()) for sentence in sentences(text)]
    assert [sentence for sentence in long if len(sentence.split()) > WORDS_MAX] == []


def comments(source: str) -> list[str]:
    """The text of every comment, without the stars."""
    return [re.sub(r"\n\s*\*?[ ]?", "\n", one or other).strip() for one, other in COMMENT.findall(source)]


def test_a_long_sentence_is_noticed() -> None:
    source = f"/**\n * {'word ' * WORDS_MAX}\n * word. Another.\n */"
    assert [len(one.split()) > WORDS_MAX for text in comments(source) for one in sentences(text)] == [
        True,
        False,
    ]


@sources
def test_names_are_nouns_or_trade_verbs(path: Path) -> None:
    names = {one or other for one, other in NAME.findall(path.read_text())}
    assert names & (PARTICIPLES | HUMAN) == set()


@sources
def test_lines_and_files_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > LINE_MAX] == []


@sources
def test_the_first_class_of_a_file_has_a_comment(path: Path) -> None:
    text = path.read_text()
    first = CLASS.search(text)
    if first is not None:
        assert "/**" in text[: first.start()], first[1]


@sources
def test_what_spark_does_not_publish_is_in_one_file(path: Path) -> None:
    code = COMMENT.sub("", path.read_text())
    assert path.stem == "Internals" or [name for name in PRIVATE if name in code] == []
