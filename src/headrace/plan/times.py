"""How long the parts of the protocol wait for each other, and the rules between these times.

All times are seconds. A time that two parts depend on is defined here and nowhere else. `broken_rules`
lists the rules that a set of times breaks; a test keeps the list empty.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """The times of the protocol between driver, hosts, tasks and storage."""

    # Heartbeats, from each host to the coordinator.
    heartbeat_s: float = 1.0  # between two heartbeats
    heartbeat_answer_s: float = 3.0  # the longest wait for one answer
    driver_watch_s: float = 0.5  # between two checks whether the application has ended

    # When a host gives up its driver.
    driver_gone_s: float = 4.0  # connections refused for this long: the driver's process is gone
    driver_silent_s: float = 30.0  # no answer for this long: the driver, or the network to it, is gone
    host_leave_s: float = 8.0  # a leaving host finishes its uploads within this time, or is ended
    host_stop_s: float = 2.0  # the driver's wait for the answer to "stop"
    drain_report_s: float = 3.0  # a wait for commits under way is logged after this time

    # Two drivers on one checkpoint.
    lease_renew_s: float = 2.0  # between two beats of a running query's lease
    lease_s: float = 8.0  # a lease without a new beat for this long is that of a dead driver
    run_fresh_s: float = 2.0  # a commit needs a look at the query's runs that is no older than this

    # When the driver gives up a host, and where partitions go.
    host_lost_s: float = 8.0  # no heartbeat for this long: the partitions move
    host_sign_s: float = 4.0  # a host that a task cannot reach has this long for its next heartbeat
    host_ping_s: float = 10.0  # a task's wait for a sign of life before it sends rows
    host_watch_s: float = 5.0  # between two pings of the machine's host while tasks use it
    host_hung_s: float = 30.0  # a host that answers no ping for this long is ended and replaced
    host_start_s: float = 120.0  # the first host after an installation compiles its kernels
    host_address_s: float = 130.0  # the coordinator's wait for the address of a new host
    begin_answer_s: float = 180.0  # a task's wait for the coordinator's answer
    partition_idle_s: float = 60.0  # a partition without batches for this long frees memory for new ones

    # Storage. Waiting for storage does not count as a stall of the step that waits.
    storage_connect_s: float = 5.0  # to open a connection
    storage_request_s: float = 60.0  # to answer one request
    storage_pause_s: float = 5.0  # the longest pause before a request is repeated
    storage_patience_s: float = 300.0  # a request is repeated for this long, then its error is raised
    storage_report_s: float = 10.0  # between two log lines about one wait

    # Commits behind the batches.
    commit_watch_s: float = 1.0  # between two checks for stalled steps
    step_stalled_s: float = 90.0  # a step without progress for this long is done again
    gap_settle_s: float = 12.0  # hosts of a dead driver close a gap within this time, or never
    gap_look_s: float = 0.5  # between two looks at a gap

    # Compaction elsewhere.
    compactor_connect_s: float = 3.0  # to open a connection to a compactor
    compactor_inputs_s: float = 10.0  # a job waits for the upload of its inputs for this long
    compactor_beat_s: float = 1.0  # between two signs of life while a compactor works
    compactor_silent_s: float = 15.0  # a compactor without a sign of life for this long is dead
    compactor_job_s: float = 600.0  # a job that takes longer is done by the host itself
    compactor_barred_s: float = 10.0  # a compactor that failed gets no job for this long, or longer
    compactor_barred_max_s: float = 300.0

    # Asynchronous processors.
    cancel_s: float = 5.0  # a cancelled call of user code ends within this time, or is left behind

    # Look-ups in stores outside.
    lookup_connect_s: float = 5.0  # to open a connection
    lookup_answer_s: float = 30.0  # to answer one batch of requests
    lookup_pause_s: float = 2.0  # the longest pause before a request is repeated
    lookup_skip_s: float = 1.0  # after a failure, nulls are returned for this long without a request


TIMES = Times()


def broken_rules(times: Times) -> list[str]:
    """The rules that these times break, each with its reason."""
    t = times
    beat_s = t.heartbeat_s + t.heartbeat_answer_s  # the longest time between two heartbeats of a live host
    rules = {
        "host_lost_s allows two heartbeats in a row to fail": t.host_lost_s >= 2 * beat_s,
        "host_sign_s allows one more heartbeat": t.host_sign_s >= beat_s,
        "host_sign_s is no longer than host_lost_s": t.host_sign_s <= t.host_lost_s,
        "host_ping_s lets the coordinator notice a lost host first": t.host_ping_s >= t.host_lost_s,
        "host_hung_s: a slow host has several pings to answer": t.host_hung_s >= 3 * t.host_watch_s,
        "host_hung_s: a busy host is not ended before the driver counts it as lost": (
            t.host_hung_s > t.host_lost_s + t.host_ping_s
        ),
        "driver_gone_s allows one heartbeat to fail": t.driver_gone_s >= beat_s,
        "driver_silent_s is longer than driver_gone_s": t.driver_silent_s > t.driver_gone_s,
        "driver_silent_s: the driver moves partitions before their host leaves": (
            t.driver_silent_s >= t.host_lost_s
        ),
        "driver_watch_s: hosts are stopped by the driver before they leave": (
            t.driver_watch_s + t.host_stop_s < t.driver_gone_s
        ),
        "host_start_s: a new host can wait for the end of the old one": t.host_start_s > t.host_leave_s,
        "host_address_s covers a start and its first heartbeat": (
            t.host_address_s >= t.host_start_s + beat_s
        ),
        "begin_answer_s covers the coordinator's own waits": (
            t.begin_answer_s > t.host_sign_s + t.host_address_s
        ),
        "step_stalled_s outlasts one request": t.step_stalled_s > t.storage_connect_s + t.storage_request_s,
        "commit_watch_s notices a stall in time": 10 * t.commit_watch_s <= t.step_stalled_s,
        "storage_patience_s outlasts two requests and the pause between them": (
            t.storage_patience_s >= 2 * (t.storage_connect_s + t.storage_request_s) + t.storage_pause_s
        ),
        "storage_patience_s outlasts a stall: slow storage is waited for, not redone": (
            t.storage_patience_s > t.step_stalled_s
        ),
        "storage_report_s is longer than one pause": t.storage_report_s > t.storage_pause_s,
        "gap_settle_s outlasts the hosts of a dead driver": (
            t.gap_settle_s >= t.driver_gone_s + t.host_leave_s
        ),
        "lookup_answer_s: a look-up is repeated before the patience is over": (
            t.storage_patience_s > t.lookup_connect_s + t.lookup_answer_s + t.lookup_pause_s
        ),
        "compactor_silent_s allows several signs of life to fail": (
            t.compactor_silent_s >= 5 * t.compactor_beat_s
        ),
        "compactor_job_s outlasts a compactor's own patience with storage": (
            t.compactor_job_s > t.storage_patience_s
        ),
        "lease_s allows two renewals in a row to fail": t.lease_s > 3 * t.lease_renew_s,
        "run_fresh_s: hosts notice a new run after a lease is over, before a batch is withdrawn": (
            t.gap_settle_s > t.lease_s + t.run_fresh_s
        ),
        "gap_look_s: a gap is looked at several times": 4 * t.gap_look_s <= t.gap_settle_s,
    }
    return [rule for rule, holds in rules.items() if not holds]
