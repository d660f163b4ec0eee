"""`view`: a page in the browser for the running application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pages.feed import Feed, Here
from headrace.pages.server import View
from headrace.spark.build.recipe import session_options
from headrace.spark.driver.driver import coordinator_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def view(spark: SparkSession, port: int = 0) -> View:
    """Open a live view of the application's queries.

    Parameters
    ----------
    spark : SparkSession
        The session whose application is shown.
    port : int
        A port of loopback; 0 takes any free one.

    Returns
    -------
    View
        Its `url` has the token that the page needs; a notebook shows the page inline. `stop()` ends it.

    Examples
    --------
    >>> import headrace as hr
    >>> view = hr.view(spark)
    >>> view.url
    'http://127.0.0.1:.../'
    >>> view.stop()
    """
    monitor = coordinator_for(spark).monitor(session_options(spark))
    return View(Feed(Here(monitor.journal)), port)
