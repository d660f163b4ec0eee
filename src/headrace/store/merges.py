"""The merges that compactions describe as data, by name: what another process needs to run one."""

from __future__ import annotations

from headrace.store.append.bucket_store import merge_kept
from headrace.store.base.jobs import Merging
from headrace.store.fold.final import merge_sums
from headrace.store.fold.rmw import merge_newest
from headrace.store.sessions.store import merge_sessions, merge_timers

MERGES: dict[str, Merging] = {
    "newest": merge_newest,
    "sums": merge_sums,
    "kept": merge_kept,
    "sessions": merge_sessions,
    "timers": merge_timers,
}
