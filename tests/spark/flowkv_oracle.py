"""FlowKV's queries said a second time: DuckDB's SQL over all events at once.

Times are milliseconds. `marks` has the watermark before and after each micro-batch; a row counts in a
window that was open before its batch, and a window is there if the last watermark closed it. Sessions
depend on what had arrived when they closed, so they are cut batch by batch, each time over all open rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

DELAY_MS = 4_000
Rows = list[tuple[Any, ...]]

_MARKS = f"""
create table marks as
select batch, lag(after) over (order by batch) as before, after
from (
    select batch, min(seen) - {DELAY_MS} as after
    from (
        select batch, stream, max(max(t)) over (partition by stream order by batch) as seen
        from times group by batch, stream
    ) group by batch
)
"""
_COUNTS = """
with pairs as (
    select b.auction, b.t // 2000 * 2000 - 2000 * i as start, m.before
    from bids b join marks m using (batch), range(5) as slides(i)
), counts as (
    select start + 10000 as "end", auction, count(*) as num
    from pairs
    where (before is null or start + 10000 > before) and start + 10000 <= (select max(after) from marks)
    group by all
)
"""
Q5_APPEND = _COUNTS + 'select * from counts qualify num = max(num) over (partition by "end")'
Q5 = _COUNTS + 'select "end", max(auction), num from (' + Q5_APPEND[len(_COUNTS) :] + ") group by all"
_IN_TIME = "(before is null or t // 10000 * 10000 + 10000 > before)"
_OVER = "t // 10000 * 10000 + 10000 <= (select max(after) from marks)"
Q7 = f"""
select auction, bidder, price, t from bids join marks using (batch)
where {_IN_TIME} and {_OVER}
qualify price = max(price) over (partition by t // 10000)
"""
Q8 = f"""
with p as (select id, name, t // 10000 * 10000 as start from persons join marks using (batch)
           where {_IN_TIME} and {_OVER}),
     a as (select seller, t // 10000 * 10000 as start from auctions join marks using (batch)
           where {_IN_TIME} and {_OVER})
select id, name, p.start, count(*) from p join a on p.id = a.seller and p.start = a.start group by all
"""
Q12 = """
select bidder, sum(count(*)) over (partition by bidder order by batch) as num
from bids group by bidder, batch
"""
_SESSIONS = """
create or replace table cut as
select bidder, price, t, sum(apart) over (history rows unbounded preceding) as session
from (
    select *, coalesce(t - lag(t) over history > 10000, true)::int as apart
    from open window history as (partition by bidder order by t)
) window history as (partition by bidder order by t)
"""
_CLOSED = """
create or replace table closed as
select bidder, session, min(t) as start, max(t) + 10000 as "end", {what} as result
from cut group by bidder, session having max(t) + 10000 <= ?
"""
RESULTS = {"q7_session": "max(price)", "q11": "count(*)", "q11_median": "median(price)"}


@dataclass(frozen=True)
class Oracle:
    """Tables of events, each with its micro-batch; every query sees a database of its own."""

    bids: pa.Table
    persons: pa.Table
    auctions: pa.Table

    def rows(self, query: str) -> Rows:
        if query in RESULTS:
            return self._sessions(RESULTS[query])
        text = {"q5": Q5, "q5_append": Q5_APPEND, "q7": Q7, "q8": Q8, "q12": Q12}[query]
        with self._database(("persons", "auctions") if query == "q8" else ("bids",)) as database:
            return sorted(database.execute(text).fetchall())

    def late_bids(self) -> int:
        """How many bids came after all their 10 s windows had closed."""
        with self._database(("bids",)) as database:
            counted = database.execute(
                f"select count(*) from bids join marks using (batch) where not {_IN_TIME}"
            )
            return int(counted.fetchall()[0][0])

    def _database(self, streams: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
        database = duckdb.connect()
        for name in streams:
            given = getattr(self, name)  # noqa: F841  (DuckDB finds it by name)
            database.execute(f"create table {name} as select * from given")
        times = " union all ".join(f"select batch, t, '{name}' as stream from {name}" for name in streams)
        database.execute(f"create view times as {times}")
        database.execute(_MARKS)
        return database

    def _sessions(self, result: str) -> Rows:
        sessions: Rows = []
        with self._database(("bids",)) as database:
            database.execute("create table open as select bidder, price, t from bids limit 0")
            marks = database.execute("select batch, before, after from marks order by batch").fetchall()
            for batch, before, after in marks:
                timely = "select bidder, price, t from bids where batch = ? and t + 10000 > ?"
                database.execute(
                    f"insert into open {timely}", [batch, -(1 << 62) if before is None else before]
                )
                database.execute(_SESSIONS)
                database.execute(_CLOSED.format(what=result), [after])
                sessions += database.execute('select bidder, start, "end", result from closed').fetchall()
                database.execute(
                    "create or replace table open as select bidder, price, t from cut "
                    "anti join closed using (bidder, session)"
                )
        return sorted(sessions)
