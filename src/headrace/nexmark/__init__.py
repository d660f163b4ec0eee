"""NEXMark's queries q0 to q9 and q11 to q23, as a user of Headrace writes them (q10 is a file sink).

A query is a function of streams: `bids`, `auctions` and `persons` have a watermark on `dateTime`. Ties are
broken as `docs/nexmark.md` states.
"""
