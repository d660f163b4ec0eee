"""Position reports (`SegSpeedStr`): each vehicle on the road reports its position about every 30 s.

With `r` records per second there are 30·r vehicles under way. A vehicle reports `TRIP` times, each time as
much farther along as its speed makes in 30 s. Then it leaves, and a new vehicle replaces it. A vehicle
keeps its expressway, its direction and its usual speed. On a stretch of road that is congested for five
minutes it reports a speed below 40 mph.

As text a report is a line of 65 bytes: time (24), vehicle (12), speed (6, two decimals), highway (4), lane
(1), direction (1), position in feet (6), segment (4), and 7 commas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.records.lines import Bytes, digits, moments
from headrace.generators.records.records import TIME, Kind, Numbered

REPORT_EVERY_S = 30
TRIP = 24  # reports of one vehicle: twelve minutes
HIGHWAYS = 4
SEGMENTS, SEGMENT_FEET = 100, 5280
ROAD_FEET = SEGMENTS * SEGMENT_FEET
LANES = 5  # 0: entering, 1 to 3: travelling, 4: leaving
CONGESTED_SHARE, CONGESTED_FOR_S = 0.08, 300

SCHEMA = pa.schema(
    [
        ("timestamp", TIME),
        ("vehicle", pa.int32()),
        ("speed", pa.float32()),
        ("highway", pa.int32()),
        ("lane", pa.int32()),
        ("direction", pa.int32()),
        ("position", pa.int32()),
        ("segment", pa.int32()),
    ]
)

_SPEED, _JITTER, _LANE = 2, 3, 4
_HIGHWAY, _DIRECTION, _ENTRY = 5, 6, 7
_CONGESTED, _SLOW = 8, 9


@dataclass(frozen=True)
class Reports:
    """The columns as integers; speeds in hundredths of a mile per hour."""

    vehicle: I64
    speed: I64
    highway: I64
    lane: I64
    direction: I64
    position: I64
    segment: I64


def reports(some: Numbered) -> Reports:
    """The columns of the given reports."""
    slots = REPORT_EVERY_S * some.options.traffic.rate
    slot, turn = some.numbers % slots, some.numbers // slots
    turn += Draws.of(some.options.traffic.seed, ~slot).below(0, TRIP)  # spreads the entries over time
    vehicle, report = slot + turn // TRIP * slots, turn % TRIP
    own = Draws.of(some.options.traffic.seed + 1, vehicle)
    highway, direction = own.below(_HIGHWAY, HIGHWAYS), own.below(_DIRECTION, 2)
    usual = 4000 + own.below(_SPEED, 4001) + own.below(_JITTER, 2001)  # 40 to 100 mph
    distance = usual * report * (REPORT_EVERY_S * SEGMENT_FEET) // 360_000
    position = (own.below(_ENTRY, ROAD_FEET) + np.where(direction == 0, distance, -distance)) % ROAD_FEET
    segment = position // SEGMENT_FEET
    speed = np.where(_congested(some, highway, direction, segment), _slow(some), usual)
    lane = np.where(report == 0, 0, np.where(report == TRIP - 1, LANES - 1, 1 + some.draws.below(_LANE, 3)))
    return Reports(vehicle, speed, highway, lane, direction, position, segment)


def _congested(some: Numbered, highway: I64, direction: I64, segment: I64) -> np.ndarray:
    stretch = (highway * 2 + direction) * SEGMENTS + segment
    when = some.seconds // CONGESTED_FOR_S
    draws = Draws.of(some.options.traffic.seed + 2, when * (HIGHWAYS * 2 * SEGMENTS) + stretch)
    return np.asarray(draws.unit(_CONGESTED) < CONGESTED_SHARE)


def _slow(some: Numbered) -> I64:
    return 500 + some.draws.below(_SLOW, 3000)  # 5 to 35 mph


def rows(some: Numbered) -> pa.RecordBatch:
    report = reports(some)
    whole = [report.highway, report.lane, report.direction, report.position, report.segment]
    columns = [
        some.timestamps(),
        pa.array(report.vehicle.astype(np.int32)),
        pa.array((report.speed / 100).astype(np.float32)),
        *(pa.array(column.astype(np.int32)) for column in whole),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def fields(some: Numbered) -> list[Bytes]:
    report = reports(some)
    return [
        moments(some.times_s),
        digits(report.vehicle, 12),
        digits(report.speed, 6, decimals=2),
        digits(report.highway, 4),
        digits(report.lane, 1),
        digits(report.direction, 1),
        digits(report.position, 6),
        digits(report.segment, 4),
    ]


REPORTS = Kind("linear_road", SCHEMA, rows, fields)
