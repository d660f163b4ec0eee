"""The NEXMark event generator: pure NumPy and Arrow, no Spark.

Every event is a pure function of (configuration, event number). So any range of event numbers can be
made anywhere, in any split, any number of times, and the rows are always the same.
"""

from headrace.bench.nexmark.config import NexmarkConfig
from headrace.bench.nexmark.events import NexmarkGenerator
from headrace.bench.nexmark.schema import VIEWS, schema

__all__ = ["VIEWS", "NexmarkConfig", "NexmarkGenerator", "schema"]
