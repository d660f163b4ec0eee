"""Rows of bags: unpacked with their groups, joined with new rows, matched by content, packed again.

Rows are those of a `KeptLayout`. Groups are numbered by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.errors import QueryError
from headrace.kernels.core.order import by_hash
from headrace.kernels.groups import bag as kernel
from headrace.kernels.groups.group import group_rows
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX
from headrace.row.run import Run
from headrace.store.rows.groups import Groups
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.rows.take import rows_at


@dataclass(frozen=True)
class BagRows:
    """Rows and the group of each; groups are `[0, groups)`, and some may have no row."""

    rows: Run
    of_row: I64
    groups: int

    def at(self, ids: I64) -> BagRows:
        return BagRows(rows_at(self.rows, ids), self.of_row[ids], self.groups)


@dataclass(frozen=True)
class BagShape:
    """How rows of a layout lie in a bag."""

    layout: KeptLayout

    @cached_property
    def start(self) -> int:
        return self.layout.key_width

    @cached_property
    def variable(self) -> Flags:
        flags = np.zeros(self.layout.width, np.bool_)
        flags[list(self.layout.variable_words)] = True
        return flags

    def unpacked(self, keys: Run, word: int) -> BagRows:
        """The rows of all bags of state rows; `word` holds the bags. Group g is state row g."""
        bags = np.ascontiguousarray(keys.words[:, word])
        counts = kernel.counts(bags, keys.heap)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        words: U64 = np.empty((int(offsets[-1]), self.layout.width), np.uint64)
        kernel.unpack(bags, keys.heap, keys.words, offsets, self.start, self.variable, words)
        of_row = np.repeat(np.arange(len(bags)), counts)
        return BagRows(Run(keys.order[of_row], words, keys.heap), of_row, len(bags))

    def packed(self, bags: BagRows, order: I64, offsets: I64) -> tuple[U64, U8]:
        """The bag of each group as pointers into a new heap; `order` has row numbers by group."""
        place = (order, offsets, self.start, self.variable)
        sizes = kernel.sizes(bags.rows.words, *place)
        if len(sizes) and int(sizes.max()) > LENGTH_MAX:
            raise QueryError(
                f"operator {self.layout.spec.name}: the rows of one key exceed {LENGTH_MAX >> 20} MiB",
                hint="keep fewer or narrower rows: a smaller n, or a select before the operator",
            )
        begins = np.concatenate([[0], np.cumsum(sizes)])
        heap: U8 = np.empty(int(begins[-1]), np.uint8)
        kernel.pack(bags.rows.words, bags.rows.heap, *place, begins[:-1], heap)
        pointers = (begins[:-1].astype(np.uint64) << np.uint64(LENGTH_BITS)) | sizes.astype(np.uint64)
        return np.where(sizes == 0, np.uint64(0), pointers), heap

    def joined(self, first: BagRows, second: BagRows) -> BagRows:
        """All rows of both; heaps lie one after the other."""
        moved = second.rows.words.copy()
        shift = np.uint64(len(first.rows.heap) << LENGTH_BITS)
        for word in self.layout.variable_words:
            column = moved[:, word]
            moved[:, word] = np.where(column == 0, column, column + shift)
        rows = Run(
            np.concatenate([first.rows.order, second.rows.order]),
            np.concatenate([first.rows.words, moved]),
            np.concatenate([first.rows.heap, second.rows.heap]),
        )
        of_row = np.concatenate([first.of_row, second.of_row])
        return BagRows(rows, of_row, max(first.groups, second.groups))

    def contents(self, bags: BagRows) -> I64:
        """A number for each row; rows of one group with equal content have the same."""
        words, heap = bags.rows.words, bags.rows.heap
        hashes = kernel.content_hashes(words, heap, bags.of_row, self.start, self.variable)
        order = by_hash(hashes)
        tail = np.ascontiguousarray(words[order, self.start :])
        numbers, _ = group_rows(hashes[order], tail, heap, bags.of_row[order], self.variable[self.start :])
        made = np.empty(len(order), np.int64)
        made[order] = numbers
        return made


def net(shape: BagShape, bags: BagRows, signs: I64) -> BagRows:
    """The rows that remain when rows of sign -1 take back equal rows of sign 1."""
    if (signs > 0).all():
        return bags
    contents = shape.contents(bags)
    totals = np.zeros(int(contents.max()) + 1, np.int64)
    np.add.at(totals, contents, signs)
    if (totals < 0).any():
        raise QueryError(
            f"operator {shape.layout.spec.name}: a row was deleted that was never inserted",
            hint="its input is not a whole changelog: keep every row of it, and its kind column",
        )
    positive = np.flatnonzero(signs > 0)
    order = positive[np.argsort(contents[positive], kind="stable")]
    return bags.at(np.sort(order[occurrences(contents[order]) < totals[contents[order]]]))


def occurrences(sorted_numbers: I64) -> I64:
    """How many equal numbers precede each of a sorted sequence."""
    if not len(sorted_numbers):
        return np.empty(0, np.int64)
    begins = np.flatnonzero(np.concatenate([[True], sorted_numbers[1:] != sorted_numbers[:-1]]))
    lengths = np.diff(np.append(begins, len(sorted_numbers)))
    counted: I64 = np.arange(len(sorted_numbers)) - np.repeat(begins, lengths)
    return counted


def groups_in(bags: BagRows) -> Groups:
    """Groups for computations over whole groups; each has at least one row."""
    firsts = np.full(bags.groups, -1, np.int64)
    firsts[bags.of_row[::-1]] = np.arange(len(bags.of_row))[::-1]
    nowhere = np.zeros(bags.groups, np.int64)
    return Groups(bags.of_row, firsts, nowhere, nowhere)
