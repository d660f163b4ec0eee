"""How many distinct values have drawn so many coupons: the curve that both Spark and readers of state use.

A value draws one coupon by its hash: a bucket, all equally likely, and a rank, each half as likely as the
one before. Points of the curve are `STEPS` per coupon and bucket. Pure.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

RANKS = 40
STEPS = 16


@lru_cache(maxsize=1)
def curve() -> tuple[float, ...]:
    """The logarithm of one more than the values per bucket, by coupons per bucket in steps."""
    values = np.concatenate([[0.0], np.geomspace(1e-6, 2.0 ** (RANKS - 4), 40_000)])
    drawn = np.sum([-np.expm1(-values * 0.5**rank) for rank in range(1, RANKS + 1)], axis=0)
    steps = np.arange(0, float(drawn[-1]), 1 / STEPS)
    points: list[float] = np.interp(steps, drawn, np.log1p(values)).tolist()
    return tuple(points)
