"""`python -m headrace.host.ensure`: finds this machine's state host or starts it, on behalf of a JVM.

With the argument `hung` it first ends a host that does not answer, and names its process.

Settings come as one line of JSON on standard input, the answer goes to standard output: where the host's
door is, or why there is none. It ends at once; the host stays.
"""

from __future__ import annotations

import json
import sys

from headrace.errors import HeadraceError
from headrace.host.process.lifecycle import ensure_host
from headrace.host.process.settings import HostSettings
from headrace.plan.times import TIMES


def main(text: str, *, hung: bool = False) -> int:
    try:
        settings = HostSettings.from_json(text)
        ended = _end_hung(settings) if hung else None
        address = ensure_host(settings)
        print(json.dumps({"door": address.door, "pid": address.pid, "ended": ended}))
        return 0
    except HeadraceError as error:
        print(error.to_json())
    except OSError as error:
        print(HeadraceError(str(error), hint="the state host could not be started").to_json())
    return 1


def _end_hung(settings: HostSettings) -> int | None:
    from headrace.host.process.hung import end_hung  # only then Arrow is needed

    return end_hung(settings, TIMES.host_ping_s)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read(), hung="hung" in sys.argv[1:]))
