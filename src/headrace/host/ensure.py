"""`python -m headrace.host.ensure`: finds this machine's state host or starts it, on behalf of a JVM.

Settings come as one line of JSON on standard input, the answer goes to standard output: where the host's
door is, or why there is none. It ends at once; the host stays.
"""

from __future__ import annotations

import json
import sys

from headrace.errors import HeadraceError
from headrace.host.process.lifecycle import ensure_host
from headrace.host.process.settings import HostSettings


def main(text: str) -> int:
    try:
        address = ensure_host(HostSettings.from_json(text))
        print(json.dumps({"door": address.door, "pid": address.pid}))
        return 0
    except HeadraceError as error:
        print(error.to_json())
    except OSError as error:
        print(HeadraceError(str(error), hint="the state host could not be started").to_json())
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
