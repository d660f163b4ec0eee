"""`python -m headrace.host`: a state host. Its settings are one line of JSON on standard input."""

from __future__ import annotations

import sys

from headrace.host.process.main import main

if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline()))
