"""NEXMark's queries a second time: DuckDB's SQL over all events at once.

Times are milliseconds. Every row has the batch that brings it, and `before`, the watermark of the batch
before over the streams of the query. A join while an auction is open drops rows that are not later; windows
drop rows once they have closed. `last` is the last watermark: windows that end after it are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

DELAY_MS = 4_000
Rows = list[tuple[Any, ...]]

_VALID = """
with valid as (
    select b.*, a.itemName, a.seller, a.category, a.expires, a.t as opened
    from bid b join auction a on b.auction = a.id and b.t between a.t and a.expires
    where b.t > b.before and a.t > a.before
)
"""
_WINNING = (
    _VALID.rstrip()
    + """, winning as (
    select * from valid
    qualify row_number() over (partition by auction order by price desc, t, bidder, channel, url, extra) = 1
)
"""
)
_IN_DAY = "(t // 86400000 + 1) * 86400000 > before"
_DAY = "strftime(make_timestamp(t * 1000), '%Y-%m-%d')"


def _ranked(of: str) -> str:
    """An aggregate of all bids, and of those of each rank of price."""
    ranks = ("price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000")
    return ", ".join([of, *(f"{of} filter (where {rank})" for rank in ranks)])


_METRICS = ", ".join(
    _ranked(of) for of in ("count(*)", "count(distinct bidder)", "count(distinct auction)")
)
_WINDOW = "t // 10000 * 10000"

SQL = {
    "q0": "select auction, bidder, price, t, extra from bid",
    "q1": "select auction, bidder, price * 908, t, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """select name, city, state, a.id from auction a join person p on a.seller = p.id
             where category = 10 and state in ('OR', 'ID', 'CA')""",
    "q4": _VALID
    + """select category, avg(final) from (
             select auction, category, max(price) as final from valid group by all) group by category""",
    "q5": """with counts as (
                 select t // 2000 * 2000 - 2000 * i + 10000 as "end", auction, count(*) as num
                 from bid, range(5) as slides(i)
                 where t // 2000 * 2000 - 2000 * i + 10000 > before
                   and t // 2000 * 2000 - 2000 * i + 10000 <= (select last from marks)
                 group by all
             ) select auction, num from counts qualify num = max(num) over (partition by "end")""",
    "q6": _WINNING
    + """select seller, row_number() over frame,
                avg(price) over (frame rows between 10 preceding and current row)
         from winning window frame as (partition by seller order by t, auction)""",
    "q6_closed": _VALID
    + """, closed as (
             select auction, seller, max(price) as price, max(expires) as expires from valid
             where expires // 1000 * 1000 + 1000 <= (select last from marks) group by auction, seller
         ), newest as (
             select * from closed
             qualify row_number() over (partition by seller order by expires desc, auction desc) <= 10
         ) select seller, avg(price) from newest group by seller""",
    "q7": f"""with highest as (
                 select {_WINDOW} + 10000 as "end", max(price) as price from bid
                 where {_WINDOW} + 10000 > before and {_WINDOW} + 10000 <= (select last from marks)
                 group by all
             ) select auction, b.price, bidder, t, extra
             from bid b join highest h on b.price = h.price and t between "end" - 10000 and "end"
             where t > before""",
    "q8": f"""select distinct p.id, name, p.start from
                 (select id, name, {_WINDOW} as start from person where {_WINDOW} + 10000 > before) p
             join (select seller, {_WINDOW} as start from auction where {_WINDOW} + 10000 > before) a
             on p.id = a.seller and p.start = a.start
             where p.start + 10000 <= (select last from marks)""",
    "q9": _WINNING + "select auction, bidder, price, t, itemName, seller, expires from winning",
    "q12": "select sum(num) from (select count(*) as num from bid group by bidder)",
    "q12_event_time": f"""select bidder, count(*), {_WINDOW}, {_WINDOW} + 10000 from bid
             where {_WINDOW} + 10000 > before and {_WINDOW} + 10000 <= (select last from marks)
             group by all""",
    "q13": "select auction, bidder, price, t, cast(auction % 10000 as varchar) from bid",
    "q14": """select auction, bidder, price * 908,
                 case when (t // 3600000) % 24 between 8 and 18 then 'dayTime'
                      when (t // 3600000) % 24 <= 6 or (t // 3600000) % 24 >= 20 then 'nightTime'
                      else 'otherTime' end, t, extra, length(extra) - length(replace(extra, 'c', ''))
             from bid where price * 908 > 1000000000 and price * 908 < 50000000000""",
    "q15": f"select {_DAY}, {_METRICS} from bid where {_IN_DAY} group by {_DAY}",
    "q16": f"""select channel, {_DAY}, max(strftime(make_timestamp(t * 1000), '%H:%M')), {_METRICS}
             from bid where {_IN_DAY} group by channel, {_DAY}""",
    "q17": f"""select auction, {_DAY}, {_ranked("count(*)")}, min(price), max(price), avg(price), sum(price)
             from bid where {_IN_DAY} group by auction, {_DAY}""",
    "q18": """select auction, bidder, price, channel, url, t, extra from bid
             qualify row_number() over (partition by bidder, auction
                 order by t desc, price desc, channel, url, extra) = 1""",
    "q19": """select auction, bidder, price, channel, url, t, extra, row_number() over top as place from bid
             window top as (partition by auction order by price desc, t, bidder, channel, url, extra)
             qualify place <= 10""",
    "q20": """select auction, bidder, price, b.t, itemName, a.t, expires, seller
             from bid b join auction a on b.auction = a.id where category = 10""",
    "q21": """select auction, bidder, price, channel, case lower(channel)
                 when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
                 else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as channel_id
             from bid where channel_id <> ''""",
    "q22": """select auction, bidder, price, channel,
                 split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) from bid""",
    "q23": """select b.bidder, name, auction, price, b.t, a.id, itemName
             from bid b join person p on b.bidder = p.id join auction a on a.seller = b.bidder""",
}
KINDS = {
    **dict.fromkeys(SQL, ("bid",)),
    **dict.fromkeys(("q3", "q8"), ("person", "auction")),
    **dict.fromkeys(("q4", "q6", "q6_closed", "q9", "q20"), ("bid", "auction")),
    "q23": ("bid", "auction", "person"),
}
_MARKS = f"""
create table before as
select batch, coalesce(lag(after) over (order by batch), -4000000000000000) as before, after
from (
    select batch, max(max(t)) over (order by batch) - {DELAY_MS} as after from times group by batch
)
"""


def expected(query: str, tables: Mapping[str, pa.Table]) -> Rows:
    """The rows of a query over tables with `t` and `batch`."""
    with duckdb.connect() as database:
        for kind in KINDS[query]:
            database.register(f"given_{kind}", tables[kind])
        times = " union all ".join(f"select batch, t from given_{kind}" for kind in KINDS[query])
        database.execute(f"create view times as {times}")
        database.execute(_MARKS)
        database.execute("create view marks as select max(after) as last from before")
        for kind in KINDS[query]:
            database.execute(f"create view {kind} as select * from given_{kind} join before using (batch)")
        return database.execute(SQL[query]).fetchall()
