"""The NEXMark event generator: pure NumPy and Arrow, no Spark.

Every event is a pure function of (configuration, event number). So any range of event numbers can be
generated anywhere, in any split, any number of times, with the same rows.
"""

from headrace.generators.nexmark.config import NexmarkConfig
from headrace.generators.nexmark.events import NexmarkGenerator
from headrace.generators.nexmark.schema import VIEWS, schema

__all__ = ["VIEWS", "NexmarkConfig", "NexmarkGenerator", "schema"]
